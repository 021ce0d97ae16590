"""What the connections of a server have in common."""

from typing import Protocol

from onward.http.cycle import Connection, Cycle
from onward.http.head import Head
from onward.http.limits import Limits
from onward.http.refusal import Refuse


class Caller(Connection, Protocol):
    """A connection as its server sees it."""

    @property
    def is_new(self) -> bool:
        """Whether no request has come on it yet."""
        ...

    def check(self, now: float) -> None:
        """Hold the bounds on time; called for every connection, about once a second."""
        ...

    def shutdown(self) -> None:
        """The server ends: close, after the answer that is being made."""
        ...

    def abort(self) -> None:
        """Cut it."""
        ...


class Application(Protocol):
    """What answers requests."""

    def open(self, connection: Connection, head: Head, length: int | None, body: bytes | None) -> Cycle:
        """A request whose header has come, and maybe its whole body."""
        ...


class Shared:
    """What all connections of a server share."""

    def __init__(self, app: Application, limits: Limits, refuse: Refuse) -> None:
        self.app = app
        self.limits = limits
        self.refuse = refuse
        self.date = b""
        """The header field, as a line."""
        self.connections: set[Caller] = set()
        self.running: set[Cycle] = set()
        """Requests that are being answered."""
