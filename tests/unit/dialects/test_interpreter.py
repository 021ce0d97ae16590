"""The interpreter over small tables: every action, alias, bound and rule is the table's."""

from typing import Any

import pytest

from onward.core.failure import Failure
from onward.core.request import ImagePart, TokensPart
from onward.dialects.interpreter import read
from onward.dialects.schema import Action, Condition, Field, Is, NamedTool, Product, Rule, Surface
from onward.dialects.values import (
    AnyOf,
    Boolean,
    Choice,
    Images,
    Integer,
    ListOf,
    LogitBias,
    Messages,
    Number,
    Object,
    PromptChunks,
    Prompts,
    Stops,
    Text,
    TokenIds,
    ToolChoice,
    Tools,
    Value,
)


def surface(*fields: Field, rules: tuple[Any, ...] = (), **options: Any) -> Surface:
    return Surface(name="s", method="POST", path="/s", about="", fields=fields, rules=rules, **options)


def field(name: str, value: Value | None = None, **options: Any) -> Field:
    return Field(name=name, note="Say it another way.", value=value, **options)


def refused(table: Surface, body: dict[str, Any]) -> Failure:
    with pytest.raises(Failure) as caught:
        read(table, body)
    return caught.value


def test_defaults_constants_and_targets_make_the_neutral_request() -> None:
    table = surface(
        field("a", Integer(low=0, high=9), default=3),
        field("b", Text(), target="c"),
        constants={"clip": True},
    )
    assert read(table, {}) == {"clip": True, "a": 3, "c": None}
    assert read(table, {"a": 4, "b": "x", "unknown": 5, "clip": False}) == {"clip": True, "a": 4, "c": "x"}


def test_a_rejected_field_is_refused_unless_it_is_null() -> None:
    table = surface(field("n", action=Action.REJECT))
    assert read(table, {"n": None}) == {}
    failure = refused(table, {"n": 1})
    assert failure.param == "n"
    assert failure.message == "'n' is not taken. Say it another way."


def test_an_ignored_field_is_not_read() -> None:
    assert read(surface(field("x", Integer(low=0, high=1), action=Action.IGNORE)), {"x": "anything"}) == {}


def test_an_accepted_field_needs_a_type() -> None:
    with pytest.raises(ValueError, match="no type"):
        read(surface(field("x")), {})


def test_of_names_for_one_field_the_first_counts_but_all_are_checked() -> None:
    table = surface(field("new", Integer(low=1, high=9), aliases=("old", "older"), target="t"))
    assert read(table, {"older": 1, "old": 2, "new": 3}) == {"t": 3}
    assert read(table, {"new": 3, "old": 2, "older": 1}) == {"t": 3}
    assert read(table, {"older": 1, "old": 2, "new": None}) == {"t": 2}
    assert read(table, {"older": 1}) == {"t": 1}
    assert refused(table, {"new": 3, "older": 0}).param == "older"


def test_a_required_field_is_asked_for() -> None:
    table = surface(field("x", Text(), required=True))
    assert refused(table, {}).message == refused(table, {"x": None}).message == "'x' is required."


@pytest.mark.parametrize(
    ("value", "good", "bad"),
    [
        (Boolean(), [True, False], [0, 1, "true", [], {}]),
        (Integer(low=-1, high=5), [-1, 5], [-2, 6, True, 1.0, "1", 10**40]),
        (Number(low=0, high=2), [0.0, 2.0], [-0.1, 2.1, True, "1", float("nan"), float("inf")]),
        (Number(low=0, high=1, above_low=True), [0.1], [0.0, 0]),
        (Text(shortest=1, longest=3), ["a", "abc"], ["", "abcd", 5]),
        (Choice(values=("a", "b"), refused={"c": "Use a."}), ["a", "b"], ["c", "d", "", 5, None.__class__]),
        (AnyOf(values=(Text(), Boolean())), ["x", True], [5, 1.5, []]),
        (ListOf(item=Integer(low=0, high=9), least=1, most=2), [[1], [1, 2]], [[], [1, 2, 3], ["a"], "x"]),
        (TokenIds(least=1, most=2), [[0], [1, 2]], [[], [1, 2, 3], [-1], [True], 5]),
    ],
)
def test_values_are_strict(value: Value, good: list[Any], bad: list[Any]) -> None:
    table = surface(field("x", value))
    for item in good:
        assert read(table, {"x": item}) == {"x": item}
    for item in bad:
        assert refused(table, {"x": item}).param in ("x", "x[0]")


def test_an_integer_may_stand_for_zero() -> None:
    table = surface(field("k", Integer(low=-1, high=9, zero_if_below=0)))
    assert [read(table, {"k": k})["k"] for k in (-1, 0, 1)] == [0, 0, 1]


def test_a_refused_choice_says_why() -> None:
    table = surface(field("x", Choice(values=("a",), refused={"c": "Use a."})))
    assert refused(table, {"x": "c"}).message.endswith("Use a.")


def test_nested_fields_have_paths_and_defaults() -> None:
    inner = (field("a", Boolean(), default=False), field("b", Text(), required=True, target="c"))
    table = surface(field("o", Object(fields=inner)))
    assert read(table, {"o": {"b": "x", "zzz": 1}}) == {"o": {"a": False, "c": "x"}}
    assert refused(table, {"o": {"b": "x", "a": 1}}).param == "o.a"
    assert refused(table, {"o": {"b": None}}).param == "o.b"
    assert refused(table, {"o": []}).param == "o"


def test_one_prompt_dialects_take_one_prompt() -> None:
    texts = surface(field("prompt", Prompts(most=1, token_ids=False)))
    assert read(texts, {"prompt": ["x"]})["prompt"].items == ["x"]
    assert refused(texts, {"prompt": ["x", "y"]}).param == "prompt"
    assert refused(texts, {"prompt": [1]}).param == "prompt[0]"
    assert refused(texts, {"prompt": [[1]]}).param == "prompt[0]"
    ids = surface(field("prompt", Prompts(most=1)))
    assert read(ids, {"prompt": [[1, 2]]})["prompt"].items == [[1, 2]]
    assert read(ids, {"prompt": [1, 2]})["prompt"].items == [[1, 2]]
    assert refused(ids, {"prompt": [[1], [2]]}).param == "prompt"


def test_a_dialect_may_bound_stops_or_take_no_ids() -> None:
    table = surface(field("stop", Stops(most=4, token_ids=0, longest=8)))
    assert read(table, {"stop": ["a"] * 4})["stop"].texts == ["a"] * 4
    for stop in (["a"] * 5, [1], "123456789"):
        assert refused(table, {"stop": stop}).param in ("stop", "stop[0]")


def test_biases_are_bounded() -> None:
    table = surface(field("b", LogitBias(low=-1, high=1, most=2)))
    assert read(table, {"b": {"0": 1, "7": -0.5}}) == {"b": {0: 1.0, 7: -0.5}}
    for bias in ({"0": 2}, {"0": 0, "1": 0, "2": 0}, {"0": float("nan")}, {"99999999999": 1}):
        assert refused(table, {"b": bias}).param == "b"


def test_roles_are_the_dialects() -> None:
    strict = surface(
        field("m", Messages(roles=("user",), most=2, most_parts=1, images=Images(longest=3, remote=True)))
    )
    user = {"role": "user", "content": "x"}
    assert refused(strict, {"m": [{"role": "developer", "content": "x"}]}).param == "m[0].role"
    assert refused(strict, {"m": [user] * 3}).param == "m"
    assert refused(strict, {"m": [{"role": "user", "content": [{}, {}]}]}).param == "m[0].content"
    image = {"type": "image_url", "image_url": "data:image/png;base64,AAAAAAAA"}
    assert refused(strict, {"m": [{"role": "user", "content": [image]}]}).param == "m[0].content[0].image_url"
    loose = Messages(
        roles=("user", "assistant"),
        most=9,
        most_parts=9,
        images=Images(longest=9, remote=False),
        nullable=("user", "assistant"),
    )
    table = surface(field("m", loose))
    for role in ("user", "assistant"):
        assert read(table, {"m": [{"role": role, "content": None}]})["m"][0].content is None
        assert refused(table, {"m": [{"role": role}]}).param == "m[0].content"
    address = {"type": "image_url", "image_url": "https://example.com/a.png"}
    assert "no address is fetched" in refused(table, {"m": [{"role": "user", "content": [address]}]}).message


PNG = "data:image/png;base64,iVBORw0KGgo="


@pytest.mark.fault("D21")
@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("data:image/png;base64,%%%", "well-formed base64"),
        ("data:image/png;base64,AAA", "well-formed base64"),
        ("data:image/png;base64,", "no image"),
        ("data:image/png,AAAA", "base64 data URL"),
        ("data:,x", "base64 data URL"),
        ("data:image/svg+xml;base64,AAAA", "must be one of image/png"),
        ("data:image/png;base64," + "A" * 44, "33 bytes"),
        ("http://127.0.0.1/a.png", "base64 data URL"),
        ("file:///etc/passwd", "base64 data URL"),
        ("", "base64 data URL"),
    ],
)
def test_an_image_is_a_data_url(url: str, why: str) -> None:
    table = surface(field("c", PromptChunks(most=2, images=Images(longest=32, remote=False))))
    failure = refused(table, {"c": [{"type": "image_url", "image_url": {"url": url}}]})
    assert failure.param == "c[0].image_url.url"
    assert why in failure.message
    assert len(failure.message) < 200


def test_a_prompt_in_parts_is_read_in_order() -> None:
    table = surface(field("c", PromptChunks(most=3, images=Images(longest=32, remote=False))))
    image = {"type": "image_url", "image_url": {"url": PNG}}
    sent = [{"type": "tokens", "tokens": [3, 1]}, image, {"type": "tokens", "tokens": []}]
    assert read(table, {"c": sent})["c"] == [TokensPart([3, 1]), ImagePart(PNG), TokensPart([])]
    upper = {
        "type": "image_url",
        "image_url": {"url": "DATA:IMAGE/PNG;charset=x;BASE64,AAAA", "detail": "low"},
    }
    assert read(table, {"c": [upper]})["c"] == [ImagePart(upper["image_url"]["url"], "low")]


@pytest.mark.parametrize(
    ("chunks", "param"),
    [
        ({}, "c"),
        ("x", "c"),
        ([], "c"),
        ([{"type": "tokens", "tokens": []}], "c"),
        ([{"type": "tokens", "tokens": [1]}] * 4, "c"),
        ([5], "c[0]"),
        ([{"tokens": [1]}], "c[0].type"),
        ([{"type": "text", "text": "x"}], "c[0].type"),
        ([{"type": "tokens"}], "c[0].tokens"),
        ([{"type": "tokens", "tokens": "x"}], "c[0].tokens"),
        ([{"type": "tokens", "tokens": [1, True]}], "c[0].tokens[1]"),
        ([{"type": "tokens", "tokens": [1, -1]}], "c[0].tokens[1]"),
        ([{"type": "image_url"}], "c[0].image_url"),
        ([{"type": "image_url", "image_url": {}}], "c[0].image_url.url"),
        ([{"type": "image_url", "image_url": {"url": PNG, "detail": "x"}}], "c[0].image_url.detail"),
    ],
)
def test_a_wrong_part_is_named(chunks: Any, param: str) -> None:
    table = surface(field("c", PromptChunks(most=3, images=Images(longest=32, remote=False))))
    assert refused(table, {"c": chunks}).param == param


A, B = Integer(low=0, high=99), Boolean()


@pytest.mark.parametrize(
    ("conditions", "refuse", "pass_"),
    [
        ((Condition("a", Is.GIVEN),), [{"a": 1}], [{}]),
        ((Condition("a", Is.ABSENT),), [{}], [{"a": 0}]),
        ((Condition("b", Is.TRUE),), [{"b": True}], [{}, {"b": False}]),
        ((Condition("b", Is.FALSE),), [{}, {"b": False}], [{"b": True}]),
        ((Condition("a", Is.EQUAL, 0),), [{"a": 0}], [{}, {"a": 1}]),
        ((Condition("a", Is.ABOVE, 5),), [{"a": 6}], [{}, {"a": 5}]),
        (
            (Condition("a", Is.BELOW, other="c"),),
            [{"a": 1, "c": 2}],
            [{}, {"a": 1}, {"c": 1}, {"a": 2, "c": 2}],
        ),
        ((Condition("a", Is.GIVEN), Condition("b", Is.TRUE)), [{"a": 1, "b": True}], [{"a": 1}, {"b": True}]),
    ],
)
def test_a_rule_refuses_when_all_its_conditions_hold(
    conditions: tuple[Condition, ...], refuse: list[dict[str, Any]], pass_: list[dict[str, Any]]
) -> None:
    rule = Rule(param="p", refuse_if=conditions, message="No.")
    table = surface(field("a", A), field("b", B), field("c", A), rules=(rule,))
    for body in refuse:
        assert (refused(table, body).param, refused(table, body).message) == ("p", "No.")
    for body in pass_:
        read(table, body)


def test_prompts_times_choices_are_bounded() -> None:
    table = surface(
        field("prompt", Prompts(most=9)),
        field("n", A, default=1),
        field("best_of", A),
        rules=(Product(param="prompt", items="prompt", times=("n", "best_of"), most=6),),
    )
    read(table, {"prompt": ["x", "y"], "n": 3})
    assert refused(table, {"prompt": ["x", "y"], "n": 4}).param == "prompt"
    assert refused(table, {"prompt": ["x", "y"], "n": 1, "best_of": 4}).param == "prompt"


def test_a_chosen_tool_must_be_there() -> None:
    table = surface(field("tools", Tools(most=2)), field("tool_choice", ToolChoice()), rules=(NamedTool(),))
    tools = [{"function": {"name": "f"}}]
    read(table, {"tool_choice": "auto"})
    read(table, {"tools": tools, "tool_choice": {"type": "function", "function": {"name": "f"}}})
    named = {"type": "function", "function": {"name": "g"}}
    for body in ({"tool_choice": "required"}, {"tools": tools, "tool_choice": named}, {"tool_choice": named}):
        assert refused(table, body).param == "tool_choice"
    assert refused(table, {"tools": tools * 3}).param == "tools"
