"""Official chat templates: for ordinary text ours equals plain Jinja and the official tokenizer."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from onward.core.failure import Failure
from onward.core.request import ChatRequest, Message, TextPart, ToolCall
from onward.rendering.conversation import message_values
from onward.rendering.template import TemplateRenderer
from onward.rendering.tokenizer import Tokenizer
from tests.unit.rendering.families.oracle import tokenizer_of

FAMILIES = [
    "deepseek-v3.1",
    "deepseek-v4",
    "gemma4",
    "glm4.5",
    "glm5",
    "gpt-oss",
    "kimi-k2.5",
    "llama3.1",
    "mistral-tekken",
    "qwen3",
    "qwen3.5",
    "smollm3",
]
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Get it, é & <b>",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "The city"},
                    "days": {"type": "integer"},
                },
                "required": ["city"],
            },
        },
    }
]


def user(content: Any) -> Message:
    return Message(role="user", content=content)


def called(arguments: str, content: str | None = None) -> list[Message]:
    call = ToolCall("abc123def", "get_weather", arguments)
    answer = Message(role="tool", content='{"temp": 20}', tool_call_id=call.id, name=call.name)
    return [user("Weather in Paris?"), Message(role="assistant", content=content, tool_calls=[call]), answer]


CONVERSATIONS: dict[str, dict[str, Any]] = {
    "one": {"messages": [user("Hello, how are you?")]},
    "system": {"messages": [Message(role="system", content="Be brief."), user("  Hi there \n")]},
    "developer": {"messages": [Message(role="developer", content="Be brief."), user("Hi")]},
    "several": {
        "messages": [
            user("Hi"),
            Message(role="assistant", content="Hello!"),
            user("\nWhat is 1+1?\n"),
            Message(role="assistant", content="2", reasoning="because"),
            user("thanks 日本 😀"),
        ]
    },
    "parts": {"messages": [user([TextPart("a b"), TextPart(" c")])]},
    "tools": {"messages": [user("Weather in Paris?")], "tools": TOOLS},
    "call": {"messages": called('{"city": "Paris", "days": 2}'), "tools": TOOLS},
    "call without arguments": {"messages": called("", ""), "tools": TOOLS},
    "malformed call": {"messages": called('{"city')},
    "no generation": {
        "messages": [user("Q"), Message(role="assistant", content="fine")],
        "add_generation_prompt": False,
    },
}
WITHOUT_TOOLS = "Mistral-Small-3.1"
"""A template that refuses the role tool."""


def plain(source: str, values: dict[str, Any]) -> str:
    """The template as the `transformers` library renders it."""

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = tojson
    return environment.from_string(re.sub(r"\{%-? *(end)?generation *-?%\}", "", source)).render(values)


def compare(source: str, name: str, ours: Tokenizer, encode: Any) -> None:
    renderer = TemplateRenderer(source, ours)
    for title, fields in CONVERSATIONS.items():
        request = ChatRequest(model="m", **fields)
        values = {
            **renderer._special,
            "messages": message_values(request.messages, renderer.shape),
            "tools": request.tools or None,
            "add_generation_prompt": request.add_generation_prompt,
        }
        if WITHOUT_TOOLS in name and "call" in title:
            with pytest.raises(Failure, match="Only user, system and assistant"):
                renderer.render(request)
            continue
        ids = renderer.render(request).ids
        assert ids == encode(plain(source, values)), title


@pytest.mark.parametrize("family", FAMILIES)
def test_official_templates_and_tokenizers_give_the_same_ids(official: Path, family: str):
    templates = sorted((official / family).glob("*.jinja"))
    assert templates
    ours, theirs = tokenizer_of(official / family)
    for path in templates:
        source = path.read_text(encoding="utf-8")
        source = re.sub(
            r"strftime_now(\([^)]*\))", "'15 Jan 2027'", source.replace("strftime_now is defined", "true")
        )
        compare(
            source,
            f"{family}/{path.name}",
            ours,
            lambda text: theirs.encode(text, add_special_tokens=False).ids,
        )


def test_the_real_model_with_its_official_template(official: Path, tokenizer: Tokenizer):
    source = (official / "smollm2" / "chat_template.jinja").read_text(encoding="utf-8")
    compare(source, "smollm2", tokenizer, lambda text: tokenizer.encode(text, control=True))


def test_a_template_without_a_tokenizer_of_its_own_is_rendered(official: Path):
    source = (official / "minimax-m2" / "chat_template.jinja").read_text(encoding="utf-8")
    ours, _ = tokenizer_of(official / "qwen3")
    compare(source, "minimax-m2", ours, lambda text: ours.encode(text, control=True))
