"""`openai`, the default dialect: the whole OpenAI shape and the best of the others (O-1 to O-6)."""

from typing import Final

import msgspec

from onward.core.failure import FailureKind
from onward.dialects.fields import (
    ANY_MODEL,
    CONTINUE_OR_OPEN,
    CONVERSATION,
    LARGEST_IMAGE,
    LOGPROBS,
    MODEL,
    MOST_CHOICES,
    MOST_PARTS,
    MOST_TOKENS,
    NO_PROMPT,
    SAMPLING,
    SEPARATE_REASONING,
    STREAM,
    STREAM_OPTIONS_ALONE,
    TOP_NEEDS_LOGPROBS,
    TWO_PROMPTS,
)
from onward.dialects.messages import MESSAGES
from onward.dialects.passed import PASSED_MESSAGES, passed_surfaces
from onward.dialects.schema import (
    Action,
    Auth,
    Condition,
    Dialect,
    Field,
    Is,
    NamedTool,
    Passing,
    Product,
    Rule,
    Surface,
)
from onward.dialects.shared import FAILURES, NAME, REFERENCES
from onward.dialects.values import (
    Boolean,
    Choice,
    Images,
    Integer,
    ListOf,
    Object,
    PromptChunks,
    Prompts,
    Text,
    TokenIds,
    ToolChoice,
)

_NO_CONSTRAINTS: Final = (
    "Constrained decoding is not built yet: ask for JSON in the prompt and leave 'response_format' out."
)

_COMPLETIONS: Final = Surface(
    name="completions",
    method="POST",
    path="/completions",
    about="Continue prompts as they are; nothing is rendered.",
    fields=(
        MODEL,
        Field(
            name="prompt",
            value=Prompts(most=MOST_CHOICES),
            target="prompts",
            note="A text, token IDs, or an array of either. Token IDs are used as they are.",
            source="O-1",
        ),
        Field(
            name="prompt_chunks",
            value=PromptChunks(most=MOST_PARTS, images=Images(longest=LARGEST_IMAGE, remote=True)),
            note="Instead of `prompt`: one prompt in parts, token IDs and images in order.",
            source="O-3",
        ),
        Field(
            name="max_tokens",
            value=Integer(low=0, high=MOST_TOKENS),
            note="The most tokens to generate; absent: 16, or what the context has room for. 0 only with "
            "`echo`.",
            source="O-1",
        ),
        *SAMPLING,
        Field(
            name="best_of",
            value=Integer(low=1, high=20),
            note="Candidates for each prompt, of which the `n` likeliest are returned.",
            source="O-1",
        ),
        Field(
            name="logprobs",
            value=Integer(low=0, high=20),
            note="Log probabilities of the tokens and of this many alternatives.",
            source="O-1",
        ),
        Field(
            name="echo",
            value=Boolean(),
            default=False,
            note="Begin the text with the prompt; with `logprobs` the prompt is scored.",
            source="O-1",
        ),
        Field(
            name="suffix",
            value=Text(empty_is_absent=True),
            note="Text after the completion, for models that can fill in the middle.",
            source="O-1",
        ),
        *STREAM,
    ),
    rules=(
        NO_PROMPT,
        TWO_PROMPTS,
        Product(param="prompt", items="prompts", times=("n", "best_of"), most=MOST_CHOICES),
        Rule(
            param="max_tokens",
            refuse_if=(Condition("max_tokens", Is.EQUAL, 0), Condition("echo", Is.FALSE)),
            message="'max_tokens' must be at least 1; 0 is only taken together with 'echo'.",
        ),
        Rule(
            param="best_of",
            refuse_if=(Condition("best_of", Is.BELOW, other="n"),),
            message="'best_of' must be at least 'n'.",
        ),
        Rule(
            param="best_of",
            refuse_if=(Condition("stream", Is.TRUE), Condition("best_of", Is.ABOVE, other="n")),
            message="'best_of' above 'n' cannot be streamed: the best is known at the end only.",
        ),
        Rule(
            param="echo",
            refuse_if=(Condition("prompt_chunks", Is.GIVEN), Condition("echo", Is.TRUE)),
            message="'echo' and 'prompt_chunks' exclude each other: images have no text.",
        ),
        Rule(
            param="suffix",
            refuse_if=(Condition("prompt_chunks", Is.GIVEN), Condition("suffix", Is.GIVEN)),
            message="'suffix' and 'prompt_chunks' exclude each other.",
        ),
        Rule(
            param="suffix",
            refuse_if=(Condition("suffix", Is.GIVEN), Condition("echo", Is.TRUE)),
            message="'suffix' and 'echo' exclude each other.",
        ),
        STREAM_OPTIONS_ALONE,
    ),
    constants={"unset_max_tokens": 16},
)
_CHAT: Final = Surface(
    name="chat",
    method="POST",
    path="/chat/completions",
    about="Continue a conversation with the model's reply.",
    fields=(
        MODEL,
        *CONVERSATION,
        Field(
            name="max_completion_tokens",
            aliases=("max_tokens",),
            value=Integer(low=1, high=MOST_TOKENS),
            target="max_tokens",
            note="The most tokens to generate; absent: to the end of the context.",
            source="O-2",
        ),
        *SAMPLING,
        *LOGPROBS,
        Field(
            name="tool_choice",
            value=ToolChoice(),
            note="Whether the model calls a function: `none`, `auto`, `required`, or one by name.",
            source="O-2",
        ),
        Field(
            name="parallel_tool_calls",
            value=Boolean(),
            default=True,
            note="Whether a reply may hold several calls.",
            source="O-2",
        ),
        SEPARATE_REASONING,
        Field(
            name="response_format",
            value=Object(
                fields=(
                    Field(
                        name="type",
                        value=Choice(
                            values=("text",),
                            refused={"json_object": _NO_CONSTRAINTS, "json_schema": _NO_CONSTRAINTS},
                        ),
                        required=True,
                        note="Only `text` so far.",
                    ),
                )
            ),
            note="The form of the reply.",
            source="O-2",
        ),
        Field(
            name="modalities",
            value=ListOf(
                item=Choice(values=("text",), refused={"audio": "Leave 'audio' out."}), least=1, most=2
            ),
            note="Only `text`.",
            source="O-2",
        ),
        Field(name="audio", action=Action.REJECT, note="Replies are text: leave 'audio' out.", source="O-2"),
        Field(
            name="functions",
            action=Action.REJECT,
            note="Declare functions in 'tools'.",
            source="O-2",
        ),
        Field(name="function_call", action=Action.REJECT, note="Use 'tool_choice'.", source="O-2"),
        *STREAM,
    ),
    rules=(
        TOP_NEEDS_LOGPROBS,
        CONTINUE_OR_OPEN,
        NamedTool(),
        STREAM_OPTIONS_ALONE,
    ),
)

_MODELS: Final = Surface(
    name="models", method="GET", path="/models", about="The models that this key may use."
)
_ONE_MODEL: Final = Surface(name="model", method="GET", path="/models/{model}", about="One model.")
_TOKENIZE: Final = Surface(
    name="tokenize",
    method="POST",
    path="/tokenize",
    at_root=True,
    about="A text, or a conversation as it is rendered, as token IDs.",
    fields=(
        ANY_MODEL,
        Field(name="prompt", value=Text(), note="The text. Either `prompt` or `messages`.", source="O-4"),
        Field(
            name="add_special_tokens",
            value=Boolean(),
            default=True,
            note="Whether a text gets the BOS token of models that have one.",
            source="O-4",
        ),
        *[msgspec.structs.replace(field, required=False) for field in CONVERSATION],
    ),
    rules=(
        Rule(
            param="prompt",
            refuse_if=(Condition("prompt", Is.GIVEN), Condition("messages", Is.GIVEN)),
            message="'prompt' and 'messages' exclude each other.",
        ),
        Rule(
            param="prompt",
            refuse_if=(Condition("prompt", Is.ABSENT), Condition("messages", Is.ABSENT)),
            message="'prompt' (or 'messages') is required.",
        ),
        CONTINUE_OR_OPEN,
    ),
)
_DETOKENIZE: Final = Surface(
    name="detokenize",
    method="POST",
    path="/detokenize",
    at_root=True,
    about="Token IDs as text, control tokens spelled out.",
    fields=(
        ANY_MODEL,
        Field(
            name="tokens",
            value=TokenIds(most=4_000_000),
            required=True,
            note="The token IDs.",
            source="O-4",
        ),
    ),
)
_TOKENIZER_INFO: Final = Surface(
    name="tokenizer_info",
    method="GET",
    path="/tokenizer_info",
    at_root=True,
    about="The special tokens and the chat template of a model.",
)
_RENDER: Final = Surface(
    name="render",
    method="POST",
    path="/render",
    at_root=True,
    about="The prompt of a conversation: token IDs, their text, and the token IDs that end the reply.",
    fields=(ANY_MODEL, *CONVERSATION),
    rules=(CONTINUE_OR_OPEN,),
)

OPENAI: Final = Dialect(
    name="openai",
    title="OpenAI",
    about="The default. The whole OpenAI shape, and what the other dialects add to it.",
    surfaces={
        surface.name: surface
        for surface in (
            _COMPLETIONS,
            _CHAT,
            MESSAGES,
            _MODELS,
            _ONE_MODEL,
            _TOKENIZE,
            _DETOKENIZE,
            _TOKENIZER_INFO,
            _RENDER,
        )
    },
    errors=FAILURES,
    passed={
        **passed_surfaces(most_choices=MOST_CHOICES, best_of=Integer(low=1, high=20), lenient=False),
        "messages": PASSED_MESSAGES,
    },
    passing=Passing(final=frozenset({FailureKind.INVALID_REQUEST}), translates=True),
    auth=(Auth.BEARER, Auth.X_API_KEY),
    references=REFERENCES,
    headers=(NAME,),
    notes=(
        "`text_offset` counts Unicode code points into the choice's own `text`, from 0.",
        "Log probabilities are raw (temperature 1, before bias, penalties, truncation) and at least -9999.",
        "A partial character is spelled `bytes:\\xf0\\x9f` in `tokens` and `top_logprobs`.",
        "Tokens cut away by a stop string keep their entries in `token_ids` and `logprobs`; the text is cut.",
        "A trailing assistant message is continued only with `continue_final_message`.",
        "`max_completion_tokens` goes before `max_tokens`.",
        "Images are data URLs; addresses are fetched only where the server's config says so.",
        "Where `reasoning_content` is null the model reasoned nothing that could be told apart.",
    ),
)
