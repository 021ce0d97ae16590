"""One try of a request at one deployment."""

import msgspec


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a try. Every try is recorded, also those that led to nothing."""

    deployment: str
    """Its name in the config, never the provider's own name for the model."""
    outcome: str
    """``ok``, ``disconnected``, or the kind of failure."""
    status: int | None = None
    """What a provider answered; None: nothing, or an engine of ours."""
    started_ms: int
    """Unix milliseconds."""
    first_ms: int | None = None
    """Milliseconds to the first piece of output; None: there was none."""
    took_ms: int = 0
    """Milliseconds to its end."""
