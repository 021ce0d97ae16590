"""Requests and answers between two APIs, through the neutral request and deltas. No I/O.

A body goes out of a neutral request; a provider's stream, or its whole answer, becomes deltas.
"""
