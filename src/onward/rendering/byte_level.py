"""The alphabet in which byte-level BPE vocabularies write bytes."""

from typing import Final


def _alphabet() -> dict[int, str]:
    """Printable Latin-1 bytes stand for themselves, the others for code points from 256 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {byte: chr(byte) for byte in printable}
    others = (byte for byte in range(256) if byte not in letters)
    return letters | {byte: chr(256 + place) for place, byte in enumerate(others)}


BYTE_LETTERS: Final = _alphabet()
"""Byte to its letter, as GPT-2 defined it."""

_LETTER_BYTES: Final = {ord(letter): byte for byte, letter in BYTE_LETTERS.items()}


def letters_to_bytes(text: str) -> bytes | None:
    """The bytes that a token's letters stand for; None if it holds anything but these letters."""
    try:
        return bytes([_LETTER_BYTES[ord(letter)] for letter in text])
    except KeyError:
        return None
