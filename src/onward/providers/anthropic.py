"""Providers that speak Anthropic's Messages API. They stand in the catalog; nothing calls them yet (K-6)."""

from typing import Any

from onward.providers.http import HttpProvider
from onward.providers.protocol import Protocols

_VERSION = b"2023-06-01"


class AnthropicProvider(HttpProvider):
    """An Anthropic-shaped upstream."""

    def __init__(self, *, api_key: str | None, **options: Any) -> None:
        secrets = [(b"anthropic-version", _VERSION)]
        if api_key is not None:
            secrets.append((b"x-api-key", api_key.encode()))
        super().__init__(Protocols.ANTHROPIC, secrets, **options)
