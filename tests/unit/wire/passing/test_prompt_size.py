"""Tokens of a prompt that somebody else will tokenize: never too few are held."""

from typing import Any

import pytest

from onward.wire.passing.prompt_size import chat_size, completion_size

PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100_000}}


@pytest.mark.covers("K-10")
@pytest.mark.parametrize(
    ("prompt", "prompts", "text", "exact"),
    [
        ("hello", 1, 5, 0),
        ("日本", 1, 6, 0),
        (["a", "日"], 2, 4, 0),
        ([5, 6, 7], 1, 0, 3),
        ([[5, 6], [7]], 2, 0, 3),
        ("", 1, 0, 0),
        ([], 1, 0, 0),
        (None, 1, 0, 0),
        ([[]], 1, 0, 0),
    ],
)
def test_prompts_by_bytes_and_by_ids(prompt: Any, prompts: int, text: int, exact: int) -> None:
    count, size = completion_size({"prompt": prompt})
    assert (count, size.text, size.exact) == (prompts, text, exact)
    assert size.most == text + exact + 8 * prompts
    assert exact <= size.likely <= size.most


@pytest.mark.parametrize(
    "prompt", [[1, "long" * 1000], ["x", [1] * 2000], [[1, "long" * 1000]], {"a": "b" * 4000}]
)
def test_prompts_of_no_kind_count_by_their_bytes(prompt: Any) -> None:
    _, size = completion_size({"prompt": prompt})
    assert size.most >= 4000


def test_a_suffix_is_read_with_every_prompt() -> None:
    assert completion_size({"prompt": ["a", "b"], "suffix": "xyz"})[1].text == 8


def test_a_small_chat_is_held_small() -> None:
    size = chat_size({"model": "m", "messages": [{"role": "user", "content": "hi"}]})
    assert size.text == 2
    assert size.most <= 100
    assert size.likely < 20


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "x" * 1000},
        {"role": "x" * 1000, "content": ""},
        {"content": "", "tool_calls": "x" * 1000},
        {"role": "assistant", "content": None, "tool_calls": [{"function": {"arguments": "x" * 1000}}]},
        {"role": "assistant", "content": "", "reasoning_content": "x" * 1000},
        {"role": "user", "content": [{"type": "text", "text": "x" * 1000}]},
        {"role": "user", "content": [{"type": "strange", "strange": "x" * 1000}]},
        {"role": "user", "content": [], "name": "x" * 1000},
        {"role": "user", "content": ["x" * 1000]},
        {"role": "user", "content": {"x": "x" * 1000}},
        "x" * 1000,
    ],
)
def test_text_counts_wherever_a_message_has_it(message: Any) -> None:
    assert chat_size({"messages": [message]}).text >= 1000


@pytest.mark.parametrize(
    "more",
    [
        {"tools": [{"function": {"description": "x" * 1000}}]},
        {"functions": [{"name": "x" * 1000}]},
        {"response_format": {"type": "json_schema", "json_schema": {"x": "x" * 1000}}},
        {"instructions": "x" * 1000},
        {"messages": "x" * 1000},
    ],
)
def test_text_counts_wherever_a_body_has_it(more: dict[str, Any]) -> None:
    size = chat_size({"messages": [], **more})
    assert size.text >= 1000
    assert size.most >= size.text


def test_pictures_count_by_their_number() -> None:
    content = [{"type": "text", "text": "what?"}, PICTURE, PICTURE]
    size = chat_size({"messages": [{"role": "user", "content": content}]})
    assert size.text < 100
    assert 16_384 < size.most < 17_000
    assert 2048 <= size.likely < 2200


def test_sounds_count_by_their_length() -> None:
    part = {"type": "input_audio", "input_audio": {"data": "A" * 32_000, "format": "mp3"}}
    size = chat_size({"messages": [{"role": "user", "content": [part]}]})
    assert 1000 < size.most < 1300


def test_labels_are_no_prompt() -> None:
    plain = chat_size({"messages": []})
    assert chat_size({"messages": [], "user": "u" * 99, "metadata": {"a": "b"}, "stop": ["x"]}) == plain


def test_the_bound_holds_for_a_real_tokenizer(tokenizer: Any, renderer: Any) -> None:
    from onward.dialects.openai import OPENAI
    from onward.wire.requests import chat_request

    for text in ("hi", "日本語 😀 naïve", "1 2 3 4 5 6 7 8 9", "\x00\x01\n\n\t" * 20, "a" * 300, "ღ" * 50):
        _, size = completion_size({"prompt": text})
        count = len(tokenizer.encode_prompt(text))
        assert count <= size.most
        body = {"model": "m", "messages": [{"role": "user", "content": text}] * 3}
        prompt = renderer.render(chat_request(OPENAI, body))
        assert len(prompt.ids) <= chat_size(body).most


def test_a_conversation_in_blocks() -> None:
    picture = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "A" * 100_000},
    }
    document = {"type": "document", "source": {"type": "url", "url": "https://x.example/y.pdf"}}
    result = {
        "type": "tool_result",
        "tool_use_id": "t",
        "content": [picture, {"type": "text", "text": "b" * 900}],
    }
    body = {"system": "a" * 5000, "messages": [{"role": "user", "content": [picture, document, result]}]}
    size = chat_size(body)
    assert 5900 <= size.text < 6300
    assert size.overhead > 200_000 + 2 * 8192
    assert 10_000 < size.likely < 14_000


def test_tools_of_the_providers_own() -> None:
    own = {"type": "computer_20260801", "name": "computer"}
    plain = {"name": "f", "input_schema": {"type": "object"}}
    sizes = [chat_size({"messages": [], "tools": tools}).overhead for tools in ([plain], [plain, own], {})]
    assert sizes == [64 + 256, 64 + 256 + 1024, 64 + 256]
