r"""Calls as DeepSeek V3.2 and later write them: invocations with typed parameters.

``<｜DSML｜invoke name="f">``, ``<｜DSML｜parameter name="k" string="true">v</｜DSML｜parameter>`` for each of
them, ``</｜DSML｜invoke>``; `string` says whether a value is text or JSON. White space between tags is free.
"""

import re
from typing import Final

from onward.rendering.codecs.call import Body, Call, Codec, CodecError, Tools, dumps, loads, name_of

DSML: Final = "｜DSML｜"


def dsml_calls(prefix: str = DSML) -> Codec:
    """A codec for the invocations of one block. `prefix`: what stands in front of every tag's name."""
    tag = re.escape(prefix)
    opening = re.compile(rf'\s*<{tag}invoke\s+name="([^"]*)"\s*>')
    closing = re.compile(rf"\s*</{tag}invoke>")
    parameter = re.compile(
        rf'\s*<{tag}parameter\s+name="([^"]*)"\s+string="(true|false)"\s*>(.*?)</{tag}parameter>', re.DOTALL
    )

    def read(body: Body, _: Tools) -> list[Call]:
        text = body.text
        calls: list[Call] = []
        at = 0
        while text[at:].strip():
            begun = opening.match(text, at)
            if begun is None:
                raise CodecError("no invocation")
            at = begun.end()
            values: dict[str, str] = {}
            while (found := parameter.match(text, at)) is not None:
                name, is_text, value = found.groups()
                if name in values:
                    raise CodecError("a parameter twice")
                values[name] = dumps(value) if is_text == "true" else _json(value)
                at = found.end()
            ended = closing.match(text, at)
            if ended is None:
                raise CodecError("an invocation without an end")
            at = ended.end()
            arguments = ", ".join([f"{dumps(name)}: {value}" for name, value in values.items()])
            calls.append(Call(name_of(begun[1]), f"{{{arguments}}}"))
        if not calls:
            raise CodecError("a block without invocations")
        return calls

    return read


def _json(text: str) -> str:
    loads(text)
    return text.strip()
