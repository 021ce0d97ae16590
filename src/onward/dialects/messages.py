"""The surface of Anthropic's Messages API, as every dialect that has it offers it.

Its answers and its failures have Anthropic's shape on every mount.
"""

from typing import Final

from onward.dialects.fields import (
    LARGEST_IMAGE,
    MODEL,
    MOST_MESSAGES,
    MOST_PARTS,
    MOST_TOKENS,
    TOP_K,
    TOP_P,
    sourced,
    temperature,
)
from onward.dialects.schema import Action, FailureShape, Field, Stream, Surface
from onward.dialects.values import (
    AnyOf,
    Boolean,
    Choice,
    ClientToolChoice,
    ClientTools,
    Images,
    Integer,
    ListOf,
    Number,
    Object,
    Stops,
    Text,
    Turns,
)

_LEAST_BUDGET: Final = 1024


def _ignored(name: str, note: str) -> Field:
    return Field(name=name, action=Action.IGNORE, note=note)


_SYSTEM_BLOCK: Final = Object(
    fields=(
        Field(name="type", value=Choice(values=("text",)), required=True, note="Only `text`."),
        Field(name="text", value=Text(), required=True, note="The text."),
    )
)
_THINKING: Final = Object(
    fields=(
        Field(
            name="type",
            value=Choice(values=("enabled", "disabled", "adaptive", "between_tools")),
            required=True,
            note="Whether to reason first.",
        ),
        Field(
            name="budget_tokens",
            value=Integer(low=_LEAST_BUDGET, high=MOST_TOKENS),
            note="About how many tokens of reasoning.",
        ),
        Field(
            name="display",
            value=Choice(values=("summarized", "omitted")),
            default="summarized",
            note="`omitted`: the reasoning's text is left out of the answer.",
        ),
    )
)
_OUTPUT: Final = Object(
    fields=(
        Field(
            name="effort",
            value=Choice(values=("low", "medium", "high", "xhigh", "max")),
            note="How much to reason.",
        ),
        Field(
            name="format",
            value=Object(
                fields=(
                    Field(
                        name="type",
                        value=Choice(
                            values=("text",),
                            refused={
                                "json_schema": "Constrained decoding is not built yet: ask for JSON in the "
                                "prompt and leave 'output_config.format' out."
                            },
                        ),
                        note="Only `text` so far.",
                    ),
                )
            ),
            note="The form of the reply.",
        ),
    )
)

MESSAGES: Final = Surface(
    name="messages",
    method="POST",
    path="/messages",
    about="Continue a conversation with the model's reply, in the shape of Anthropic's Messages API.",
    fields=sourced(
        "P-12",
        MODEL,
        Field(
            name="max_tokens",
            value=Integer(low=1, high=MOST_TOKENS),
            required=True,
            note="The most tokens to generate; too many: to the end of the context.",
        ),
        Field(
            name="messages",
            value=Turns(
                most=MOST_MESSAGES,
                most_parts=MOST_PARTS,
                images=Images(longest=LARGEST_IMAGE, remote=True),
            ),
            required=True,
            note="The conversation so far. An assistant's message at its end is continued.",
        ),
        Field(
            name="system",
            value=AnyOf(values=(Text(), ListOf(item=_SYSTEM_BLOCK, most=MOST_PARTS))),
            note="What the model is told before the conversation.",
        ),
        Field(
            name="stop_sequences",
            value=Stops(most=256, token_ids=0, longest=65_536),
            target="stop",
            note="Texts that end generation; not part of the output.",
        ),
        temperature(Number(low=0, high=1)),
        TOP_P,
        TOP_K,
        Field(
            name="tools",
            value=ClientTools(most=512),
            default=[],
            note="Functions that the model may call: `name`, `description`, `input_schema`.",
        ),
        Field(
            name="tool_choice",
            value=ClientToolChoice(),
            note="Whether the model calls a function, and with `disable_parallel_tool_use` at most one. The "
            "reply is checked: 422 if it breaks this.",
        ),
        Field(
            name="thinking",
            value=_THINKING,
            note="Whether and how much to reason, as far as the model has a choice.",
        ),
        Field(name="output_config", value=_OUTPUT, note="`effort`, as far as the model has a choice."),
        Field(
            name="metadata",
            value=Object(
                fields=(Field(name="user_id", value=Text(longest=1024), note="A label for the log line."),)
            ),
            note="`user_id`: a label for the log line.",
        ),
        Field(name="stream", value=Boolean(), default=False, note="Answer in pieces, as server-sent events."),
        _ignored("cache_control", "Here and on blocks: prompts are cached without being asked."),
        _ignored("service_tier", "There is one tier."),
    ),
    constants={"clip_to_context": True},
    failures=FailureShape(
        types={
            400: "invalid_request_error",
            401: "authentication_error",
            402: "billing_error",
            403: "permission_error",
            404: "not_found_error",
            408: "timeout_error",
            413: "request_too_large",
            429: "rate_limit_error",
            500: "api_error",
            503: "overloaded_error",
            504: "timeout_error",
            529: "overloaded_error",
        },
        other_4xx="invalid_request_error",
        other_5xx="api_error",
        header="request-id",
    ),
    stream=Stream(
        done=b"",
        keep_alive=b'event: ping\ndata: {"type":"ping"}\n\n',
        error_keys=("type", "message"),
    ),
    notes=(
        "A header `request-id` repeats `x-request-id`. Headers of the API's version and betas are not read.",
        (
            "Messages of one role in a row are one message. Texts of a user, `system` and results stand "
            "on lines of their own."
        ),
        "An assistant's text at the end of `messages` is continued: the answer brings what follows it.",
        (
            "`thinking` and `output_config.effort` are wishes: the nearest that a model takes counts, a "
            "model without a choice ignores them. A budget of up to 4096 tokens is `low`, of up to 16384 "
            "`medium`, more is `high`."
        ),
        "Reasoning of models served here is not signed: its `signature` is empty, and any is taken back.",
        "A failed call (`is_error`) reads to a model served here as any other: say in its text what failed.",
        (
            "`stop_reason` is `model_context_window_exceeded` where the context ended before `max_tokens`, "
            "and `refusal` where a filter ended the reply."
        ),
        "Silence is broken by the event `ping`, which also follows `message_start`.",
        "A call whose arguments are no JSON object has an empty `input` in an unstreamed answer.",
    ),
)
