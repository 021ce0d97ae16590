"""`render` and `parse` without a server."""

import json

import pytest

from onward.wiring.offline import read_tokenizer

HELLO = json.dumps({"messages": [{"role": "user", "content": "Hello"}]})


@pytest.fixture(scope="module")
def qwen3(official):
    return official / "qwen3"


@pytest.fixture(scope="module")
def spell(qwen3):
    """Token IDs of a text with control tokens, by Qwen3's tokenizer."""
    tokenizer = read_tokenizer(qwen3)
    return lambda text: tokenizer.encode(text, control=True)


def test_renders_for_a_repo_id(onward, qwen3, spell):
    code, output, _ = onward("render", "Qwen/Qwen3-8B", "--tokenizer", str(qwen3), given=HELLO)
    prompt = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    assert code == 0
    shown = json.loads(output)
    assert (shown["prompt"], shown["prompt_token_ids"]) == (prompt, spell(prompt))
    assert spell("<|im_end|>")[0] in shown["stop_token_ids"]


def test_renders_for_the_default_model(onward, gguf):
    shown = [
        json.loads(onward("render", name, given=HELLO)[1])
        for name in ("smollm2-135m-instruct", "HuggingFaceTB/SmolLM2-135M-Instruct")
    ]
    assert shown[0] == shown[1]
    assert shown[0]["prompt"].endswith("<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n")


def test_renders_a_text_alone_without_a_tokenizer(onward):
    shown = json.loads(onward("render", "qwen3", given=HELLO)[1])
    assert shown["prompt_token_ids"] is None
    assert shown["prompt"].startswith("<|im_start|>user\nHello")


def test_says_which_efforts_there_are(onward, qwen3):
    request = json.dumps(json.loads(HELLO) | {"reasoning_effort": "bogus"})
    code, _, errors = onward("render", "qwen3", "--tokenizer", str(qwen3 / "tokenizer.json"), given=request)
    assert code == 1
    assert "takes true, false, 'none', 'high'" in errors


def test_parses_replies(onward, qwen3, spell):
    call = '<tool_call>\n{"name": "f", "arguments": {"a": "é"}}\n</tool_call>'
    lines = [
        {"token_ids": spell(f"<think>\nabc\n</think>\n\ndef\n{call}<|im_end|>")},
        {"token_ids": spell("a</think>b<|im_end|>")},
        {"token_ids": spell("<think>\nab"), "finish_reason": "length"},
        {"token_ids": spell('<tool_call>\n{"name"'), "finish_reason": "stop"},
        {"token_ids": spell("ab\n</think>\n\nc"), "generation_prompt": "<|im_start|>assistant\n<think>\n"},
        {"token_ids": spell("ab</think>c"), "generation_prompt": "<think>"},
        {"token_ids": spell("ab</think>c"), "prompt_token_ids": spell("<|im_start|>assistant\n<think>\n")},
    ]
    given = "\n".join(map(json.dumps, lines)) + "\n\n"
    code, output, _ = onward("parse", "Qwen/Qwen3-8B", "--tokenizer", str(qwen3), given=given)
    assert code == 0
    said = [json.loads(line) for line in output.splitlines()]
    [first] = said[0].pop("tool_calls")
    assert first["function"] == {"name": "f", "arguments": '{"a": "é"}'}
    shown = [(one["content"], one["reasoning_content"], one["well_formed"]) for one in said]
    assert shown == [
        ("def", "abc", True),
        ("a</think>b", None, False),
        ("", "ab", True),
        ('<tool_call>\n{"name"', None, False),
        ("c", "ab", True),
        ("c", "ab", True),
        ("c", "ab", True),
    ]
    code, output, _ = onward("parse", "qwen3", "--tokenizer", str(qwen3), "--stream", given=given)
    deltas = [json.loads(line) for line in output.splitlines()]
    assert "".join(delta.get("content", "") for delta in deltas[0]) == "def"
    [call] = [call for delta in deltas[0] for call in delta.get("tool_calls", [])]
    assert (call["index"], call["function"]) == (0, first["function"])


def test_parse_says_what_is_wrong(onward, qwen3):
    for given, said in [
        ("{", "line 1 is not JSON"),
        ("[]", "line 1 must be a JSON object"),
        ("{}", "line 1: token_ids must be a list of token IDs from 0 to "),
        ('{"token_ids": [true]}', "line 1: token_ids"),
        ('{"token_ids": [], "tools": 1}', "line 1: tools"),
    ]:
        code, _, errors = onward("parse", "qwen3", "--tokenizer", str(qwen3), given=given)
        assert (code, said in errors) == (1, True), errors
    assert "give the file of its tokenizer" in onward("parse", "qwen3")[2]
    assert "families are qwen3" in onward("parse", "nobody")[2]
    assert "cannot be read" in onward("parse", "qwen3", "--tokenizer", "/nowhere.json")[2]
    assert "families are" in onward("parse", "nobody", "--tokenizer", str(qwen3))[2]
