"""Onward: the inference API that you run yourself."""

__version__ = "0.1.0"
