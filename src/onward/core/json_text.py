r"""JSON that comes in pieces, as the text that it means: ``"z\u00fcrich"`` says what ``"zürich"`` says.

Only escapes are read. They stand in strings alone, so the rest of it stays as it is.
"""

import re
from typing import Final

_ESCAPE: Final = re.compile(
    r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|\\u([0-9a-fA-F]{4})|\\([^u])", re.DOTALL
)
_FIRST_HALF: Final = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?")
_CUT: Final = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?")
_SIGNS: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
JSON_FIELDS: Final = frozenset({"arguments", "partial_json"})
"""Members of answers whose text is JSON."""


class JsonText:
    """Reads one JSON text. However it is cut, what comes out is the same when joined."""

    __slots__ = ("_cut",)

    def __init__(self) -> None:
        self._cut = ""
        """The beginning of an escape whose end has not come."""

    def push(self, piece: str) -> str:
        """What a piece adds."""
        if not self._cut and "\\" not in piece:
            return piece
        text, self._cut = self._cut + piece, ""
        out: list[str] = []
        position = 0
        while (at := text.find("\\", position)) >= 0:
            out.append(text[position:at])
            if _FIRST_HALF.fullmatch(text, at) or _CUT.fullmatch(text, at):
                self._cut = text[at:]
                return "".join(out)
            found = _ESCAPE.match(text, at)
            out.append(_meant(found) if found else "\\")
            position = found.end() if found else at + 1
        return "".join([*out, text[position:]])


def _meant(escape: re.Match[str]) -> str:
    first, second, code, sign = escape.groups()
    if first is not None:
        return chr(0x10000 + ((int(first, 16) - 0xD800) << 10) + int(second, 16) - 0xDC00)
    if code is not None:
        number = int(code, 16)
        return "\ufffd" if 0xD800 <= number <= 0xDFFF else chr(number)
    return _SIGNS.get(sign, sign)
