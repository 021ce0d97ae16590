"""Images that requests name by their address, as those see it that need them."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol


class RemoteImageError(Exception):
    """An address that gives no image. The message goes on from its field's name: "is not fetched: …".

    It tells a caller nothing of our network: what is refused for its place, what is not there and
    what does not answer read the same.
    """

    def __init__(self, message: str, address: str = "", *, too_large: bool = False) -> None:
        super().__init__(message)
        self.address = address
        """Which of several it is."""
        self.too_large = too_large
        """Whether it is had, and is too much: too many bytes, or one image too many."""


class RemoteImages(Protocol):
    """Fetches images, guarded (G26)."""

    def fetched(self, addresses: Sequence[str]) -> AbstractAsyncContextManager[Mapping[str, bytes]]:
        """What lies at each of the addresses, which may repeat: bytes that may be an image.

        What is fetched at all, by everybody together, is bounded until the context is left: decode
        the images in it and keep no bytes. Raises `RemoteImageError`; `Failure` (ENGINE_FULL) when too
        many are fetched already. Cancelling it hangs up.
        """
        ...
