"""What is read of a body that goes on to a provider: what admission and the price depend on.

Everything else of it is the provider's to read. The bounds here are not the provider's: they keep
the worst case of a request a number.
"""

from typing import Final

import msgspec

from onward.dialects.schema import Field, Surface
from onward.dialects.values import INT32_HIGH, Boolean, Integer, Object, Text, Value


def _field(name: str, value: Value, note: str, default: object = None) -> Field:
    return Field(name=name, value=value, note=note, default=default, source="K-1")


_LIMIT: Final = "The most tokens to generate. The price is held for it; absent: for `assumed_max_tokens`."
_MODEL: Final = Field(
    name="model",
    value=Text(shortest=1, longest=512),
    required=True,
    note="The model: an ID or an alias out of `/models`. It goes on by the provider's name.",
    source="K-3",
)
_STREAM: Final = (
    _field("stream", Boolean(), "Answer in pieces, as server-sent events.", default=False),
    _field(
        "stream_options",
        Object(
            fields=(
                _field("include_usage", Boolean(), "An event with token counts at the end.", default=False),
                _field(
                    "continuous_usage_stats", Boolean(), "Token counts on every event too.", default=False
                ),
            )
        ),
        "Options of a stream.",
    ),
    Field(
        name="user", value=Text(longest=1024), note="A label for the log line.", source="O-1", lenient=True
    ),
)


def passed_surfaces(*, most_choices: int, best_of: Integer, lenient: bool) -> dict[str, Surface]:
    """The surfaces that a provider may answer. `lenient`: apart from `model` and `n`, a value that we
    do not take counts as absent, and is the provider's to refuse.
    """
    completions = Surface(
        name="completions",
        method="POST",
        path="/completions",
        about="Read of a body that goes on to a provider.",
        fields=(
            _MODEL,
            _field("n", Integer(low=1, high=most_choices), "Choices for each prompt.", default=1),
            *_loose(
                lenient,
                msgspec.structs.replace(
                    _field("best_of", best_of, "Candidates for each prompt; all are counted."), guessed=True
                ),
                _field("max_tokens", Integer(low=0 if not lenient else 1, high=INT32_HIGH), _LIMIT),
                *_STREAM,
            ),
        ),
    )
    chat = Surface(
        name="chat",
        method="POST",
        path="/chat/completions",
        about="Read of a body that goes on to a provider.",
        fields=(
            _MODEL,
            _field("n", Integer(low=1, high=most_choices), "Choices.", default=1),
            *_loose(
                lenient,
                _field("max_completion_tokens", Integer(low=1, high=INT32_HIGH), _LIMIT),
                _field("max_tokens", Integer(low=1, high=INT32_HIGH), _LIMIT),
                *_STREAM,
            ),
        ),
    )
    return {"completions": completions, "chat": chat}


PASSED_MESSAGES: Final = Surface(
    name="messages",
    method="POST",
    path="/messages",
    about="Read of a body that goes on to a provider.",
    fields=(
        _MODEL,
        Field(
            name="max_tokens",
            value=Integer(low=0, high=INT32_HIGH),
            required=True,
            note="The most tokens to generate. The price is held for it.",
            source="K-10",
        ),
        _field("stream", Boolean(), "Answer in pieces, as server-sent events.", default=False),
        Field(
            name="metadata",
            value=Object(
                fields=(
                    Field(
                        name="user_id",
                        value=Text(longest=1024),
                        note="A label for the log line.",
                        lenient=True,
                    ),
                )
            ),
            note="About the request.",
            lenient=True,
        ),
    ),
)
"""What is read of a body of Anthropic's Messages that goes on to a provider that speaks it."""


def _loose(lenient: bool, *fields: Field) -> tuple[Field, ...]:
    if not lenient:
        return fields
    return tuple(_loosened(field) for field in fields)


def _loosened(field: Field) -> Field:
    value = field.value
    if isinstance(value, Object):
        value = Object(fields=tuple(_loosened(inner) for inner in value.fields))
    return msgspec.structs.replace(field, value=value, lenient=True)
