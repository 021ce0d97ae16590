"""UTF-8 that arrives in pieces."""

from codecs import utf_8_decode


class Utf8Decoder:
    """Text out of bytes, as far as it is certain.

    Bytes that may still become a character wait in `pending`. Each maximal invalid prefix
    becomes one U+FFFD, the same however the bytes were cut.
    """

    __slots__ = ("pending",)

    def __init__(self) -> None:
        self.pending = b""

    def push(self, data: bytes) -> str:
        """The text that is certain now."""
        if self.pending:
            data = self.pending + data
        text, used = utf_8_decode(data, "replace", False)
        self.pending = data[used:]
        return text

    @property
    def broken(self) -> int:
        """How many U+FFFD the pending bytes become if they are not continued."""
        return len(utf_8_decode(self.pending, "replace", True)[0])

    def continues(self, data: bytes) -> bool:
        """Whether `data` begins inside the character that is pending."""
        if not self.pending or not data:
            return bool(self.pending)
        whole = self.pending + data[:1]
        text, used = utf_8_decode(whole, "replace", False)
        return not text or (len(text) == 1 and used == len(whole))

    def flush(self) -> str:
        """What a character that never ended becomes: U+FFFD, or nothing if none is pending."""
        rest, self.pending = self.pending, b""
        return utf_8_decode(rest, "replace", True)[0]
