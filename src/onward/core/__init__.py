"""The vocabulary: requests, chunks, deltas, usage, failures, clock, identifiers. No I/O."""
