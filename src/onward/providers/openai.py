"""Providers that speak OpenAI's API."""

from typing import Any

from onward.providers.http import HttpProvider
from onward.providers.protocol import Protocols


class OpenAiProvider(HttpProvider):
    """An OpenAI-shaped upstream. `api_key` None: it needs none."""

    def __init__(self, *, api_key: str | None, **options: Any) -> None:
        secrets = [] if api_key is None else [(b"authorization", b"Bearer " + api_key.encode())]
        super().__init__(Protocols.OPENAI, secrets, **options)
