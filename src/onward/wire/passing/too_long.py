"""Whether a provider refused a request because it is too long for the model's context, by the words that
providers have for that.

Its status (400, mostly) says no more than that something is wrong. Most have a code for it; of those that
have none the sentence is known that they always send. What says it otherwise counts as any other refusal.
"""

import re
from typing import Final

from onward.core.failure import Failure, FailureKind
from onward.wire.passing.said import Said

STATUSES: Final = frozenset({400, 413, 422})
"""With which providers refuse what is too long."""
_CODES: Final = (
    "contextlengthexceeded",  # OpenAI, and most who follow it
    "contextwindowexceeded",
    "modelcontextwindowexceeded",
    "exceedcontextsizeerror",  # llama.cpp
    "maxcontextlength",
    "prompttoolong",
    "promptistoolong",
    "inputtoolong",
)
"""In codes and types, without case and signs."""
_SENTENCES: Final = re.compile(
    r"maximum context length"  # OpenAI, vLLM, SGLang, DeepSeek
    r"|maximum context size"
    r"|longer than the model's context length"  # SGLang
    r"|exceeds? the (?:available|model's|maximum) context"  # llama.cpp, others
    r"|exceeds? the model's maximum"
    r"|^prompt is too long"  # Anthropic
    r"|^input is too long for requested model"  # Amazon
    r"|exceed context limit"  # Anthropic, with the output
    r"|context window"
    r"|input token count .{0,40}exceeds the maximum number of tokens"  # Google
    r"|tokens \+ `?max_new_tokens`? must be"  # text-generation-inference
    r"|the context of this model is \d+ tokens"  # another Onward
)


def says_too_long(said: Said) -> bool:
    """Whether the request is too long."""
    return any(code.startswith(_CODES) for code in said.codes) or any(
        _SENTENCES.search(sentence) for sentence in said.sentences
    )


def context_exceeded(status: int | None = None) -> Failure:
    """The failure of such a request, in our own words."""
    return Failure(
        FailureKind.UPSTREAM_CONTEXT_EXCEEDED,
        "The request is too long for the context of this model. Send a shorter prompt, or ask for fewer"
        " tokens.",
        upstream_status=status,
    )
