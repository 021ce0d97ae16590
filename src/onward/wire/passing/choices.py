"""The choices of a provider's answer, with nothing in them that OpenAI's API does not know (P-5, P-13)."""

from typing import Final

from onward.wire.passing.members import items, members, spliced

_KNOWN: Final = frozenset({"index", "text", "delta", "message", "logprobs", "finish_reason"})
_REASONS: Final = frozenset({b"null", b'"stop"', b'"length"', b'"content_filter"'})
_CALLS: Final = frozenset({b'"tool_calls"', b'"function_call"'})
"""Reasons of chat alone."""
_LENGTH: Final = (b'"max_', b'"model_', b'"limit')
_FILTER: Final = (b'"content', b'"safety', b'"refusal', b'"sensitive')
_NULL: Final = b"null"


def known_choices(raw: bytes) -> bytes:
    """The array of choices with the members that the API knows, a reason that it knows, and, of a completion,
    without log probabilities: nobody can ask for them where this is used.
    """
    if not raw.startswith(b"["):
        return raw
    edits = [(start, end, _choice(raw[start:end])) for start, end in items(raw) if raw[start:end][:1] == b"{"]
    changed = [one for one in edits if one[2] != raw[one[0] : one[1]]]
    return spliced(raw, changed) if changed else raw


def known_answer(raw: bytes, head: bytes) -> bytes:
    """An answer or event of these members (JSON without its braces), and of `raw` what is known of its
    choices, on one line.
    """
    choices = b"[]"
    for one in members(raw):
        if one.name == "choices":
            choices = raw[one.value : one.end]
    return b'{%b,"choices":%b}' % (head, known_choices(choices).replace(b"\n", b" "))


def _choice(raw: bytes) -> bytes:
    found = members(raw)
    names = {member.name for member in found}
    values = {member.name: raw[member.value : member.end] for member in found if member.name in _KNOWN}
    told = dict(values)
    if "text" in names and "logprobs" in told:
        told["logprobs"] = _NULL
    if "finish_reason" in told:
        told["finish_reason"] = _reason(told["finish_reason"], chat="text" not in names)
    if told == values and len(values) == len(found):
        return raw
    return b"{%b}" % b",".join([b'"%b":%b' % (name.encode(), value) for name, value in told.items()])


def _reason(said: bytes, *, chat: bool) -> bytes:
    if said in _REASONS or (chat and said in _CALLS):
        return said
    if said == b'""':
        return _NULL
    return (
        b'"length"'
        if said.startswith(_LENGTH)
        else b'"content_filter"'
        if said.startswith(_FILTER)
        else b'"stop"'
    )
