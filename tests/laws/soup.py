"""Replies that no model would write: sound ones, changed, and soups of marks, syntax and any token.

What is random all over breaks the format at once and tries nothing behind that, so most replies
are sound ones in which a few places are wrong.
"""

import random
from collections.abc import Iterator
from typing import Any

import msgspec

from onward.core.failure import Failure
from onward.core.request import ChatRequest, Message
from onward.rendering.families.native import NativeRenderer
from tests.laws.families import marks_of
from tests.unit.rendering.families.laws import HISTORIES
from tests.unit.rendering.families.oracle import TOOLS

PIECES = [
    " ",
    "\n",
    "\n\n",
    "a",
    "hello",
    "é😀",
    "<",
    "</",
    "{",
    "}",
    '{"name": "f", "arguments": {"a": 1}}',
    '{"name": "f", "parameters": {}}',
    '{"name": "f", "args": {"a": 1}}',
    "get_weather",
    "functions.f:0",
    "thought",
    "analysis",
    "assistant",
    "commentary to=functions.f ",
    "final",
    "json",
    "city",
    "[]",
    '[{"name": "f", "arguments": {}}]',
    "<function=f>\n<parameter=a>\n1\n</parameter>\n</function>",
    '<invoke name="f">\n<parameter name="a">1</parameter>\n</invoke>\n',
    '<｜DSML｜invoke name="f">\n',
    '<｜DSML｜parameter name="a" string="true">1</｜DSML｜parameter>\n',
    "</｜DSML｜invoke>\n",
    "call:f{a:1}",
    ";",
]
"""Text out of the syntax of calls, headers and channels."""
TEXTS = [
    "",
    "Hello, naïve 日本 😀!\n",
    '<think>\nSo.\n</think>\n\nI look.\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>',
]
"""Replies that some family writes, and that its template may not show."""
LONGEST = 400


class Soup:
    """Replies for one renderer, without end."""

    def __init__(self, renderer: NativeRenderer, seed: int) -> None:
        self._renderer = renderer
        self._rng = random.Random(seed)
        tokenizer = renderer.tokenizer
        self._size = tokenizer.vocab_size
        self._marks = [tokenizer.encode(mark, control=True) for mark in marks_of(renderer.family)]
        self._pieces = [tokenizer.encode(piece, control=True) for piece in PIECES]
        self._control = sorted(tokenizer.marks.ids.values())
        self._ends = renderer._stops
        self._sound = sound_replies(renderer)
        self._prefills = prefills(renderer)

    def replies(self, tokens: int) -> Iterator[tuple[list[int], dict[str, Any]]]:
        """Token IDs, and options of the reply, until there are so many tokens."""
        while tokens > 0:
            ids, options = self._reply(), self._options()
            begun = options["prefill"]
            if ids[: len(begun)] == begun:
                ids = ids[len(begun) :]
            tokens -= len(ids) + 1
            yield ids, options

    def _reply(self) -> list[int]:
        rng = self._rng
        kind = rng.random()
        if kind < 0.45:
            ids = self._changed()
        elif kind < 0.8:
            ids = self._any(rng.randint(0, 30))
        elif kind < 0.97:
            ids = [rng.randrange(-2, self._size + 2) for _ in range(rng.randint(0, 40))]
        else:
            ids = self._any(rng.randint(50, LONGEST // 3))
        if rng.random() < 0.9:
            ids = [token for token in ids if token not in self._ends]
        if rng.random() < 0.5:
            ids.append(rng.choice(sorted(self._ends)))
        return ids[-LONGEST:]

    def _changed(self) -> list[int]:
        rng = self._rng
        ids = list(rng.choice(self._sound))
        if rng.random() < 0.3:
            ids += rng.choice(self._sound)
        for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 5))):
            at = rng.randint(0, len(ids))
            wide = rng.randint(0, rng.choice((1, 1, 3, 20)))
            ids[at : at + wide] = rng.choice((self._any(1), self._any(1), ids[at : at + wide] * 2, []))
        return ids

    def _any(self, count: int) -> list[int]:
        rng = self._rng
        ids: list[int] = []
        for _ in range(count):
            kind = rng.random()
            if kind < 0.45:
                ids += rng.choice(self._marks)
            elif kind < 0.8:
                ids += rng.choice(self._pieces)
            elif kind < 0.87 and self._control:
                ids.append(rng.choice(self._control))
            else:
                ids.append(rng.randrange(-2, self._size + 2))
        return ids

    def _options(self) -> dict[str, Any]:
        rng = self._rng
        options: dict[str, Any] = {"prefill": rng.choice(self._prefills), "tools": rng.choice((TOOLS, []))}
        if rng.random() < 0.15:
            options["stops"] = rng.sample(["lo", "<", "é", "}\n", *marks_of(self._renderer.family)], 2)
        return options


def sound_replies(renderer: NativeRenderer) -> list[list[int]]:
    """What the family writes for the replies of the histories."""
    found = [renderer.tokenizer.encode(text, control=True) for text in TEXTS]
    kimi = renderer.family.name.startswith("kimi")
    for history in HISTORIES.values():
        messages = [_numbered(message) for message in history] if kimi else history
        if messages[-1].tool_calls and not renderer.family.tools:
            continue
        request = ChatRequest(model="m", messages=messages, tools=TOOLS, add_generation_prompt=False)
        found.append(renderer.build(request).ids()[1])
    return found


def _numbered(message: Message) -> Message:
    """With the IDs of calls that Kimi writes."""
    calls = [
        msgspec.structs.replace(call, id=f"functions.{call.name}:{place}")
        for place, call in enumerate(message.tool_calls)
    ]
    return msgspec.structs.replace(message, tool_calls=calls)


def prefills(renderer: NativeRenderer) -> list[list[int]]:
    """What prompts of the family may have begun of a reply."""
    found: list[list[int]] = [[]]
    for effort in (None, *renderer.family.efforts.values):
        request = ChatRequest(
            model="m", messages=[Message(role="user", content="Hi")], reasoning_effort=effort
        )
        try:
            found.append(renderer.render(request).prefill)
        except Failure:
            continue
    return [prefill for place, prefill in enumerate(found) if prefill not in found[:place]]
