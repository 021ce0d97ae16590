"""Write tests/data/mistral.json: prompts as Mistral's own library makes them.

Run it with a Python that has `mistral-common`; the argument is a folder with Mistral's `tekken.json`
and `tokenizer.json`:

    python scripts/mistral_goldens.py FOLDER
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from mistral_common.protocol.instruct.request import (  # pyright: ignore[reportMissingImports]
    ChatCompletionRequest,
)
from mistral_common.tokens.tokenizers.mistral import (  # pyright: ignore[reportMissingImports]
    MistralTokenizer,
)

TARGET = Path(__file__).parent.parent / "tests" / "data" / "mistral.json"
VERSIONS = {
    "mistral-nemo": "v3",
    "mistral-small-3.1": "v7",
    "mistral-small-3.2": "v11",
    "ministral-3-14b-instruct": "v13",
    "ministral-3-reasoning": "v13",
}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": 'Get it, é & <b> "now"',
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}
SYSTEM = {"role": "system", "content": "Be brief."}


def call(identity: str, arguments: str) -> dict[str, Any]:
    return {"id": identity, "type": "function", "function": {"name": "get_weather", "arguments": arguments}}


def history(content: str | None, *, thought: bool) -> list[dict[str, Any]]:
    reasoned: Any = content
    if thought:
        reasoned = [{"type": "thinking", "thinking": "Two calls.\n"}]
        reasoned += [{"type": "text", "text": content}] if content else []
    return [
        SYSTEM,
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": reasoned,
            "tool_calls": [call("call00001", '{"city": "Paris"}'), call("call00002", '{"city": "Øslo"}')],
        },
        {"role": "tool", "tool_call_id": "call00001", "name": "get_weather", "content": '{"t": 20}'},
        {"role": "tool", "tool_call_id": "call00002", "name": "get_weather", "content": "cold & <wet>"},
        {"role": "assistant", "content": "20 and cold."},
        {"role": "user", "content": "\nAnd now?"},
    ]


def conversations(family: str) -> list[dict[str, Any]]:
    thinks = family.endswith("reasoning")
    text = None if family == "mistral-nemo" else "I look."
    whole = history(text, thought=thinks)
    return [
        {"messages": [SYSTEM, {"role": "user", "content": "Hello, naïve 日本 😀\n"}]},
        {
            "messages": [
                SYSTEM,
                {"role": "user", "content": "a"},
                {"role": "user", "content": "b"},
                {"role": "assistant", "content": " c"},
                {"role": "user", "content": "d"},
            ]
        },
        {"messages": [SYSTEM, {"role": "user", "content": "a"}], "tools": [WEATHER]},
        {"messages": whole, "tools": [WEATHER]},
        {"messages": whole[:-2], "tools": [WEATHER]},
    ]


def tokenizer(folder: Path, version: str, scratch: Path) -> MistralTokenizer:
    """The library's tokenizer of a version, with the control tokens of `tokenizer.json`."""
    model = json.loads((folder / "tekken.json").read_text(encoding="utf-8"))
    added = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["added_tokens"]
    model["config"]["version"] = version
    model["special_tokens"] = [
        {"rank": token["id"], "token_str": token["content"], "is_control": True}
        for token in added
        if token["id"] < model["config"]["default_num_special_tokens"]
    ]
    model.pop("image", None)
    path = scratch / f"tekken_{version}.json"
    path.write_text(json.dumps(model), encoding="utf-8")
    return MistralTokenizer.from_file(str(path))


def main() -> None:
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        for family, version in VERSIONS.items():
            library = tokenizer(Path(sys.argv[1]), version, Path(scratch))
            for conversation in conversations(family):
                request = ChatCompletionRequest(**conversation)
                ids = library.encode_chat_completion(request).tokens
                found.append({"family": family, **conversation, "ids": ids})
    TARGET.write_text(json.dumps(found, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main()
