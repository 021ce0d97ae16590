"""The vocabulary of a model, out of the metadata of its GGUF."""

import re
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, Final, cast

import msgspec

from onward.rendering.byte_level import letters_to_bytes
from onward.rendering.end_tokens import end_tokens

SPACE_MARK: Final = "▁"
"""What SentencePiece vocabularies write for a space."""

_BYTE_TOKEN: Final = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_MARKUP: Final = frozenset("<>[]|｜")
_HTML: Final = re.compile(
    r"</?(table|caption|thead|tbody|tfoot|t[rhd]|h[1-6]|blockquote|strong|em|[biusa]|su[bp]|code|html|body|img"
    r"|span|bbox|[uo]l|li|div|iframe|footer)>"
)
"""Tags that some vocabularies (Gemma's) hold whole: text like any other."""


class TokenizerError(ValueError):
    """The tokenizer of a model cannot be built; the message says why."""


class TokenKind(IntEnum):
    """What a GGUF says a token is (`tokenizer.ggml.token_type`)."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


_SPACED: Final = {TokenKind.NORMAL, TokenKind.USER_DEFINED}


class Spelling(msgspec.Struct, frozen=True):
    """How the tokens of a vocabulary spell bytes."""

    byte_letters: bool
    """Every letter of a token is a byte (GPT-2's alphabet); else tokens are plain text with
    `SPACE_MARK` for a space and ``<0xE2>`` for a lone byte."""

    def bytes_of(self, text: str, kind: TokenKind) -> bytes:
        if kind is TokenKind.BYTE:
            lone = _BYTE_TOKEN.fullmatch(text)
            return bytes.fromhex(lone[1]) if lone else plain_bytes(text)
        if kind is TokenKind.NORMAL and self.byte_letters:
            data = letters_to_bytes(text)
            return plain_bytes(text) if data is None else data
        if kind in _SPACED and not self.byte_letters:
            text = text.replace(SPACE_MARK, " ")
        return plain_bytes(text)


def is_byte_token(text: str) -> bool:
    """Whether a token is the spelling of one lone byte, such as ``<0xE2>``."""
    return _BYTE_TOKEN.fullmatch(text) is not None


def plain_bytes(text: str) -> bytes:
    """UTF-8; bytes that the file held and that are no UTF-8 come back as they were."""
    return text.encode("utf-8", "surrogateescape")


class Vocabulary(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens by ID and all that is said about them."""

    tokens: list[str]
    spelling: Spelling
    kinds: dict[int, TokenKind]
    """Of the tokens that are not NORMAL."""
    bos_id: int | None = None
    eos_id: int | None = None
    pad_id: int | None = None
    add_bos: bool = False
    end_token_ids: frozenset[int] = frozenset()
    strip_after: frozenset[int] = frozenset()
    """Marks that swallow the white space behind them."""

    @property
    def markup(self) -> list[int]:
        """The tokens that no text between control tokens may become."""
        return [token for token, kind in self.kinds.items() if self._is_markup(token, kind)]

    @property
    def marks(self) -> dict[str, int]:
        """The spellings of markup that a text can hold: one letter alone is only a letter."""
        return {self.tokens[token]: token for token in self.markup if len(self.tokens[token]) > 1}

    @property
    def words(self) -> list[int]:
        """Tokens added by hand that are ordinary text, such as runs of spaces."""
        added = (token for token, kind in self.kinds.items() if kind is TokenKind.USER_DEFINED)
        return [
            token for token in added if self.tokens[token] and not self._is_markup(token, self.kinds[token])
        ]

    def _is_markup(self, token: int, kind: TokenKind) -> bool:
        if kind in {TokenKind.CONTROL, TokenKind.UNKNOWN} or token in (self.bos_id, self.eos_id):
            return True
        text = self.tokens[token]
        if kind is not TokenKind.USER_DEFINED or len(text) < 2 or _HTML.fullmatch(text):
            return False
        return not _MARKUP.isdisjoint(text)


def from_metadata(metadata: Mapping[str, Any], *, add_bos: bool, byte_letters: bool) -> Vocabulary:
    """The vocabulary in a GGUF. `add_bos` holds where the file does not say. TokenizerError."""
    read = MetadataReader(metadata)
    tokens = read.strings("tokens")
    count = len(tokens)
    known = {kind.value: kind for kind in TokenKind}
    listed = read.integers("token_type", count)
    kinds = {
        token: known.get(kind, TokenKind.UNUSED)
        for token, kind in enumerate(listed)
        if kind != TokenKind.NORMAL
    }
    ids = {text: token for token, text in enumerate(tokens)}
    sentencepiece = metadata.get("tokenizer.ggml.model") == "llama"
    bos = read.token_id("bos", count, 1 if sentencepiece else None)
    eos = read.token_id("eos", count, 2 if sentencepiece else None)
    named = [
        token
        for token in (eos, read.token_id("eot", count), read.token_id("eom", count))
        if token is not None
    ]
    ends = end_tokens(ids, named, read.token_id("fim_pad", count), added=kinds)
    for token in ends:
        kinds[token] = TokenKind.CONTROL
    wants_bos = read.flag("add_bos_token", default=add_bos)
    return Vocabulary(
        tokens=tokens,
        spelling=Spelling(byte_letters),
        kinds=kinds,
        bos_id=bos,
        eos_id=eos,
        pad_id=read.token_id("padding", count),
        add_bos=wants_bos and bos is not None,
        end_token_ids=ends,
        strip_after=_strip_after(metadata, kinds, ids),
    )


def _strip_after(
    metadata: Mapping[str, Any], kinds: dict[int, TokenKind], ids: dict[str, int]
) -> frozenset[int]:
    """Phi-3's marks swallow white space; a GGUF can tell them by the model's name alone."""
    name = str(metadata.get("general.name", "")).lower()
    if "phi-3" not in name and "phi3" not in name:
        return frozenset()
    marks = {TokenKind.CONTROL, TokenKind.USER_DEFINED, TokenKind.UNKNOWN}
    plain = {ids.get(text) for text in ("<unk>", "<s>", "<|endoftext|>")}
    return frozenset({token for token, kind in kinds.items() if kind in marks and token not in plain})


class MetadataReader:
    """Typed values of the tokenizer's part of a GGUF's metadata; TokenizerError if they are not."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self._metadata = metadata

    def strings(self, name: str) -> list[str]:
        values = self._list(name, lambda value: isinstance(value, str))
        if values is None:
            raise TokenizerError(f"the file has no tokenizer.ggml.{name}: it holds no vocabulary")
        return values

    def integers(self, name: str, least: int) -> list[int]:
        values = self._list(name, lambda value: isinstance(value, int)) or []
        if values and len(values) < least:
            raise TokenizerError(f"tokenizer.ggml.{name} has {len(values)} entries for {least} tokens")
        return values[:least]

    def numbers(self, name: str, least: int) -> list[float]:
        values = self._list(name, lambda value: isinstance(value, (int, float)))
        if values is None or len(values) < least:
            raise TokenizerError(f"tokenizer.ggml.{name} must have an entry for each of {least} tokens")
        return values[:least]

    def flag(self, name: str, *, default: bool) -> bool:
        value = self._metadata.get(f"tokenizer.ggml.{name}")
        return value if isinstance(value, bool) else default

    def token_id(self, name: str, count: int, default: int | None = None) -> int | None:
        value = self._metadata.get(f"tokenizer.ggml.{name}_token_id", default)
        return value if isinstance(value, int) and 0 <= value < count else None

    def _list(self, name: str, fits: Callable[[Any], bool]) -> list[Any] | None:
        values = self._metadata.get(f"tokenizer.ggml.{name}")
        if values is None:
            return None
        if isinstance(values, list):
            entries = cast("list[Any]", values)
            if not entries or fits(entries[0]):
                return entries
        raise TokenizerError(f"tokenizer.ggml.{name} is of the wrong type")
