"""Calls as ``<function=f>`` with ``<parameter=k>`` inside (Qwen3-Coder, Qwen3.5)."""

import re
from collections.abc import Mapping
from typing import Final

from onward.rendering.codecs.bare import BareCall, Scan
from onward.rendering.codecs.call import Body, Call, Codec, CodecError, Tools

# A value may hold such tags itself: its own end is the one that more of the call follows, or nothing.
_VALUE_ENDS: Final = re.compile(r"</parameter>(?=\s*(?:<parameter=|</function>\s*\Z))")


def function_xml(words: Mapping[str, str] | None = None) -> Codec:
    """A codec for one function; `words` as in `BareCall`."""

    def read(body: Body, tools: Tools) -> list[Call]:
        scan = Scan(body.text)
        if not scan.take("<function="):
            raise CodecError("no <function=")
        call = BareCall(scan.name(">"), tools, words)
        while scan.take("<parameter="):
            parameter = scan.name(">")
            end = _VALUE_ENDS.search(scan.text, scan.at)
            if end is None:
                raise CodecError("no </parameter>")
            value = scan.text[scan.at : end.start()]
            call.add(parameter, value.removeprefix("\n").removesuffix("\n"))
            scan.at = end.end()
        if not scan.take("</function>") or not scan.over:
            raise CodecError("no </function> at the end")
        return [call.call()]

    return read
