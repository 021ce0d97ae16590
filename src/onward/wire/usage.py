"""Token counts as every surface shows them."""

from typing import Any

import msgspec

from onward.core.usage import Usage


def usage_fields(usage: Usage) -> dict[str, Any]:
    """The `usage` object."""
    fields: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }
    if usage.input_images:
        fields["media"] = {"input_images": usage.input_images}
    return fields


def usage_json(usage: Usage) -> bytes:
    """The `usage` object, encoded."""
    return msgspec.json.encode(usage_fields(usage))
