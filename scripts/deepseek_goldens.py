"""Write tests/data/deepseek.json.gz: prompts of DeepSeek V3.2, V4 and V4.1 as their encoders make them.

Run it from the root of the repository with a Python that has `miles-tito-tokenizers` (the models'
own encoders, for V3.2 and V4), `tml-renderers` (for V4.1 and the efforts of July) and what the
project's tests need:

    PYTHONPATH=src:. python scripts/deepseek_goldens.py
"""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from miles_tito_tokenizers.encoders import (  # pyright: ignore[reportMissingImports]
    deepseek_v4,
    deepseek_v32,
)
from tests.unit.rendering.families import oracle, test_deepseek_v4
from tml_renderers import chat, renderers  # pyright: ignore[reportMissingImports]

TARGET = Path(__file__).parent.parent / "tests" / "data" / "deepseek.json.gz"
Encode = Callable[[list[dict[str, Any]], list[dict[str, Any]]], str]


def encoder(module: Any, **values: Any) -> Encode:
    def encode(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> str:
        if tools:
            if messages[0]["role"] != "system":
                messages = [{"role": "system", "content": ""}, *messages]
            messages[0]["tools"] = tools
        return module.encode_messages(messages, **values)

    return encode


def native(renderer: Any) -> Encode:
    def encode(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> str:
        declared = []
        if tools:
            specs = [
                chat.ToolSpecJson(
                    tool["type"], *(tool["function"][key] for key in ("name", "description", "parameters"))
                )
                for tool in tools
            ]
            author = chat.Author(chat.AuthorKind.System)
            declared = [chat.Message(content=chat.ToolDeclareJson(specs), author=author)]
        for message in messages:
            reasoning = message.pop("reasoning_content", None)
            if reasoning:
                text = {"type": "text", "text": message["content"]}
                message["content"] = [{"type": "thinking", "thinking": reasoning}, text]
        said = chat.MessageList.from_messages(chat.OpenAIMessage.from_oss_messages(messages)).messages
        spans, _ = renderer.render_for_completion([*declared, *said])
        return renderer.tokenizer.decode([token for span in spans for token in span.span.tokens])

    return encode


V4, V41 = renderers.DeepSeekV4, renderers.DeepSeekV41
ENCODERS: dict[str, dict[str, Encode]] = {
    "deepseek-v3.2": {
        "none": encoder(deepseek_v32, thinking_mode="chat"),
        "high": encoder(deepseek_v32, thinking_mode="thinking"),
    },
    "deepseek-v4": {
        "none": encoder(deepseek_v4, thinking_mode="chat"),
        "high": encoder(deepseek_v4, thinking_mode="thinking", reasoning_effort="high"),
        "max": encoder(deepseek_v4, thinking_mode="thinking", reasoning_effort="max"),
    },
    "deepseek-v4-0731": {
        "low": native(V4(reasoning_effort="low")),
        "high": native(V4(reasoning_effort="high")),
        "max": native(V4(reasoning_effort="max")),
    },
    "deepseek-v4.1": {
        "none": native(V41(thinking_mode="chat")),
        "low": native(V41(reasoning_effort="low")),
        "high": native(V41(reasoning_effort="high")),
        "33": native(V41(reasoning_effort=33)),
    },
}


def main() -> None:
    prompts: dict[str, dict[str, dict[str, str]]] = {}
    for family, efforts in ENCODERS.items():
        for effort, encode in efforts.items():
            found = prompts.setdefault(family, {}).setdefault(effort, {})
            for title, conversation in test_deepseek_v4.CONVERSATIONS.items():
                if (family, title) in test_deepseek_v4.NOT_OURS:
                    continue
                messages = [oracle.message_values(message, str) for message in conversation["messages"]]
                found[title] = encode(messages, conversation.get("tools", []))
    TARGET.write_bytes(gzip.compress(json.dumps(prompts, ensure_ascii=False).encode(), mtime=0))


if __name__ == "__main__":
    main()
