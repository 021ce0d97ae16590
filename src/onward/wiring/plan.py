"""What an HTTP process is told, and what it tells: lines of JSON over its control socket."""

from typing import Any

import msgspec

from onward.wiring.config import Config

LONGEST_LINE = 16 * 1024 * 1024
"""Bytes of a plan, as JSON."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that an HTTP process needs to know, in a form that crosses to another process."""

    config: Config
    model_files: dict[str, str]
    """Deployment name to the path of its model."""
    sockets: dict[str, str]
    """Deployment name to the Unix socket of its engine."""
    number: int = 0
    """Of the plans of a server, in their order."""
    lease: str = ""
    """Under which name the process holds money and limits."""
    stores: str = ""
    """The Unix socket of the host's stores; empty: they are in the same process."""


# To an HTTP process.


class Begin(msgspec.Struct, frozen=True, tag="begin"):
    """The first word: serve by this plan."""

    plan: Plan


class Prepare(msgspec.Struct, frozen=True, tag="prepare"):
    """Make everything for another plan, and change nothing yet. Answered by `Prepared`."""

    plan: Plan


class Commit(msgspec.Struct, frozen=True, tag="commit"):
    """Serve by the plan that was prepared."""

    number: int


class Abort(msgspec.Struct, frozen=True, tag="abort"):
    """Forget the plan that was prepared."""

    number: int


class Reloaded(msgspec.Struct, frozen=True, tag="reloaded"):
    """What came of `Reload`: exactly one of these is set."""

    call: int
    answer: dict[str, Any] | None = None
    faults: list[str] = []


class Drain(msgspec.Struct, frozen=True, tag="drain"):
    """Take no more requests, and end."""


class Hurry(msgspec.Struct, frozen=True, tag="hurry"):
    """End what still runs."""


# From an HTTP process.


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """It accepts connections."""


class Prepared(msgspec.Struct, frozen=True, tag="prepared"):
    """What came of `Prepare`."""

    number: int
    fault: str | None = None
    """Why it cannot serve by this plan; None: it can."""


class Over(msgspec.Struct, frozen=True, tag="over"):
    """The last request that began by this plan has ended."""

    number: int


class Reload(msgspec.Struct, frozen=True, tag="reload"):
    """An operator asked this process to read the config again."""

    call: int


ToWorker = Begin | Prepare | Commit | Abort | Reloaded | Drain | Hurry
FromWorker = Ready | Prepared | Over | Reload

_decode_to = msgspec.json.Decoder(ToWorker).decode
_decode_from = msgspec.json.Decoder(FromWorker).decode


def line(word: ToWorker | FromWorker) -> bytes:
    """A word as it is sent."""
    return msgspec.json.encode(word) + b"\n"


def to_worker(text: bytes) -> ToWorker:
    """A line that a worker read."""
    return _decode_to(text)


def from_worker(text: bytes) -> FromWorker:
    """A line that the supervisor read."""
    return _decode_from(text)
