"""Building a prompt out of framing and text, so that text can never become a control token."""

from typing import Final, Self

from onward.core.request import ImagePart
from onward.rendering.tokenizer import Tokenizer


class PromptBuilder:
    """A prompt in the making.

    `frame` is for what the family itself writes: spellings of control tokens in it are these
    tokens. `text` is for what a caller wrote: nothing in it is. All that stands between two
    control tokens, of either sort, is encoded as one run.
    """

    def __init__(self, tokenizer: Tokenizer | None = None, *, end: str = "") -> None:
        """Without a tokenizer there is a text alone. `end`: a text that holds it ends the prompt."""
        self._tokenizer: Final = tokenizer
        self._end: Final = end
        self._pieces: list[str | int | ImagePart] = []
        self._run: list[str] = []
        self._written: list[str] = []
        self._reply: int | None = None
        self.closed = False
        """The end was met: nothing more is written."""
        self.images: list[tuple[int, ImagePart]] = []
        """Once `ids` was called: each image, and the number of the ID that it stands in front of."""

    def frame(self, text: str) -> Self:
        """Write framing."""
        if self._tokenizer is None:
            return self._write(text)
        for piece in self._tokenizer.marks.split(text):
            if isinstance(piece, str):
                self._write(piece)
            elif not self.closed:
                self._flush()
                self._pieces.append(piece)
                self._written.append(self._tokenizer.spelling(piece))
        return self

    def text(self, text: str) -> Self:
        """Write text that a caller sent."""
        if self._end and self._end in text and not self.closed:
            self._write(text[: text.index(self._end)])
            self.closed = True
        return self._write(text)

    def image(self, image: ImagePart) -> Self:
        """Put an image here. The tokens around it are framing."""
        if not self.closed:
            self._flush()
            self._pieces.append(image)
        return self

    def reply(self) -> Self:
        """A reply of the model begins here. Call it behind the header of every assistant message."""
        if not self.closed:
            self._flush()
            self._reply = len(self._pieces)
        return self

    @property
    def string(self) -> str:
        """The prompt as one text, control tokens spelled out."""
        return "".join(self._written)

    def ids(self) -> tuple[list[int], list[int]]:
        """The token IDs of the prompt, and those of them that belong to its last reply."""
        if self._tokenizer is None:
            raise ValueError("a prompt without a tokenizer has no IDs")
        self._flush()
        ids: list[int] = []
        run: list[str | int] = []
        for piece in self._pieces:
            if isinstance(piece, ImagePart):
                ids += self._tokenizer.encode_pieces(_merged(run))
                run.clear()
                self.images.append((len(ids), piece))
            else:
                run.append(piece)
        ids += self._tokenizer.encode_pieces(_merged(run))
        if self._reply is None:
            return ids, []
        begun = [piece for piece in self._pieces[self._reply :] if not isinstance(piece, ImagePart)]
        return ids, self._tokenizer.encode_pieces(begun)

    def _write(self, text: str) -> Self:
        if text and not self.closed:
            self._run.append(text)
            self._written.append(text)
        return self

    def _flush(self) -> None:
        if self._run:
            self._pieces.append("".join(self._run))
            self._run.clear()


def _merged(pieces: list[str | int]) -> list[str | int]:
    """Texts that follow each other as one run."""
    merged: list[str | int] = []
    for piece in pieces:
        if isinstance(piece, str) and merged and isinstance(merged[-1], str):
            merged[-1] += piece
        else:
            merged.append(piece)
    return merged
