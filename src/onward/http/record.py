"""What is known of a request when it is over: the source of its log line and its metrics."""

import time

import msgspec

from onward.core.failure import FailureKind
from onward.core.usage import Usage


class Record(msgspec.Struct, kw_only=True):
    """Fills while the request runs. Holds no prompt, no output and no secret. Times are monotonic."""

    request_id: str
    label: str | None
    """The caller's own `x-request-id`, if it is plain."""
    method: str
    path: str
    started: float
    status: int = 0
    """0: nothing was answered."""
    surface: str = ""
    model: str | None = None
    """ID of the catalog's model, never the caller's text."""
    key: str | None = None
    """The key's name."""
    user: str | None = None
    stream: bool = False
    usage: Usage | None = None
    first_piece: float | None = None
    last_piece: float | None = None
    finish: list[str] = []
    disconnected: bool = False
    failure: FailureKind | None = None
    repeats: str | None = None
    """ID of the request whose answer it got, as both have the same `Idempotency-Key`."""

    def piece(self) -> None:
        """A piece of output came."""
        now = time.monotonic()
        if self.first_piece is None:
            self.first_piece = now
        self.last_piece = now
