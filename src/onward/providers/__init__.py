"""Services elsewhere that serve models: bytes in, bytes out."""
