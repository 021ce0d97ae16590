"""Bodies on their way to a provider: the caller's bytes, save what has to be changed."""

import difflib
import json
from typing import Any

import pytest

from onward.core.failure import Failure, FailureKind
from onward.dialects import DIALECTS
from onward.dialects.passed import PASSED_MESSAGES
from onward.wire.body import decode_body
from onward.wire.passing.outgoing import Passed, outgoing, read_passed

OPENAI, TOKENS = DIALECTS["openai"].passed, DIALECTS["tokens"].passed
SPACED, COMPACT = (", ", ": "), (",", ":")


def passed(raw: bytes | dict[str, Any], surface: str = "completions", dialect: Any = TOKENS) -> Passed:
    raw = json.dumps({"model": "m", **raw}).encode() if isinstance(raw, dict) else raw
    return read_passed(dialect[surface], decode_body(raw), raw)


def refusal(raw: bytes | dict[str, Any], surface: str = "completions", dialect: Any = TOKENS) -> Failure:
    with pytest.raises(Failure) as caught:
        passed(raw, surface, dialect)
    assert caught.value.kind is FailureKind.INVALID_REQUEST
    return caught.value


def changes(before: bytes, after: bytes) -> list[tuple[bytes, bytes]]:
    """What was replaced by what."""
    matcher = difflib.SequenceMatcher(None, before.decode(), after.decode(), autojunk=False)
    return [
        (matcher.a[i:j].encode(), matcher.b[k:m].encode())
        for tag, i, j, k, m in matcher.get_opcodes()
        if tag != "equal"
    ]


BODIES = [
    b'{"model":"m","prompt":"x"}',
    b' {\n "prompt" : [1, 2,3 ] ,\t"model" : "m" } \n',
    b'{"prompt":[[1,2],[3]],"echo":true,"logprobs":2,"encoding_format":null,"model":"m"}',
    b'{"prompt":"\\"model\\":\\"m\\" \\\\","unknown":{"model":"m","n":[{}]},"model":"m","temperature":1e-1}',
    b'{"m\\u006fdel":"m","pr\\u006fmpt":"\xc3\xa9\\u00e9"}',
    b'{"model":"\\u006d","prompt":"{}[],:","user":"\\u0041"}',
]


@pytest.mark.covers("K-1", "O-1")
@pytest.mark.parametrize("raw", BODIES)
def test_g34_g11_nothing_changes_but_the_model(raw: bytes) -> None:
    request = passed(raw)
    assert outgoing(request, model="m") == raw
    sent = outgoing(request, model="their/name")
    assert json.loads(sent) == {**json.loads(raw), "model": "their/name"}
    old = b'"\\u006d"' if b'"\\u006d"' in raw else b'"m"'
    place = raw.rindex(old)
    assert sent == raw[:place] + b'"their/name"' + raw[place + len(old) :]


@pytest.mark.covers("K-1")
@pytest.mark.parametrize("separators", [SPACED, COMPACT])
@pytest.mark.parametrize(
    ("body", "lowered", "change"),
    [
        ({"max_tokens": 100}, 7, [(b"100", b"7")]),
        ({"max_tokens": 100}, 100, []),
        ({"max_tokens": 100}, 200, []),
        ({"prompt": "x"}, None, []),
    ],
)
def test_a_limit_is_lowered_and_never_raised(
    body: dict[str, Any], lowered: int | None, change: list[Any], separators: tuple[str, str]
) -> None:
    raw = json.dumps({"model": "m", "a": 1, **body, "b": 2}, separators=separators).encode()
    assert changes(raw, outgoing(passed(raw), model="m", max_tokens=lowered)) == change


@pytest.mark.covers("K-10")
def test_both_limits_are_lowered() -> None:
    raw = b'{"max_completion_tokens":50,"model":"m","max_tokens":9,"messages":[]}'
    request = passed(raw, "chat")
    assert request.max_tokens == 50
    assert outgoing(request, model="m", max_tokens=20) == raw.replace(b"50", b"20")
    assert outgoing(request, model="m", max_tokens=5) == raw.replace(b"50", b"5").replace(b"9", b"5")


@pytest.mark.parametrize(
    ("body", "sent"),
    [
        (b'{"model":"m"}', b'{"model":"m","max_tokens":16}'),
        (b'{"model":"m"} \n', b'{"model":"m","max_tokens":16} \n'),
        (b'{"model":"m" , "max_tokens" : null}', b'{"model":"m" , "max_tokens" : 16}'),
        (b'{"model":"m","x":{"max_tokens":3}}', b'{"model":"m","x":{"max_tokens":3},"max_tokens":16}'),
        (b'{"model":"m","max_tokens":"x"}', b'{"model":"m","max_tokens":16}'),
    ],
)
def test_a_limit_is_added_where_there_is_none(body: bytes, sent: bytes) -> None:
    assert outgoing(passed(body), model="m", max_tokens=16) == sent


def test_the_limit_may_have_another_name() -> None:
    sent = outgoing(
        passed(b'{"model":"m"}', "chat"), model="m", max_tokens=16, limit_field="max_completion_tokens"
    )
    assert sent == b'{"model":"m","max_completion_tokens":16}'


@pytest.mark.covers("K-8")
@pytest.mark.parametrize(
    ("options", "sent"),
    [
        (b"", b',"stream_options":{"include_usage":true}}'),
        (b',"stream_options":null', b',"stream_options":{"include_usage":true}}'),
        (b',"stream_options":{}', b',"stream_options":{"include_usage":true}}'),
        (b',"stream_options": { "a" : {} }', b',"stream_options": {"include_usage":true, "a" : {} }}'),
        (b',"stream_options":{"include_usage":false}', b',"stream_options":{"include_usage":true}}'),
        (b',"stream_options":{"include_usage": null }', b',"stream_options":{"include_usage": true }}'),
        (b',"stream_options":{"include_usage":true}', b',"stream_options":{"include_usage":true}}'),
        (
            b',"stream_options":{"include_usage":1,"include_usage":false}',
            b',"stream_options":{"include_usage":true,"include_usage":true}}',
        ),
        (b',"stream_options":"all"', b',"stream_options":"all"}'),
    ],
)
def test_usage_is_asked_for(options: bytes, sent: bytes) -> None:
    head = b'{"model":"m","stream":true'
    request = passed(head + options + b"}")
    assert outgoing(request, model="m", ask_usage=True) == head + sent
    assert outgoing(request, model="m") == head + options + b"}"
    assert request.include_usage == (b":true" in options)


def test_all_changes_at_once() -> None:
    raw = b'{ "stream_options": {"x":1}, "max_tokens": 50, "model": "m", "prompt": "p" }'
    sent = outgoing(passed(raw), model="their", max_tokens=3, ask_usage=True)
    assert (
        sent == b'{ "stream_options": {"include_usage":true,"x":1}, "max_tokens": 3, "model": "their", '
        b'"prompt": "p" }'
    )


@pytest.mark.covers("K-1")
@pytest.mark.parametrize("dialect", [OPENAI, TOKENS])
@pytest.mark.parametrize(
    ("raw", "param"),
    [
        (b'{"model":"m","model":"m"}', "model"),
        (b'{"model":"m","mode\\u006c":"other"}', "model"),
        (b'{"model":"m","n":1,"x":{"n":2},"n":4}', "n"),
        (b'{"model":"m","prompt":"a","prompt":"b"}', "prompt"),
        (b'{"model":"m","max_tokens":1,"\\u006dax_tokens":100}', "max_tokens"),
        (b'{"model":"m","stream":false,"stream":true}', "stream"),
        (b'{"model":"m","Model":"other"}', "model"),
        (b'{"model":"m","N":100}', "n"),
        ('{"model":"m","max_to\u212aens":100}'.encode(), "max_tokens"),
        (b'{"model":"m","ma\\u0058_tokens":100}', "max_tokens"),
    ],
)
def test_a_name_that_a_provider_might_read_otherwise_is_refused(raw: bytes, param: str, dialect: Any) -> None:
    assert refusal(raw, dialect=dialect).param == param


def test_names_that_are_told_apart_pass() -> None:
    raw = b'{"model":"model","nn":{"model":"x","n":1,"n":2},"prompt":"\\"model\\"","messages":[{"role":"model"}]}'
    assert outgoing(passed(raw), model="t") == raw.replace(b'"model":"model"', b'"model":"t"', 1)


@pytest.mark.covers("K-1", "K-4")
@pytest.mark.parametrize("surface", ["completions", "chat"])
def test_tokens_checks_model_and_n_alone(surface: str) -> None:
    nonsense: dict[str, Any] = {
        "prompt": {"a": 1},
        "messages": 5,
        "max_tokens": "x",
        "max_completion_tokens": -1,
        "best_of": [],
        "stream": "yes",
        "stream_options": {"include_usage": "yes"},
        "stop": 5,
        "temperature": "hot",
        "logprobs": {},
        "user": 5,
    }
    request = passed(nonsense, surface)
    assert (request.n, request.best_of, request.max_tokens, request.stream) == (1, 1, None, False)
    assert not request.include_usage
    assert request.choices == 1
    assert outgoing(request, model="m") == request.raw
    for n in (0, 5, -1, 1.0, "1", True, [1]):
        assert refusal({"n": n}, surface).param == "n"
    for n in (1, 4, None):
        assert passed({"n": n}, surface).n == (n or 1)
    for model in (5, "", [], "x" * 513):
        assert refusal({"model": model}, surface).param == "model"
    assert refusal(b"{}", surface).param == "model"
    assert refusal({"model": None}, surface).param == "model"


@pytest.mark.covers("O-5")
@pytest.mark.parametrize(
    ("surface", "body", "param"),
    [
        ("completions", {"n": "1"}, "n"),
        ("completions", {"n": 129}, "n"),
        ("completions", {"best_of": "x"}, "best_of"),
        ("completions", {"max_tokens": 1.5}, "max_tokens"),
        ("completions", {"max_tokens": -1}, "max_tokens"),
        ("completions", {"stream": "yes"}, "stream"),
        ("completions", {"stream_options": []}, "stream_options"),
        ("completions", {"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ("chat", {"max_tokens": 0}, "max_tokens"),
        ("chat", {"max_completion_tokens": "5"}, "max_completion_tokens"),
    ],
)
def test_openai_refuses_wrong_types_of_what_the_price_depends_on(
    surface: str, body: dict[str, Any], param: str
) -> None:
    assert refusal(body, surface, OPENAI).param == param


def test_openai_leaves_the_rest_to_the_provider() -> None:
    request = passed({"temperature": "hot", "prompt": {}, "max_tokens": 0, "user": 5}, dialect=OPENAI)
    assert request.max_tokens == 0
    assert request.user is None


@pytest.mark.covers("K-10")
@pytest.mark.parametrize(
    ("body", "choices"),
    [
        ({"prompt": "x"}, 1),
        ({"prompt": "x", "n": 3}, 3),
        ({"prompt": "x", "n": 2, "best_of": 5}, 5),
        ({"prompt": ["x", "y"], "n": 3, "best_of": 2}, 6),
        ({"prompt": [1, 2, 3]}, 1),
        ({"prompt": [[1], [2], [3]], "best_of": 2}, 6),
        ({"prompt": []}, 1),
        ({"prompt": None}, 1),
        ({}, 1),
    ],
)
def test_all_that_is_generated_is_counted(body: dict[str, Any], choices: int) -> None:
    assert passed(body).choices == choices


def test_a_chat_has_one_prompt() -> None:
    request = passed({"messages": [], "prompt": ["a", "b"], "n": 2, "best_of": 9, "user": "me"}, "chat")
    assert (request.choices, request.user) == (2, "me")


def test_large_bodies_are_scanned_in_no_time() -> None:
    many = b",".join([b'"\\u0061\\""'] * 200_000)
    raw = b'{"x":[%b],"model":"m","y":{"model":[%b]}}' % (many, b"[[]]," * 20_000 + b"1")
    request = passed(raw)
    sent = outgoing(request, model="t")
    assert len(sent) == len(raw)
    assert b'"model":"t"' in sent


def test_a_body_of_messages() -> None:
    raw = b'{"model": "mine", "max_tokens": 9, "metadata": {"user_id": "u"}, "messages": [], "x": [1.50]}'
    passed = read_passed(PASSED_MESSAGES, json.loads(raw), raw)
    assert (passed.model, passed.max_tokens, passed.user, passed.stream, passed.n) == (
        "mine",
        9,
        "u",
        False,
        1,
    )
    assert outgoing(passed, model="mine") is raw
    lowered = outgoing(passed, model="theirs", max_tokens=4)
    assert lowered == raw.replace(b"mine", b"theirs").replace(b"9", b"4")


@pytest.mark.parametrize(
    ("raw", "param"),
    [
        (b'{"model": "m", "messages": []}', "max_tokens"),
        (b'{"model": "m", "max_tokens": -1, "messages": []}', "max_tokens"),
        (b'{"model": "m", "max_tokens": 1, "system": "a", "messages": [], "system": "b"}', "system"),
        (b'{"model": "m", "max_tokens": 1, "Messages": []}', "messages"),
    ],
)
def test_a_body_of_messages_that_is_refused(raw: bytes, param: str) -> None:
    with pytest.raises(Failure) as refused:
        read_passed(PASSED_MESSAGES, json.loads(raw), raw)
    assert refused.value.param == param
