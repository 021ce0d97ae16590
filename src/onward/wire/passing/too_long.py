"""Whether a provider refused a request because it is too long for the model's context, by the words that
providers have for that.

Its status (400, mostly) says no more than that something is wrong. Most have a code for it; of those that
have none the sentence is known that they always send. What says it otherwise counts as any other refusal.
"""

import json
import re
from typing import Any, Final, cast

from onward.core.failure import Failure, FailureKind

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
_SIGN: Final = re.compile(r"[^a-z0-9]+")
_PLACES: Final = ("code", "type", "status", "reason")
_LONGEST: Final = 400


def too_long(body: bytes) -> bool:
    """Whether the body of a refusal says that the request is too long."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return False
    listed = cast("list[Any]", value) if type(value) is list else [value]
    return any(says_too_long(one) for one in listed[:1])


def says_too_long(error: Any) -> bool:
    """The same of an error, or of the object around it."""
    outer = _fields(error)
    return any(_says(fields) for fields in (outer, _fields(outer.get("error"))))


def context_exceeded(status: int | None = None) -> Failure:
    """The failure of such a request, in our own words."""
    return Failure(
        FailureKind.UPSTREAM_CONTEXT_EXCEEDED,
        "The request is too long for the context of this model. Send a shorter prompt, or ask for fewer"
        " tokens.",
        upstream_status=status,
    )


def _says(fields: dict[str, Any]) -> bool:
    for name in _PLACES:
        code = fields.get(name)
        if type(code) is str and _SIGN.sub("", code[:_LONGEST].lower()).startswith(_CODES):
            return True
    message = fields.get("message")
    return type(message) is str and _SENTENCES.search(message[:_LONGEST].strip().lower()) is not None


def _fields(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if type(value) is dict else {}
