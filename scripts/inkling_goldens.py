"""Write tests/data/inkling.json.gz: Inkling's prompts, and replies, as its makers' own library has them.

Run it from the root of the repository with a Python that has `tml-renderers` and what the
project's tests need:

    PYTHONPATH=src:. python scripts/inkling_goldens.py
"""

import gzip
import json
from pathlib import Path
from typing import Any

from tests.unit.rendering.families import oracle, test_inkling
from tml_renderers import chat, tokenizers, v0  # pyright: ignore[reportMissingImports]

from onward.core.request import Message, TextPart

TARGET = Path(__file__).parent.parent / "tests" / "data" / "inkling.json.gz"
RENDERER = v0.Renderer(tokenizers.O200kBaseChatTokenizer())


def messages_of(message: Message) -> list[Any]:
    """A message as the library has it: one for every part."""
    values = oracle.message_values(message, str)
    values.pop("reasoning_content", None)
    parts: list[dict[str, Any]] = []
    if message.reasoning:
        parts.append({"type": "thinking", "thinking": message.reasoning})
    if isinstance(message.content, list):
        parts += [
            {"type": "text", "text": part.text} for part in message.content if isinstance(part, TextPart)
        ]
    elif message.content or not (message.reasoning or message.tool_calls):
        parts.append({"type": "text", "text": message.content or ""})
    said = chat.OpenAIMessage.from_oss_messages([values | {"content": parts}])
    return list(chat.MessageList.from_messages(said).messages)


def declared(tools: list[dict[str, Any]]) -> list[Any]:
    if not tools:
        return []
    keys = ("name", "description", "parameters")
    specs = [chat.ToolSpecJson(tool["type"], *(tool["function"][key] for key in keys)) for tool in tools]
    return [chat.Message(content=chat.ToolDeclareJson(specs), author=chat.Author(chat.AuthorKind.System))]


def prompt(conversation: dict[str, Any], effort: float) -> list[int]:
    messages = declared(conversation.get("tools", []))
    for message in conversation["messages"]:
        messages += messages_of(message)
    spans, _ = RENDERER.render_for_completion_with_effort(messages, effort)
    return [token for span in spans for token in span.span.tokens]


def with_image() -> list[list[int]]:
    """The texts around an image."""
    user = chat.Author(chat.AuthorKind.User)
    pointer = chat.ImagePointer(location="image.png", format=chat.ImageFormat.Png, width=64, height=64)
    contents = [chat.Text("a"), pointer, chat.Text("b")]
    messages = [chat.Message(content=content, author=user) for content in contents]
    spans, _ = RENDERER.render_for_completion_with_effort(messages, 0.9)
    return [list(span.span.tokens) for span in spans if hasattr(span.span, "tokens")]


def main() -> None:
    goldens = {
        "prompts": {
            title: prompt(conversation, 0.9) for title, conversation in test_inkling.CONVERSATIONS.items()
        },
        "efforts": {
            str(effort): prompt({"messages": [oracle.user("Hi")]}, effort) for effort in test_inkling.NUMBERS
        },
        "image": with_image(),
    }
    TARGET.write_bytes(gzip.compress(json.dumps(goldens).encode(), mtime=0))


if __name__ == "__main__":
    main()
