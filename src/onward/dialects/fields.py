"""Fields and rules that several surfaces, and several dialects, have in common."""

from typing import Final

import msgspec

from onward.dialects.schema import Condition, Field, Is, Rule
from onward.dialects.values import (
    INT32_HIGH,
    INT64_HIGH,
    INT64_LOW,
    AnyObject,
    AnyOf,
    Boolean,
    Images,
    Integer,
    LogitBias,
    Messages,
    Number,
    Object,
    Stops,
    Text,
    TokenIds,
    Tools,
)

MOST_CHOICES: Final = 128
MOST_TOKENS: Final = INT32_HIGH
LARGEST_IMAGE: Final = 20 * 1024 * 1024
MOST_PARTS: Final = 1024
MOST_MESSAGES: Final = 16_384

MODEL: Final = Field(
    name="model",
    value=Text(shortest=1, longest=512),
    required=True,
    note="The model that answers: an ID or an alias out of `/models`.",
    source="O-1",
)
ANY_MODEL: Final = Field(
    name="model",
    value=Text(longest=512),
    default="",
    note="The model; the first one of the server when absent.",
    source="O-4",
)


def sourced(source: str, *fields: Field) -> tuple[Field, ...]:
    """Rows as another statement has them."""
    return tuple(msgspec.structs.replace(field, source=source) for field in fields)


def stream(*options: Field, note: str) -> tuple[Field, ...]:
    """Rows of a stream; `options`: those of `stream_options` besides `include_usage`; `note`: its own."""
    return (
        Field(
            name="stream",
            value=Boolean(),
            default=False,
            note="Answer in pieces, as server-sent events.",
            source="O-1",
        ),
        Field(
            name="stream_options",
            value=Object(
                fields=(
                    Field(
                        name="include_usage",
                        value=Boolean(),
                        default=False,
                        note="An event with token counts, directly before the end.",
                    ),
                    *options,
                )
            ),
            note=note,
            source="O-1",
        ),
    )


def temperature(value: Number) -> Field:
    """The row of `temperature`, with the bounds of `value`."""
    return Field(
        name="temperature",
        value=value,
        default=1.0,
        note="0 is greedy; higher is more varied.",
        source="O-1",
    )


def stop(value: Stops) -> Field:
    """The row of `stop`, with the bounds of `value`."""
    return Field(
        name="stop",
        value=value,
        note="Text or token IDs that end generation; not part of the output's text.",
        source="O-1",
    )


STREAM: Final = stream(
    Field(
        name="continuous_usage_stats",
        value=Boolean(),
        default=False,
        note="With `include_usage`: running token counts on every event.",
    ),
    note="Options of a stream; only together with `stream`.",
)
TOP_P: Final = Field(
    name="top_p",
    value=Number(low=0, high=1, above_low=True),
    default=1.0,
    note="Sample from the likeliest tokens whose probabilities add up to this.",
    source="O-1",
)
TOP_K: Final = Field(
    name="top_k",
    value=Integer(low=-1, high=INT32_HIGH, zero_if_below=0),
    default=0,
    note="Sample from this many of the likeliest tokens; -1 or 0: all.",
    source="O-3",
)
SEED: Final = Field(
    name="seed",
    value=Integer(low=INT64_LOW, high=INT64_HIGH),
    note="The same seed gives the same output; absent: different each time.",
    source="O-1",
)
SAMPLING: Final = (
    temperature(Number(low=0, high=2)),
    TOP_P,
    TOP_K,
    Field(
        name="min_p",
        value=Number(low=0, high=1),
        default=0.0,
        note="Drop tokens that are less likely than this share of the likeliest one.",
        source="O-3",
    ),
    Field(
        name="presence_penalty",
        value=Number(low=-2, high=2),
        default=0.0,
        note="Taken off the logit of every token that the output holds.",
        source="O-1",
    ),
    Field(
        name="frequency_penalty",
        value=Number(low=-2, high=2),
        default=0.0,
        note="Taken off a token's logit for each time the output holds it.",
        source="O-1",
    ),
    Field(
        name="repetition_penalty",
        value=Number(low=0, high=10, above_low=True),
        default=1.0,
        note="Weakens tokens that prompt or output hold; 1: off.",
        source="vLLM",
    ),
    Field(
        name="logit_bias",
        value=LogitBias(low=-100, high=100, most=1024),
        default={},
        note="Token IDs, as strings, to addends of their logits.",
        source="O-1",
    ),
    SEED,
    Field(
        name="n",
        value=Integer(low=1, high=MOST_CHOICES),
        default=1,
        note="Choices for each prompt.",
        source="O-1",
    ),
    stop(Stops(most=16, token_ids=256, longest=16_384)),
    Field(
        name="stop_token_ids",
        value=TokenIds(most=256),
        default=[],
        note="More token IDs that end generation, beside strings in `stop`.",
        source="vLLM",
    ),
    Field(
        name="min_tokens",
        value=Integer(low=0, high=MOST_TOKENS),
        default=0,
        note="No end token before this many tokens.",
        source="vLLM",
    ),
    Field(
        name="ignore_eos",
        value=Boolean(),
        default=False,
        note="Go on past the model's own end tokens.",
        source="vLLM",
    ),
    Field(
        name="return_token_ids",
        value=Boolean(),
        default=False,
        note="Give `token_ids` and `prompt_token_ids` on each choice.",
        source="O-3",
    ),
    Field(
        name="user",
        value=Text(longest=1024),
        note="A label for the log line.",
        source="O-1",
    ),
)
NO_PROMPT: Final = Rule(
    param="prompt",
    refuse_if=(Condition("prompts", Is.ABSENT), Condition("prompt_chunks", Is.ABSENT)),
    message="'prompt' (or 'prompt_chunks') is required.",
)
TWO_PROMPTS: Final = Rule(
    param="prompt_chunks",
    refuse_if=(Condition("prompts", Is.GIVEN), Condition("prompt_chunks", Is.GIVEN)),
    message="'prompt' and 'prompt_chunks' exclude each other: send one of them.",
)
STREAM_OPTIONS_ALONE: Final = Rule(
    param="stream_options",
    refuse_if=(Condition("stream_options", Is.GIVEN), Condition("stream", Is.FALSE)),
    message="'stream_options' is only taken together with 'stream': true.",
)

REASONING_EFFORT: Final = Field(
    name="reasoning_effort",
    value=AnyOf(values=(Text(longest=64), Number(), Boolean())),
    note="How much the model reasons; a value that the model does not take is refused with those it takes.",
    source="O-3",
)
"""Any value that some family takes (TH-3): which ones, the model's own renderer knows."""
LOGPROBS: Final = (
    Field(
        name="logprobs",
        value=Boolean(),
        default=False,
        note="Log probabilities of the generated tokens.",
        source="O-2",
    ),
    Field(
        name="top_logprobs",
        value=Integer(low=0, high=20),
        note="With `logprobs`: this many alternatives.",
        source="O-2",
    ),
)
"""Of chats."""
SEPARATE_REASONING: Final = Field(
    name="separate_reasoning",
    value=Boolean(),
    default=True,
    note="false: reasoning goes into `content`.",
    source="O-3",
)

CONVERSATION: Final = (
    Field(
        name="messages",
        value=Messages(
            roles=("system", "developer", "user", "assistant", "tool", "function"),
            most=MOST_MESSAGES,
            most_parts=MOST_PARTS,
            images=Images(longest=LARGEST_IMAGE, remote=True),
            thinking_blocks=True,
        ),
        required=True,
        note="The conversation so far. An assistant's `thinking_blocks` go back as they came: reasoning that "
        "its model signed, or sealed.",
        source="O-2",
    ),
    Field(
        name="tools",
        value=Tools(most=512),
        default=[],
        note="Functions that the model may call.",
        source="O-2",
    ),
    REASONING_EFFORT,
    Field(
        name="chat_template_kwargs",
        value=AnyObject(),
        default={},
        target="template_kwargs",
        note="Variables for the model's own template.",
        source="vLLM",
    ),
    Field(
        name="add_generation_prompt",
        value=Boolean(),
        note="Whether the reply is opened after the messages; true when absent.",
        source="O-2",
    ),
    Field(
        name="continue_final_message",
        value=Boolean(),
        default=False,
        note="Continue the last message instead of beginning a new one.",
        source="O-2",
    ),
)
TOP_NEEDS_LOGPROBS: Final = Rule(
    param="top_logprobs",
    refuse_if=(Condition("top_logprobs", Is.GIVEN), Condition("logprobs", Is.FALSE)),
    message="'top_logprobs' is only taken together with 'logprobs': true.",
)
CONTINUE_OR_OPEN: Final = Rule(
    param="continue_final_message",
    refuse_if=(Condition("continue_final_message", Is.TRUE), Condition("add_generation_prompt", Is.TRUE)),
    message="'continue_final_message' and 'add_generation_prompt' exclude each other.",
)
