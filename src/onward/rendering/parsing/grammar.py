"""What a model's reply may look like, as data.

A reply is a sequence of *marks* and text. A grammar is a state machine over it: a state says
what text in it is (`Says`), its edges say which marks may come and where they lead. A mark that
has no edge is an error, and the reply is plain text from there on (TH-11).

A mark is a spelling. If the tokenizer has it as one control token, it is that token and nothing
else; if not, it is looked for in the text. So one grammar serves models that have
``<tool_call>`` as a token and models that spell it.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Final, TypeAlias

import msgspec

from onward.rendering.codecs.call import Codec, no_calls

END: Final = ""
"""The edge of a state for the end of the reply, by whichever end token."""


class Says(Enum):
    """What text in a state is."""

    CONTENT = "content"
    REASONING = "reasoning"
    SPACE = "space"
    """White space, which is dropped. Other text: `State.otherwise`."""
    LABEL = "label"
    """Held until the next edge, whose `Route` reads it: a channel, a recipient, a role."""
    CALL = "call"
    """Held until an edge with `close` lets a codec read it."""


class Trim(msgspec.Struct, frozen=True):
    """White space beside a mark that belongs to the framing, as the template writes it."""

    letters: str
    most: int = 1 << 30


NOTHING: Final = Trim("", 0)
NEWLINE: Final = Trim("\n", 1)
NEWLINES: Final = Trim("\n")
SPACES: Final = Trim(" \t\r\n")

Route: TypeAlias = Callable[[Sequence[str]], str]
"""From the pieces of a label (text, and the marks of `State.keeps`) to the name of a state.

Raises `CodecError` for a label that the format does not have.
"""


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """Where a mark leads."""

    to: str | Route
    trail: Trim = NOTHING
    """Dropped from the end of the text before the mark."""
    lead: Trim = NOTHING
    """Dropped from the beginning of the text behind the mark."""
    close: bool = False
    """The call that is held is complete: the codec reads it. If it cannot, that is an error."""
    lenient: bool = False
    """With `close`: what the codec cannot read is content, and no error (bare JSON)."""
    whole: bool = False
    """For `END`, with `close`: only at the model's own end. A call that is cut off there is text."""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a reply."""

    says: Says
    edges: Mapping[str, Edge] = {}
    """By mark; `END` for the end of the reply."""
    ends: bool = False
    """Whether the reply may end here. An edge for `END`, or for the end token, is taken first."""
    otherwise: str | None = None
    """Of SPACE: the state in which other text is read, from the white space on. None: an error."""
    openings: Mapping[str, str] = {}
    """Of SPACE: what a text may begin with (white space aside), and the state that holds it then."""
    keeps: frozenset[str] = frozenset()
    """Of LABEL and CALL: marks that are part of what is held. Of CONTENT and REASONING: marks that
    are text there (a model that thinks about a call writes its mark)."""


class Grammar(msgspec.Struct, frozen=True, kw_only=True):
    """The replies of a family."""

    start: str
    """The state in front of a reply. What a prompt has begun of it is read before the first token."""
    states: Mapping[str, State]
    codec: Codec = no_calls
    plain: frozenset[str] = frozenset()
    """Control tokens that are text to this grammar, such as a part of a longer mark."""
    foreign: frozenset[str] = frozenset()
    """Tokens that no reply may hold although the tokenizer takes them for text (``<｜User｜>``)."""


def content_only() -> Grammar:
    """The grammar of a model whose replies are text alone."""
    return Grammar(start="content", states={"content": State(says=Says.CONTENT, ends=True)})
