"""A provider's unstreamed answer on its way to the caller: read for usage, its model renamed."""

from functools import lru_cache
from typing import Any, Final

import msgspec

from onward.core.failure import Failure, FailureKind
from onward.core.usage import Usage
from onward.wire.passing.choices import known_answer
from onward.wire.passing.events import Choice, NoEvent, is_error, new_text, read_payload
from onward.wire.passing.members import spliced, value_end, value_start, with_model
from onward.wire.passing.refusal import stream_error
from onward.wire.passing.usage import likely_tokens, outside_ascii, read_usage
from onward.wire.usage import usage_json

_MODEL: Final = b'"model"'
_LONGEST_KNOWN: Final = 128
"""Letters of a provider's name for a model that is kept in mind."""
_BACKSLASH: Final = 0x5C
"""As a number: to look for a byte takes a fraction of what it takes to look for bytes."""


class WholeAnswer(msgspec.Struct, frozen=True):
    """An answer that may go on."""

    body: bytes
    usage: Usage | None
    """As the provider reports it; None: nothing that can be believed."""
    completion_tokens: int
    """As reported, or a guess from the size of the choices, for an answer without usage."""
    finish: list[str]
    """Why each choice finished, as far as it says."""

    def estimate(self, prompt_tokens: int) -> Usage:
        """What is assumed where the provider reports no usage (K-9)."""
        return Usage(prompt_tokens, self.completion_tokens)


def read_whole(body: bytes, model: str, head: bytes | None = None) -> WholeAnswer:
    """The answer in the bytes of a body, whatever its content type says.

    The bytes stay as they are, save the value of `model`. `head`: as of `Shown`; `with_usage` tells usage
    then. Raises `Failure` (UPSTREAM_UNAVAILABLE, or
    what an error with a good status says) for anything that is no answer of completions or chat. What
    the provider said then stands in `body`, for the log.
    """
    try:
        answer = read_payload(body)
    except NoEvent:
        raise _no_answer() from None
    if answer.error or not answer.choices:
        raise stream_error(answer.error) if is_error(answer) else _no_answer()
    usage = read_usage(answer.usage)
    likely = usage.completion_tokens if usage is not None else 0
    if not likely:
        likely = _likely_tokens(answer.choices)
        if likely:
            usage = None  # a text of no tokens
    return WholeAnswer(
        _shown(body, answer.model, model) if head is None else known_answer(body, head),
        usage,
        likely,
        [choice.finish_reason for choice in answer.choices if type(choice.finish_reason) is str],
    )


def with_usage(body: bytes, usage: Usage) -> bytes:
    """An answer that has no usage, with what the request is charged for."""
    return b'%b,"usage":%b}' % (body[:-1], usage_json(usage))


def _shown(body: bytes, named: Any, model: str) -> bytes:
    if named == model:
        return body
    escapes = _BACKSLASH in body and body.find(b"\\u00") >= 0
    if named is None or escapes or body.count(_MODEL) != 1:
        return with_model(body, msgspec.json.encode(model))
    # the only one is the answer's own
    if type(named) is str and len(named) <= _LONGEST_KNOWN:
        made = body.replace(_field(named), _field(model), 1)
        if made != body:
            return made
    start = value_start(body, body.find(_MODEL) + len(_MODEL))
    return spliced(body, [(start, value_end(body, start), msgspec.json.encode(model))])


@lru_cache(maxsize=1024)
def _field(model: str) -> bytes:
    """`model` and its value, as most providers write it."""
    return b"%b:%b" % (_MODEL, msgspec.json.encode(model))


def _likely_tokens(choices: list[Choice]) -> int:
    size = other = 0
    for choice in choices:
        text = new_text(choice).encode("utf-8", "replace")
        size += len(text)
        other += outside_ascii(text)
    return likely_tokens(size, other)


def _no_answer() -> Failure:
    return Failure(
        FailureKind.UPSTREAM_UNAVAILABLE,
        "The model's provider answered with something that is no answer. Send the request again.",
    )
