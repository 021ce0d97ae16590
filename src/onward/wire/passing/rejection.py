"""Whether a provider refused a request for what it says, by the words that providers have for that.

Statuses do not tell it: 400 is also a wrong field, 403 also a wrong key. So codes are looked at, and of
those providers that have none for it the sentence that they always send. What they mark otherwise, or say in
other words, counts as any other refusal.
"""

from typing import Final

from onward.core.failure import Failure, FailureKind
from onward.wire.passing.said import Said

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
_FIELDS: Final = frozenset(
    {
        "content_filter_result",  # Azure
        "content_filter_results",
        "contentFilter",  # Zhipu
        "flagged_input",  # OpenRouter
    }
)
"""Members that only such a refusal has."""


def rejects(said: Said) -> bool:
    """Whether the content was refused."""
    return (
        not _FIELDS.isdisjoint(said.fields)
        or any(code in _CODES or any(word in code for word in _WORDS) for code in said.codes)
        or any(sentence.startswith(_SENTENCES) for sentence in said.sentences)
    )


def content_rejected(status: int | None = None) -> Failure:
    """The failure of a request whose content a provider refuses, in our own words."""
    return Failure(
        FailureKind.UPSTREAM_CONTENT_REJECTED,
        "The model's provider refuses what the request says, or what its answer would. Change the prompt.",
        upstream_status=status if status in _PASSED_ON else None,
    )
