"""A provider that speaks OpenAI's API."""

from onward.providers.protocol import Protocols
from onward.providers.remote import RemoteProvider


class OpenAiProvider(RemoteProvider):
    """Implements `Provider`. The key, where there is one, goes as a bearer token."""

    protocol = Protocols.OPENAI
    key_header = (b"authorization", b"Bearer ")
