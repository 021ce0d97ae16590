"""What a provider's connections may cost us: time, memory and their number."""

import msgspec


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one provider. Times in seconds."""

    connect_s: float = 5.0
    """To a connection: the name, TCP, TLS, and waiting for a turn where all connections are busy."""
    first_byte_s: float = 300.0
    """From the request to the first byte of the body of its answer that counts."""
    idle_s: float = 60.0
    """The longest silence between two pieces of a body."""
    connections: int = 1000
    waiting: int = 1000
    """Requests that wait for a connection; more are refused."""
    keep_s: float = 4.0
    """How long an unused connection is kept where the provider does not say.

    Many servers close theirs after 5 s. A request that is sent just then is lost, and may not be sent
    again, so we are the first to close.
    """
    header_bytes: int = 64 * 1024
    header_count: int = 128
    buffer_bytes: int = 64 * 1024
    """Above this much of a body that nobody read, the connection is not read."""

    @property
    def unheard_s(self) -> float:
        """How long nothing that counts may come between two pieces of a body, whatever else does."""
        return max(self.first_byte_s, self.idle_s)

    @property
    def sweep_s(self) -> float:
        """How often connections are looked at: timeouts are late by at most this."""
        return max(0.01, min(0.5, self.first_byte_s / 8, self.idle_s / 8, self.keep_s / 8))
