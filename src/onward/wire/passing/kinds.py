"""How the answers of each surface are watched that pass on as they are."""

from collections.abc import Callable
from typing import Final, Protocol, TypeVar

import msgspec

from onward.core.failure import Failure
from onward.core.usage import Usage
from onward.dialects.schema import Dialect
from onward.wire.passing.messages_stream import MessagesWatch
from onward.wire.passing.messages_whole import read_whole_message, with_message_usage
from onward.wire.passing.outgoing import Passed
from onward.wire.passing.shapes import MessagesShape, OpenAiShape, Shape
from onward.wire.passing.stream import StreamWatch
from onward.wire.passing.whole import WholeAnswer, read_whole, with_usage

T_co = TypeVar("T_co", covariant=True)


class Reading(Protocol[T_co]):
    """Reads a provider's stream; what comes out of it is bytes, or deltas."""

    failure_text: str
    """What the provider said where it failed, for the log."""

    @property
    def done(self) -> bool: ...

    @property
    def failure(self) -> Failure | None: ...

    @property
    def usage(self) -> Usage | None: ...

    @property
    def prompt_usage(self) -> Usage | None:
        """What was reported of the prompt ahead of all else."""
        ...

    @property
    def completion_tokens(self) -> int: ...

    def heard(self) -> bool:
        """Whether an event with data has come since this was last asked. Comments, and other lines that tell
        nothing, keep a connection awake and say nothing of an answer.
        """
        ...

    def feed(self, data: bytes) -> T_co: ...

    def close(self) -> T_co: ...


class Watching(Reading[bytes], Protocol):
    """A stream that passes on."""

    @property
    def finish(self) -> dict[int, str]:
        """Why each choice finished, by its index."""
        ...

    def end(self, usage: Usage) -> bytes: ...


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller sees of an answer besides its output."""

    usage: bool
    """Whether a usage event is due."""
    done: bytes
    """The event that ends a stream."""
    head: bytes | None = None
    """What an answer has before its choices, as members of JSON without its braces, where only the choices
    of the provider's go on (`Passing.choices_alone`); None: all of it does, as it came."""


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of one API."""

    watch: Callable[[Passed, Shown], Watching]
    whole: Callable[[bytes, str, bytes | None], WholeAnswer]
    """Reads a body under the caller's name of the model; `Shown.head`."""
    shape: Shape
    """Where text stands in its events, for a model's content filter."""
    with_usage: Callable[[bytes, Usage], bytes] | None = None
    """Tells the usage of a whole answer, where only some members of it pass."""
    fill_usage: Callable[[bytes, Usage], bytes] | None = None
    """Tells it where the answer has none, though its API always has."""
    asks_usage: bool = False
    """Whether a stream reports its usage only if it is asked to."""
    own_limit_field: bool = False
    """Whether providers call the limit by different names."""
    objects: tuple[str, str] | None = None
    """`object` of a whole answer and of an event."""
    headers: frozenset[bytes] = frozenset()
    """Headers of the caller that go on with the body."""


def _openai(passed: Passed, shown: Shown) -> StreamWatch:
    return StreamWatch(
        passed.model,
        show_usage=shown.usage,
        keep_usage=passed.continuous_usage,
        choices=passed.prompts * passed.n,
        done=shown.done,
        head=shown.head,
    )


def _messages(passed: Passed, shown: Shown) -> MessagesWatch:
    return MessagesWatch(
        passed.model,
        only_known=shown.head is not None,
        prompt_tokens=passed.size.likely,
    )


def _whole_message(body: bytes, model: str, head: bytes | None) -> WholeAnswer:
    return read_whole_message(body, model, only_known=head is not None)


def own_head(dialect: Dialect, surface: str, passed: Passed, request_id: str, created: int) -> bytes:
    """`Shown.head` as if a model of ours had answered. Messages, which have other members, have none."""
    objects = KINDS[surface].objects
    if objects is None:
        return b""
    ids = dialect.response.chat_id if surface == "chat" else dialect.response.completion_id
    head = {
        "id": ids + request_id,
        "object": objects[passed.stream],
        "created": created,
        "model": passed.model,
    }
    return msgspec.json.encode(head)[1:-1]


KINDS: Final = {
    "completions": Kind(
        watch=_openai,
        whole=read_whole,
        shape=OpenAiShape(),
        with_usage=with_usage,
        asks_usage=True,
        objects=("text_completion", "text_completion"),
    ),
    "chat": Kind(
        watch=_openai,
        whole=read_whole,
        shape=OpenAiShape(),
        with_usage=with_usage,
        asks_usage=True,
        own_limit_field=True,
        objects=("chat.completion", "chat.completion.chunk"),
    ),
    "messages": Kind(
        watch=_messages,
        whole=_whole_message,
        shape=MessagesShape(),
        fill_usage=with_message_usage,
        headers=frozenset({b"anthropic-version", b"anthropic-beta"}),
    ),
}
"""By the name of the surface."""
