"""Tests of the HTTP edge."""  # noqa: A005 - a package of tests hides nothing
