"""Bytes to requests and deltas to bytes, for every surface. No I/O."""
