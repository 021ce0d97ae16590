"""Admission is pure: no server is needed."""
