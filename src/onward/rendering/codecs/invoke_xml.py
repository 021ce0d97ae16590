"""Calls as ``<invoke name="f">`` with ``<parameter name="k">`` inside (MiniMax M2)."""

import re
from typing import Final

from onward.rendering.codecs.bare import BareCall, Scan
from onward.rendering.codecs.call import Body, Call, CodecError, Tools

# A value may hold such tags itself: its own end is the one that more of the calls follows, or nothing.
_VALUE_ENDS: Final = re.compile(
    r'</parameter>(?=\s*(?:<parameter name="|</invoke>\s*(?:<invoke name="|\Z)))',
)


def invoke_xml(body: Body, tools: Tools) -> list[Call]:
    """One call or several. A value is all that stands between its tags."""
    scan = Scan(body.text)
    calls: list[Call] = []
    while scan.take('<invoke name="'):
        call = BareCall(_quoted(scan), tools)
        while scan.take('<parameter name="'):
            parameter = _quoted(scan)
            end = _VALUE_ENDS.search(scan.text, scan.at)
            if end is None:
                raise CodecError("no </parameter>")
            call.add(parameter, scan.text[scan.at : end.start()])
            scan.at = end.end()
        if not scan.take("</invoke>"):
            raise CodecError("no </invoke>")
        calls.append(call.call())
    if not calls or not scan.over:
        raise CodecError("no <invoke>")
    return calls


def _quoted(scan: Scan) -> str:
    name = scan.name('">')
    if '"' in name:
        raise CodecError("a quotation mark in a name")
    return name
