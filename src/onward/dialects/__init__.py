"""The dialects of the API: each is data, read by one interpreter. No I/O."""
