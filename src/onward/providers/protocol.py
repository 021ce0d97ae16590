"""The contract of a provider: a body goes out as it is, an answer comes back as it is.

A provider owns its tokens; nothing here knows what the bytes mean. Rules on what may be sent
again stand in `Provider.send`.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final, Protocol

import msgspec

from onward.core.failure import Failure


class Protocols(StrEnum):
    """Which API a provider speaks."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"


ROUTES: Final = {
    Protocols.OPENAI: ("completions", "chat"),
    Protocols.ANTHROPIC: ("messages",),
}
"""The surfaces of each."""


class ReplicaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A look at one of several addresses of a provider."""

    name: str
    """Its place among them, from 1: an address shows to operators alone."""
    in_flight: int
    """Requests of this process that it works on."""
    open: int
    busy: int
    waiting: int
    """As of the whole."""
    health: Any
    """The view of its breaker."""


class ProviderStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A look at a provider's connections."""

    open: int = 0
    """Connections."""
    busy: int = 0
    """Of them, those with a request on them."""
    waiting: int = 0
    """Requests that wait for a connection."""
    replicas: tuple[ReplicaStatus, ...] = ()
    """Where it has several addresses, each of them."""


class Answer(Protocol):
    """A provider's answer, of which the header has come.

    Leave with `close`: an answer that was not read to its end takes its connection along, which
    tells the provider to stop; one that was gives it back to the pool.
    """

    status: int
    headers: dict[bytes, bytes]
    """Names in lower case. Of repeated ones the last."""

    @property
    def ended(self) -> bool:
        """Whether all of it came well and was read, so that `read` would say so at once."""
        ...

    async def read(self) -> bytes:
        """The next bytes of the body: all that came since the last call, at least one; b"" at its end.

        What has come already is returned without suspending; cancelling it loses nothing. While nobody
        calls it for long the connection is not read, so that a slow reader slows the provider. Raises
        UPSTREAM_TIMEOUT where the first piece has not come `first_byte_timeout_s` after the request, or
        a later one after `idle_timeout_s` of silence; UPSTREAM_UNAVAILABLE when the body ends before its
        own end (its length, or its last chunk), or is compressed, which is never asked for.
        """
        ...

    async def hand_on(self, take: Callable[[bytes], bool], heard: Callable[[], bool] | None = None) -> bool:
        """Call `take` with what `read` would return, each time something comes, until it returns False:
        True then; False: the body has ended. Raises as `read` does, and what `take` raises.

        `take` is called where the bytes come in: nobody has to wake up for them. `heard`: whether it has
        taken something that counts since this was last asked, which is seldom. What does not is not the first
        piece, and of it alone UPSTREAM_TIMEOUT comes of `Bounds.unheard_s` too. None: every byte counts.
        """
        ...

    async def read_all(self, limit: int) -> bytes:
        """The whole body. Raises as `read` does, and UPSTREAM_UNAVAILABLE where it is longer."""
        ...

    def blame(self, failure: Failure) -> None:
        """Say what is wrong with it, before it is closed: for whoever counts the failures of its sender."""
        ...

    def close(self) -> None:
        """Let go of it. Any number of times."""
        ...


class Provider(Protocol):
    """One provider of the config."""

    name: str
    protocol: Protocols
    surfaces: frozenset[str]
    """Of ``completions``, ``chat``, ``messages``: the routes that it has."""

    async def send(self, path: str, body: bytes, headers: list[tuple[bytes, bytes]]) -> Answer:
        """POST a JSON body to `base_url` + `path` and wait for the header of the answer, of any status.

        Raises UPSTREAM_UNAVAILABLE (no connection, TLS, a broken or oversized header) and
        UPSTREAM_TIMEOUT (`first_byte_timeout_s`; `connect_timeout_s`, which a wait for a free connection
        counts towards as well). A pooled connection that
        turns out to be closed before anything was written on it is replaced; once a byte of a
        request was handed to the system it is never sent a second time. Cancelling it closes its
        connection. The key is added here and stands in no message.
        """
        ...

    def conceal(self, text: str) -> str:
        """`text`, which the provider may have written, without its key."""
        ...

    def status(self) -> ProviderStatus: ...

    async def close(self) -> None: ...
