"""Requests that go on to a provider and its answers that come back: bytes, spliced and watched. No I/O."""
