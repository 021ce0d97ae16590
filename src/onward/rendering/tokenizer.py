"""Text to token IDs and back, as one model does it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tokenizers import Tokenizer as Merger

from onward.core.delta import TokenSpelling
from onward.rendering.backend import build
from onward.rendering.marks import Marks
from onward.rendering.vocabulary import TokenKind, Vocabulary

LOGPROB_FLOOR: Final = -9999.0
"""Log probabilities are never below this, so that they are finite in JSON."""

_WINDOW: Final = 65_536
_MARK_KINDS: Final = {TokenKind.CONTROL, TokenKind.UNKNOWN}


class Tokenizer:
    """A model's tokenizer.

    *Marks* are the tokens that are no text: control tokens, and tokens added by hand that look
    like markup (``<think>``). Whether their spellings in a text mean them is asked at each call;
    the text between two marks is always encoded as one run by a merger that does not know them.

    Safe to use in several threads; encoding lets other threads run.
    """

    def __init__(self, vocabulary: Vocabulary, merger: Merger, *, space_prefix: bool = False) -> None:
        self._vocabulary = vocabulary
        self._merger = merger
        self._space_prefix = space_prefix
        self.marks: Final = Marks(vocabulary.marks)
        self._strip_after = vocabulary.strip_after
        self._mark_ids = frozenset(self.marks.ids.values())
        self.vocab_size: Final = len(vocabulary.tokens)
        self.bos_id: Final = vocabulary.bos_id
        self.eos_id: Final = vocabulary.eos_id
        self.pad_id: Final = vocabulary.pad_id
        self.add_bos: Final = vocabulary.add_bos
        self.end_token_ids: Final = vocabulary.end_token_ids
        self.max_token_bytes: Final = self._longest_token()
        self._bytes: list[bytes | None] = [None] * self.vocab_size
        self._texts: list[str | None] = [None] * self.vocab_size
        self._spelled: dict[int, tuple[str, bytes | None]] = {}

    def encode(self, text: str, *, control: bool) -> list[int]:
        """The IDs of `text`.

        With `control`, the spellings of marks are read as these tokens; without, no text ever
        becomes one. Nothing is added before or after.
        """
        if not text:
            return []
        if not control:
            return self._merge(text)
        return self.encode_pieces(self.marks.split(text))

    def encode_pieces(self, pieces: Iterable[str | int]) -> list[int]:
        """The IDs of runs of text, in which no mark is seen, and of the marks between them."""
        ids: list[int] = []
        for piece in pieces:
            if isinstance(piece, int):
                ids.append(piece)
                continue
            if self._strip_after and ids and ids[-1] in self._strip_after:
                piece = piece.lstrip(" \t\n\v\f\r")  # noqa: PLW2901 - the run, less what the mark swallows
            if piece:
                ids += self._merge(piece)
        return ids

    def encode_prompt(self, text: str) -> list[int]:
        """The IDs of a text that a model is to continue.

        Spellings of control tokens mean them. BOS stands in front where the model wants it, and
        never twice.
        """
        ids = self.encode(text, control=True)
        if self.add_bos and self.bos_id is not None and (not ids or ids[0] != self.bos_id):
            ids.insert(0, self.bos_id)
        return ids

    def least_tokens(self, text: str, limit: int) -> int:
        """A lower bound for the number of tokens of `text`, cheap once it is above `limit`.

        A prompt that certainly does not fit can so be refused without the memory that its
        tokens would take.
        """
        size = len(text.encode("utf-8", "surrogatepass"))
        # Composing characters (NFC) leaves a third of the bytes at worst.
        bound = -(-size // (3 * self.max_token_bytes))
        if bound > limit or len(text) <= 2 * _WINDOW:
            return bound
        # A cut changes the tokens around it alone, so half of a window's count is a safe bound.
        halves = 0
        for start in range(0, len(text), _WINDOW):
            halves += len(self.encode(text[start : start + _WINDOW], control=True))
            if halves // 2 > limit:
                break
        return max(bound, halves // 2)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`: control tokens spelled out, invalid UTF-8 as U+FFFD.

        The space that some vocabularies put before a text's first word is taken away again.
        """
        ids = list(ids)
        pieces = [self.token_bytes(token) for token in ids]
        dropped = self.dropped_space(ids)
        if dropped is not None:
            pieces[dropped] = pieces[dropped][1:]
        return b"".join(pieces).decode("utf-8", "replace")

    def dropped_space(self, ids: Sequence[int]) -> int | None:
        """Which of `ids` begins with a space that was put before the text's first word, if any."""
        if not self._space_prefix:
            return None
        first = next((place for place, token in enumerate(ids) if token not in self._mark_ids), len(ids))
        return first if first < len(ids) and self.token_bytes(ids[first])[:1] == b" " else None

    def token_bytes(self, token: int) -> bytes:
        """A token's own bytes; of a control token its spelling in UTF-8.

        Nothing for an ID that the vocabulary lacks: models may have more rows than tokens.
        """
        if not 0 <= token < self.vocab_size:
            return b""
        data = self._bytes[token]
        if data is None:
            kind = self._vocabulary.kinds.get(token, TokenKind.NORMAL)
            data = self._bytes[token] = self._vocabulary.spelling.bytes_of(
                self._vocabulary.tokens[token], kind
            )
        return data

    def text_of(self, token: int) -> str | None:
        """A token's own text; None if its bytes are no complete UTF-8."""
        text = self._texts[token] if 0 <= token < self.vocab_size else ""
        if text is None:
            try:
                text = self._texts[token] = self.token_bytes(token).decode()
            except UnicodeDecodeError:
                return None
        return text

    def is_control(self, token: int) -> bool:
        """Whether the token is a control token: it has no text, only a name."""
        return self._vocabulary.kinds.get(token) in _MARK_KINDS

    def control_id(self, text: str) -> int | None:
        """The mark that `text` is exactly the spelling of."""
        return self.marks.ids.get(text)

    def spelling(self, token: int) -> str:
        r"""How a token is written out: its text, or ``bytes:\xf0\x9f`` if it is a part of one."""
        text = self.text_of(token)
        return text if text is not None else _spelled_bytes(self.token_bytes(token))

    def spell(self, token: int, logprob: float | None) -> TokenSpelling:
        """The token with its log probability (floored at -9999), as a caller reads it."""
        if logprob is not None and not logprob > LOGPROB_FLOOR:
            logprob = LOGPROB_FLOOR
        known = self._spelled.get(token)
        if known is None:
            data = None if self.is_control(token) else self.token_bytes(token)
            known = (self.spelling(token), data)
            if data or data is None:
                self._spelled[token] = known
        return TokenSpelling(token, known[0], known[1], logprob)

    def _merge(self, text: str) -> list[int]:
        # The batch form is the one that lets other threads run, and makes no offsets.
        return self._merger.encode_batch_fast([text], add_special_tokens=False)[0].ids

    def _longest_token(self) -> int:
        if self._vocabulary.spelling.byte_letters:
            longest = max(map(len, self._vocabulary.tokens), default=1)
            return max(longest, *(len(mark.encode("utf-8", "replace")) for mark in self.marks.ids), 1)
        return max((len(text.encode("utf-8", "replace")) for text in self._vocabulary.tokens), default=1)


def _spelled_bytes(data: bytes) -> str:
    """Printable ASCII as it is, other bytes in hexadecimal."""
    letters = [chr(byte) if 0x20 <= byte < 0x7F and byte != 0x5C else f"\\x{byte:02x}" for byte in data]
    return "bytes:" + "".join(letters)


def from_gguf(metadata: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer in the metadata of a GGUF. TokenizerError if it is of no known kind."""
    vocabulary, merger = build(metadata)
    prefix = metadata.get("tokenizer.ggml.model") == "llama"
    return Tokenizer(
        vocabulary,
        merger,
        space_prefix=prefix and metadata.get("tokenizer.ggml.add_space_prefix") is not False,
    )
