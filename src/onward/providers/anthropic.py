"""A provider that speaks Anthropic's Messages API."""

from typing import Final

from onward.providers.protocol import Answer, Protocols
from onward.providers.remote import RemoteProvider

VERSION: Final = (b"anthropic-version", b"2023-06-01")
"""Of the API, which every request has to name. It says how events look that we read."""


class AnthropicProvider(RemoteProvider):
    """Implements `Provider`. The key, where there is one, goes as `x-api-key`."""

    protocol = Protocols.ANTHROPIC
    key_header = (b"x-api-key", b"")

    async def send(self, path: str, body: bytes, headers: list[tuple[bytes, bytes]]) -> Answer:
        """See `Provider.send`. Names the version of the API, unless `headers` name one."""
        if all(name.lower() != VERSION[0] for name, _ in headers):
            headers = [VERSION, *headers]
        return await super().send(path, body, headers)
