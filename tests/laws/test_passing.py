"""Laws of what passes: no cut of a stream shows, and nothing changes but what has to."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from onward.dialects import DIALECTS
from onward.wire.body import decode_body
from onward.wire.passing.members import members
from onward.wire.passing.outgoing import outgoing, read_passed
from onward.wire.passing.stream import StreamWatch
from onward.wire.usage import usage_fields

TEXTS = st.text('ab "\\\n\r{}[]:é日😀', max_size=6) | st.sampled_from(
    ['"model":"theirs"', "data: [DONE]\n\n"]
)
MODELS = st.sampled_from(["theirs", "theirs", "theirs", "mine", "a/b", 'q"', None])
FINISHES = st.sampled_from([None, None, None, None, "", "stop", "length"])
COUNTS = st.integers(-1, 20) | st.none() | st.just(2**40)
REPORTS = st.fixed_dictionaries(
    {"prompt_tokens": COUNTS, "completion_tokens": COUNTS},
    optional={"prompt_tokens_details": st.fixed_dictionaries({"cached_tokens": COUNTS})},
)


@st.composite
def choices(draw: st.DrawFn) -> dict[str, Any]:
    """A piece of a choice, of completions or of chat."""
    choice: dict[str, Any] = {"index": draw(st.integers(0, 1))}
    text = draw(TEXTS)
    match draw(st.integers(0, 4)):
        case 0:
            choice["text"] = text
        case 1:
            choice["delta"] = {"content": None, "reasoning_content": text}
        case 2:
            choice["delta"] = {"tool_calls": [{"index": 0, "function": {"arguments": text}}]}
        case _:
            choice["delta"] = {"content": text}
    if draw(st.booleans()):
        choice["finish_reason"] = draw(FINISHES)
    return choice


@st.composite
def payloads(draw: st.DrawFn) -> dict[str, Any]:
    payload: dict[str, Any] = {"id": draw(st.sampled_from(["c", "c", "d"])), "model": draw(MODELS)}
    payload["choices"] = draw(st.lists(choices(), min_size=1, max_size=2) | st.just([]))
    report = draw(st.sampled_from(["none", "none", "none", "null", "usage"]))
    if report != "none":
        payload["usage"] = None if report == "null" else draw(REPORTS)
    if draw(st.integers(0, 3)) == 3:
        payload["provider"] = {"by": ['Acme "}]']}
    if draw(st.integers(0, 30)) == 30:
        payload["error"] = {"message": "no"}
    if draw(st.booleans()):
        payload = dict(reversed(payload.items()))
    return payload


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """A stream of events, most of them alike, in some spelling."""
    ends = st.sampled_from(draw(st.sampled_from([["\n"], ["\n"], ["\r\n"], ["\r"], ["\n", "\r\n"]])))
    separators = draw(st.sampled_from([(",", ":"), (", ", ": ")]))
    ascii_only = draw(st.booleans())
    colon = draw(st.sampled_from(["data: ", "data: ", "data:"]))
    lines: list[str] = []
    for _ in range(draw(st.integers(0, 4))):
        payload = draw(payloads())
        for _ in range(draw(st.integers(1, 8))):
            if payload["choices"] and draw(st.booleans()):
                delta = payload["choices"][0].get("delta") or payload["choices"][0]
                name = next((name for name in ("content", "text") if delta.get(name) is not None), None)
                if name:
                    delta[name] = draw(TEXTS)
            spelled = json.dumps(payload, separators=separators, ensure_ascii=ascii_only)
            if draw(st.integers(0, 15)) == 15:
                lines.append(": comment")
            if draw(st.integers(0, 15)) == 15:
                lines.append("event: message")
            lines += [colon + spelled, ""]
            if draw(st.integers(0, 15)) == 15:
                lines.append("")
    if draw(st.booleans()):
        lines += [colon + "[DONE]", ""]
    return "".join(line + draw(ends) for line in lines).encode()


def read(parts: list[bytes], **options: Any) -> tuple[bytes, dict[str, Any]]:
    watch = StreamWatch("mine", choices=1, **options)
    out = b"".join([watch.feed(part) for part in parts])
    out += watch.close()
    if watch.failure is None:
        out += watch.end(watch.usage or watch.estimate(3))
    return out, {
        "usage": watch.usage,
        "estimate": watch.estimate(3),
        "pieces": watch.output_events,
        "failure": watch.failure and (watch.failure.kind, watch.failure_text),
        "finished": watch.finished,
        "done": watch.done,
        "started": watch.started,
    }


def events(stream: bytes) -> list[Any]:
    """The JSON of the events, up to the end."""
    found: list[Any] = []
    for line in stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"):
        if line.startswith(b"data:"):
            data = line[5:].strip()
            if data == b"[DONE]":
                break
            found.append(json.loads(data))
    return found


@settings(max_examples=200, deadline=None)
@given(streams(), st.booleans(), st.booleans(), st.data())
def test_any_cut_of_a_stream_equals_the_whole(stream: bytes, show: bool, keep: bool, data: st.DataObject):
    whole = read([stream], show_usage=show, keep_usage=keep)
    blanks = [n + 2 for n in range(len(stream)) if stream.startswith(b"\n\n", n)]
    anywhere = st.integers(0, len(stream))
    between = st.sampled_from(blanks) if blanks else anywhere
    places = sorted(data.draw(st.lists(anywhere, max_size=6) | st.lists(between, max_size=3)))
    parts = [stream[a:b] for a, b in zip([0, *places], [*places, len(stream)], strict=True)]
    assert read(parts, show_usage=show, keep_usage=keep) == whole
    assert read([stream[n : n + 1] for n in range(len(stream))], show_usage=show, keep_usage=keep) == whole


@settings(max_examples=200, deadline=None)
@given(streams(), st.booleans())
def test_what_goes_on_is_what_came_but_model_and_usage(stream: bytes, show: bool):
    out, found = read([stream], show_usage=show)
    came = events(stream)
    if found["failure"]:
        came = came[: next((n for n, one in enumerate(came) if one.get("error")), len(came))]
    expected = []
    for one in came:
        reports = isinstance(one.get("usage"), dict)
        if reports and not one["choices"]:
            continue
        if one["model"] is not None:
            one["model"] = "mine"
        if reports:
            one["usage"] = None
        expected.append(one)
    shown = events(out)
    if show and not found["failure"]:
        told = shown.pop()
        assert told["choices"] == []
        told = told["usage"]
        usage = found["usage"] or found["estimate"]
        assert (told["prompt_tokens"], told["completion_tokens"]) == (
            usage.prompt_tokens,
            usage.completion_tokens,
        )
        assert found["usage"] or told == usage_fields(usage)
    if found["failure"] and not found["started"]:
        assert shown == []
    else:
        assert shown == expected
    assert out.count(b"data: [DONE]\n\n") == (0 if found["failure"] else 1)


def known(choice: dict[str, Any]) -> dict[str, Any]:
    """An empty reason is none."""
    return choice | ({"finish_reason": None} if choice.get("finish_reason") == "" else {})


@settings(max_examples=200, deadline=None)
@given(streams(), st.lists(st.integers(0, 2000), max_size=6))
def test_of_choices_alone_any_cut_is_the_same(stream: bytes, places: list[int]):
    """Where the choices alone pass nothing else does, and usage is our own (P-5)."""
    options: dict[str, Any] = {"show_usage": True, "head": b'"id":"own","model":"mine"'}
    out, found = whole = read([stream], **options)
    cuts = sorted(min(place, len(stream)) for place in places)
    parts = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert read(parts, **options) == whole
    assert read([stream[n : n + 1] for n in range(len(stream))], **options) == whole
    came = events(stream)
    if found["failure"]:
        came = came[: next((n for n, one in enumerate(came) if one.get("error")), len(came))]
    expected = [
        {"id": "own", "model": "mine", "choices": [known(choice) for choice in one["choices"]]}
        for one in came
        if one["choices"]
    ]
    assert b"Acme" not in out
    blocks = out.split(b"\n\n")
    assert blocks.pop() == b""
    assert all(block.startswith(b"data: ") and b"\n" not in block for block in blocks)
    shown = events(out)
    if not found["failure"]:
        assert shown.pop()["usage"] == usage_fields(found["usage"] or found["estimate"])
    assert shown == (expected if found["started"] or not found["failure"] else [])


NAMES = [
    "model",
    "prompt",
    "max_tokens",
    "stream",
    "stream_options",
    "n",
    "x",
    "n n",
    "é",
    "a\\b",
    '"',
    "user",
]
PLAIN = {"model": "m", "n": 1}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def spelled(draw: st.DrawFn, value: Any) -> str:
    """A value as JSON, in any spelling."""
    space = draw(st.sampled_from(["", "", " ", "\n\t"]))
    if isinstance(value, dict):
        parts = [f"{draw(spelled(name))}{space}:{space}{draw(spelled(item))}" for name, item in value.items()]
        return "{" + space + f"{space},{space}".join(parts) + space + "}"
    if isinstance(value, list):
        return "[" + space + f",{space}".join(draw(spelled(item)) for item in value) + space + "]"
    if isinstance(value, str) and value and draw(st.integers(0, 9)) == 9:
        return (
            '"'
            + "".join(f"\\u{ord(letter):04x}" if ord(letter) < 65536 else letter for letter in value)
            + '"'
        )
    return json.dumps(value, ensure_ascii=draw(st.booleans()))


BODIES = st.dictionaries(st.sampled_from(NAMES), JSON, max_size=6).map(
    lambda body: {**body, "n": 1, "model": "m"} if len(body) % 2 else PLAIN | body | PLAIN
)


@settings(max_examples=200, deadline=None)
@given(
    BODIES,
    st.sampled_from(["m", "their/name", 'é"']),
    st.none() | st.integers(1, 3),
    st.booleans(),
    st.data(),
)
def test_a_body_goes_on_as_it_came(
    body: dict[str, Any], model: str, limit: int | None, ask: bool, data: st.DataObject
):
    raw = data.draw(spelled(body)).encode()
    request = read_passed(DIALECTS["tokens"].passed["completions"], decode_body(raw), raw)
    sent = outgoing(request, model=model, max_tokens=limit, ask_usage=ask)
    expected = {**body, "model": model}
    given_limit = body.get("max_tokens")
    if limit is not None and (type(given_limit) is not int or not 1 <= given_limit <= limit):
        expected["max_tokens"] = limit
    options = body.get("stream_options")
    if ask and (options is None or isinstance(options, dict)):
        expected["stream_options"] = {**(options or {}), "include_usage": True}
    assert json.loads(sent) == expected
    # Every value that was not to change has its very bytes.
    before = {member.name: raw[member.value : member.end] for member in members(raw)}
    after = {member.name: sent[member.value : member.end] for member in members(sent)}
    for name, value in before.items():
        if json.dumps(expected[name]) == json.dumps(body[name]):  # to Python, true is 1
            assert after[name] == value
    if json.dumps(expected) == json.dumps(body):
        assert sent == raw


@settings(max_examples=100)
@given(st.dictionaries(TEXTS, JSON, max_size=5), st.data())
def test_members_are_found_where_they_are(body: dict[str, Any], data: st.DataObject):
    raw = data.draw(spelled(body)).encode()
    found = members(raw)
    assert {member.name: json.loads(raw[member.value : member.end]) for member in found} == body
    assert [member.name for member in found] == list(body)
