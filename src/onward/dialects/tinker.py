"""`tinker`: models that we render, tokenize, sample and parse ourselves (TC-1 to TC-12, TH-1 to TH-16).

One prompt, one choice; generation may run to the end of the context. What the API's pages do not
list is ignored, some of it listed here so that a reader need not wonder.
"""

from typing import Final

from onward.dialects.fields import (
    LARGEST_IMAGE,
    LOGPROBS,
    MOST_MESSAGES,
    MOST_PARTS,
    MOST_TOKENS,
    NO_PROMPT,
    REASONING_EFFORT,
    SEED,
    SEPARATE_REASONING,
    TOP_K,
    TOP_NEEDS_LOGPROBS,
    TOP_P,
    TWO_PROMPTS,
    sourced,
    stop,
    stream,
    temperature,
)
from onward.dialects.schema import (
    Action,
    Auth,
    Dialect,
    Field,
    NamedTool,
    Response,
    Stream,
    Surface,
)
from onward.dialects.shared import FAILURES, NAME, REFERENCES
from onward.dialects.values import (
    Boolean,
    Images,
    Integer,
    Messages,
    Number,
    PromptChunks,
    Prompts,
    Stops,
    Text,
    ToolChoice,
    Tools,
)

_STOP_BYTES: Final = 64 * 1024
_IMAGES: Final = Images(longest=LARGEST_IMAGE, remote=False)
_ROLES: Final = ("system", "user", "assistant", "tool")

_MODEL: Final = Field(
    name="model",
    value=Text(shortest=1, longest=512),
    required=True,
    note="The model to sample: a base model, a checkpoint, or both (see below).",
    source="TC-1",
)
_SAMPLING: Final = (
    *sourced("TC-5", temperature(Number(low=0)), TOP_P, TOP_K, SEED),
    *sourced("TC-6", stop(Stops(most=_STOP_BYTES, token_ids=_STOP_BYTES, longest=_STOP_BYTES))),
    *sourced("TC-7", *stream(note="Options of a stream; ignored without `stream`.")),
)


def _ignored(*names: str) -> tuple[Field, ...]:
    """Rows of fields that other dialects have and this one ignores (TC-12, TH-16)."""
    note = "Not a field of this API: ignored, as every field that is not listed."
    return tuple(Field(name=name, action=Action.IGNORE, note=note) for name in names)


_COMPLETIONS: Final = Surface(
    name="completions",
    method="POST",
    path="/completions",
    about="Continue one prompt as it is; nothing is rendered.",
    fields=(
        _MODEL,
        Field(
            name="prompt",
            value=Prompts(most=1),
            target="prompts",
            note="A text, or token IDs, which are used as they are. Either this or `prompt_chunks`.",
            source="TC-2",
        ),
        Field(
            name="prompt_chunks",
            value=PromptChunks(most=MOST_PARTS, images=_IMAGES),
            note="The prompt in parts, in order. The token parts hold what the model's format puts "
            "around each image. The answer has no `prompt_token_ids` then.",
            source="TC-10",
        ),
        Field(
            name="max_tokens",
            value=Integer(low=1, high=MOST_TOKENS),
            note="The most tokens to generate; absent, or too many: to the end of the context.",
            source="TC-4",
        ),
        *_SAMPLING,
        Field(
            name="return_token_ids",
            value=Boolean(),
            default=False,
            note="Give `token_ids` and `prompt_token_ids` on the choice.",
            source="TC-8",
        ),
        Field(
            name="logprobs",
            value=Integer(low=0, high=20),
            note="Log probabilities of the tokens and of this many alternatives.",
            source="TC-9",
        ),
        *_ignored("n", "best_of", "echo", "suffix", "logit_bias", "presence_penalty", "frequency_penalty"),
    ),
    rules=(NO_PROMPT, TWO_PROMPTS),
    constants={"clip_to_context": True},
)
_CHAT: Final = Surface(
    name="chat",
    method="POST",
    path="/chat/completions",
    about="Continue a conversation with the model's reply.",
    fields=(
        _MODEL,
        Field(
            name="messages",
            value=Messages(
                roles=_ROLES, most=MOST_MESSAGES, most_parts=MOST_PARTS, images=_IMAGES, nullable=_ROLES
            ),
            required=True,
            note="The conversation so far.",
            source="TH-1",
        ),
        Field(
            name="max_completion_tokens",
            aliases=("max_tokens",),
            value=Integer(low=1, high=MOST_TOKENS),
            target="max_tokens",
            note="The most tokens to generate; absent, or too many: to the end of the context.",
            source="TH-13",
        ),
        *sourced("TH-3", REASONING_EFFORT),
        *_SAMPLING,
        Field(
            name="tools",
            value=Tools(most=512),
            default=[],
            note="Functions that the model may call. Not for base models.",
            source="TH-5",
        ),
        Field(
            name="tool_choice",
            value=ToolChoice(),
            note="`none`, `auto`, `required`, or one function. The reply is checked: 422 if it breaks this.",
            source="TH-6",
        ),
        Field(
            name="parallel_tool_calls",
            value=Boolean(),
            default=True,
            note="Whether a reply may hold several calls. The reply is checked: 422 if it breaks this.",
            source="TH-6",
        ),
        *sourced("TH-13", *LOGPROBS),
        *sourced("TH-14", SEPARATE_REASONING),
        *_ignored("response_format", "n", "logit_bias", "presence_penalty", "frequency_penalty"),
    ),
    rules=(TOP_NEEDS_LOGPROBS, NamedTool()),
    constants={"clip_to_context": True},
)
_MODELS: Final = Surface(
    name="models", method="GET", path="/models", about="The models that this key may use."
)
_ONE_MODEL: Final = Surface(name="model", method="GET", path="/models/{model}", about="One model.")

TINKER: Final = Dialect(
    name="tinker",
    title="Tinker",
    about="The API of Tinker: one prompt or conversation to one choice, checkpoints at once, token IDs "
    "in and out, replies parsed strictly.",
    surfaces={surface.name: surface for surface in (_COMPLETIONS, _CHAT, _MODELS, _ONE_MODEL)},
    errors=FAILURES,
    response=Response(
        message_keys=("role", "content", "reasoning_content", "name", "tool_calls", "tool_call_id"),
        logprobs_keys=("content",),
    ),
    stream=Stream(
        first_content=None,
        delta_keys=("content", "reasoning_content"),
        error_keys=("message", "type"),
    ),
    auth=(Auth.BEARER,),
    references=REFERENCES,
    headers=(NAME,),
    notes=(
        "One choice, with `index` 0; an array that holds one prompt is that prompt, several are refused.",
        "A prompt and `max_tokens` beyond the context: generation ends at the context's end, with `length`.",
        "`content` may be null in any role, but it must be there, save beside calls or reasoning.",
        "`max_completion_tokens` goes before `max_tokens`, which the API's page does not list for chats.",
        "Images are data URLs only: no address is fetched.",
        "All `stop` strings together may have 64 KiB; their count has no limit of its own.",
        "Where usage was asked for, it is null on the events before its own.",
    ),
)
