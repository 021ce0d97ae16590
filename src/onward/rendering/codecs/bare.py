"""Arguments whose values are bare text: what type each is, the tool's schema says."""

import re
from collections.abc import Mapping
from typing import Final

from onward.rendering.codecs.call import Call, CodecError, Tools, dumps, name_of

PYTHON_WORDS: Final[Mapping[str, str]] = {"True": "true", "False": "false", "None": "null"}
"""What templates write that make a value text as Python does."""
_NAME: Final = re.compile(r"[^\s<>{}()\[\]\"'=,;]+")
"""What a function may be called where nothing but its place says that this is its name."""


class BareCall:
    """A call that is read argument by argument."""

    def __init__(self, name: str, tools: Tools, words: Mapping[str, str] | None = None) -> None:
        """`words`: spellings of JSON values, where the schema has the parameter as no string.

        Raises `CodecError` for a name that is none.
        """
        if not _NAME.fullmatch(name):
            raise CodecError("no name")
        self._name: Final = name
        self._tools: Final = tools
        self._words: Final = words or {}
        self._arguments: Final[dict[str, str]] = {}

    def add(self, parameter: str, text: str) -> None:
        """An argument. Raises `CodecError` for a name that is none, or that was there before.

        Numbers and objects are kept as they are written.
        """
        parameter = name_of(parameter)
        if parameter in self._arguments:
            raise CodecError("an argument twice")
        value = self._tools.value(self._name, parameter, text)
        if value is not text:
            self._arguments[parameter] = text.strip()
            return
        types = self._tools.types(self._name, parameter)
        word = self._words.get(text)
        self._arguments[parameter] = dumps(text) if word is None or not types or "string" in types else word

    def call(self) -> Call:
        """The call, complete."""
        inner = ", ".join(f"{dumps(name)}: {value}" for name, value in self._arguments.items())
        return Call(self._name, "{" + inner + "}")


class Scan:
    """A text that is read from its beginning on, white space between tags aside."""

    def __init__(self, text: str) -> None:
        self.text: Final = text
        self.at = 0

    def take(self, tag: str) -> bool:
        """Whether `tag` is next; it is read then."""
        at = self._behind_space()
        if not self.text.startswith(tag, at):
            return False
        self.at = at + len(tag)
        return True

    def name(self, end: str) -> str:
        """The name that stands before the next `end`, which is read too. Raises `CodecError`."""
        at = self.text.find(end, self.at)
        name = self.text[self.at : at]
        if at < 0 or "<" in name or "\n" in name:
            raise CodecError(f"no {end} behind a name")
        self.at = at + len(end)
        return name

    @property
    def over(self) -> bool:
        """Whether nothing but white space is left."""
        return self._behind_space() == len(self.text)

    def _behind_space(self) -> int:
        at, text = self.at, self.text
        while at < len(text) and text[at].isspace():
            at += 1
        return at
