"""What one connection, and all of them together, may take. Every bound has a number here."""

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on connections and on the parts of a request. Times are in seconds."""

    connections: int = 1024
    """Open at once in this process; one more is answered 503 and closed."""
    header_bytes: int = 32 * 1024
    """Names and values of a request's header fields, together."""
    header_count: int = 100
    url_bytes: int = 8 * 1024
    header_s: float = 10.0
    """From the first byte of a request (of a new connection: from its opening) to the end of its header."""
    body_idle_s: float = 30.0
    """Longest silence within a body."""
    body_s: float = 30.0
    """The whole of a body; longer as far as it brings `body_bytes_per_s` after all."""
    body_bytes_per_s: int = 8192
    keep_alive_s: float = 75.0
    """How long an open connection may wait for its next request."""
    write_stall_s: float = 30.0
    """How long a caller may read nothing while we have something to write."""
    unsent_bytes: int = 64 * 1024
    """What the system holds for a caller that reads nothing, beyond what the caller's own system takes."""
    linger_s: float = 2.0
    """How long what is still being sent is thrown away after an early answer, so that it arrives."""
    linger_bytes: int = 64 * 1024 * 1024
    pipelined: int = 16
    """Requests waiting on one connection behind the one that is being answered."""
    body_bytes: int = 10_485_760
    """One request's body."""
    held_body_bytes: int = 256 * 1024 * 1024
    """Bodies being read at once in this process, together."""
    request_s: float = 600.0
    """From the beginning of a request to the end of its answer."""
    silence_s: float | None = None
    """Silence in a stream after which a comment is sent. None: as the dialect says."""
    stream_buffer_bytes: int = 64 * 1024
    """Events waiting for a slow reader before the engine has to wait as well."""
    kept_answer_bytes: int = 16 * 1024 * 1024
    """The largest answer to a request with an `Idempotency-Key` that is kept."""
    recorded_bytes: int = 256 * 1024 * 1024
    """Answers to such requests that are held in this process, together, while they are made and repeated."""
    named_wait_s: float = 30.0
    """From the beginning of a request to its refusal, if one with its `Idempotency-Key` runs elsewhere.
    `request_s`, where that is less."""
