"""Engines: token IDs in, token IDs with log probabilities out."""
