"""Whether a provider refused a request for what it says, by the words that providers have for that.

Statuses do not tell it: 400 is also a wrong field, 403 also a wrong key. So codes are looked at, and of
those providers that have none for it the sentence that they always send. What they mark otherwise, or say in
other words, counts as any other refusal.
"""

import json
import re
from typing import Any, Final, cast

from onward.core.failure import Failure, FailureKind

STATUSES: Final = frozenset({400, 403, 422, 451})
"""With which providers refuse content."""
_PASSED_ON: Final = frozenset({400, 422})
_WORDS: Final = (
    "contentfilter",  # Azure, Moonshot, Zhipu
    "contentpolicy",  # OpenAI, Azure
    "contentmanagementpolicy",
    "contentmoderation",
    "contentblocked",
    "contentviolation",
    "moderation",  # OpenAI's images, Mistral
    "responsibleaipolicy",  # Azure, inside
    "usagepolicy",
    "policyviolation",
    "invalidprompt",  # OpenAI's reasoning models
    "cyberpolicy",
    "biopolicy",
    "datainspection",  # Alibaba
    "sensitivecontent",  # ByteDance
    "inputtextsensitive",
    "prohibitedcontent",  # Google
    "promptblocked",
    "guardrail",  # Amazon
    "riskcontent",
    "safetyfilter",
)
"""In codes and types, without case and signs."""
_CODES: Final = frozenset({"1301", "1026", "1027"})
"""Numbers that mean it: Zhipu's, MiniMax's."""
_SENTENCES: Final = ("content exists risk", "output blocked by content filtering policy")
"""DeepSeek's, Anthropic's."""
_SIGN: Final = re.compile(r"[^a-z0-9]+")
_PLACES: Final = ("code", "type", "status", "reason", "status_code")
_LONGEST: Final = 200


def rejected(body: bytes) -> bool:
    """Whether the body of a refusal says that the content was refused."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return False
    listed = cast("list[Any]", value) if type(value) is list else [value]
    return any(rejects(one) for one in listed[:1])


def rejects(error: Any) -> bool:
    """The same of an error, or of the object around it."""
    fields = _fields(error)
    inner = [fields]
    for name in ("error", "innererror", "inner_error", "base_resp", "metadata"):
        inner.append(_fields(fields.get(name)))
        inner.append(_fields(_fields(fields.get("error")).get(name)))
    return any(_says(one) for one in inner)


def content_rejected(status: int | None = None) -> Failure:
    """The failure of a request whose content a provider refuses, in our own words."""
    return Failure(
        FailureKind.UPSTREAM_CONTENT_REJECTED,
        "The model's provider refuses what the request says, or what its answer would. Change the prompt.",
        upstream_status=status if status in _PASSED_ON else None,
    )


def _says(fields: dict[str, Any]) -> bool:
    if "content_filter_result" in fields or "content_filter_results" in fields or "contentFilter" in fields:
        return True  # Azure, Zhipu
    if "flagged_input" in fields:
        return True  # OpenRouter
    for name in _PLACES:
        code = fields.get(name)
        if type(code) is int or type(code) is str:
            plain = _SIGN.sub("", str(code)[:_LONGEST].lower())
            if plain in _CODES or any(word in plain for word in _WORDS):
                return True
    message = fields.get("message")
    return type(message) is str and message[:_LONGEST].strip().lower().startswith(_SENTENCES)


def _fields(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if type(value) is dict else {}
