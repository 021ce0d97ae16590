"""Write tests/data/harmony.json: prompts and parsed replies of gpt-oss as OpenAI's own library has them.

Run it with a Python that has `openai-harmony`, and with the environment variable
TIKTOKEN_ENCODINGS_BASE at a folder with `o200k_base.tiktoken`:

    python scripts/harmony_goldens.py
"""

import itertools
import json
from pathlib import Path
from typing import Any

import openai_harmony as harmony  # pyright: ignore[reportMissingImports]
from openai_harmony import Author, Message, Role  # pyright: ignore[reportMissingImports]

TARGET = Path(__file__).parent.parent / "tests" / "data" / "harmony.json"
DATE = "2027-01-15"
TOOL = {
    "name": "get_weather",
    "description": "Get it, é & <b>",
    "parameters": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "The city"},
            "days": {"type": "integer"},
            "unit": {"type": "string", "enum": ["C", "F"]},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["city"],
    },
}
NOW = {"name": "now", "description": "The time"}


def call(identity: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


CALLS = [call("a", "get_weather", '{"city": "Paris"}'), call("b", "now", "{}")]
CONVERSATIONS: list[dict[str, Any]] = [
    {"messages": [{"role": "user", "content": "Hello, naïve 日本 😀"}]},
    {
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": ""}],
        "effort": "low",
    },
    {
        "messages": [
            {"role": "user", "content": "\nHi\n"},
            {"role": "assistant", "content": "Hello!", "reasoning_content": "Hm."},
            {"role": "user", "content": "  1+1?"},
        ],
        "effort": "high",
    },
    {
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Weather?"}],
        "tools": [TOOL, NOW],
    },
    {
        "messages": [
            {"role": "user", "content": "Weather?"},
            {
                "role": "assistant",
                "content": "I look.",
                "reasoning_content": "Two calls.",
                "tool_calls": CALLS,
            },
            {"role": "tool", "tool_call_id": "b", "content": "12:00"},
            {"role": "tool", "tool_call_id": "a", "content": '{"t": 20}'},
        ],
        "tools": [TOOL, NOW],
    },
    {
        "messages": [
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "reasoning_content": "A call.", "tool_calls": CALLS[:1]},
            {"role": "tool", "tool_call_id": "a", "content": "20 °C"},
            {"role": "assistant", "content": "20.", "reasoning_content": "Done."},
            {"role": "user", "content": "And now?"},
        ],
        "tools": [TOOL],
    },
]

HEADS = ["", " to=functions.f", "to=functions.f", " to=python", " json"]
CHANNELS = ["analysis", "commentary", "final", " final", ""]
TAILS = [
    "",
    " ",
    " to=functions.f",
    " to=functions.f ",
    " json",
    " to=functions.f json",
    " to=functions.f to=g",
]
TYPES = ["", "<|constrain|>json", "<|constrain|> json", "<|constrain|>json to=functions.f"]
FIRST = "<|channel|>analysis<|message|>Hm.<|end|>"


def replies() -> list[str]:
    found = []
    for head, channel, tail, kind in itertools.product(HEADS, CHANNELS, TAILS, TYPES):
        header = f"{head}<|channel|>{channel}{tail}{kind}<|message|>"
        found.append(f'{header}{{"a": 1}}<|call|>')
        if not tail and not kind:
            found.append(f"{FIRST}<|start|>assistant{header}Hi<|return|>")
    several = (
        f"{FIRST}<|start|>assistant<|channel|>commentary<|message|>I look.<|end|><|start|>assistant"
        "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|end|><|start|>assistant "
        'to=functions.g<|channel|>commentary <|constrain|>json<|message|>{"b": "x"}<|call|>'
    )
    return [
        *found,
        FIRST,
        several,
        "<|channel|>final<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b<|return|>",
        "<|message|>Hi<|return|>",
        "Hi<|return|>",
        "<|return|>",
    ]


def messages(conversation: dict[str, Any]) -> list[Message]:
    tools = conversation.get("tools", [])
    content = harmony.SystemContent.new().with_conversation_start_date(DATE)
    effort = harmony.ReasoningEffort[conversation.get("effort", "medium").upper()]
    given = list(conversation["messages"])
    instructions = given.pop(0)["content"] if given[0]["role"] == "system" else ""
    found = [Message.from_role_and_content(Role.SYSTEM, content.with_reasoning_effort(effort))]
    if tools:
        developer = harmony.DeveloperContent.new()
        if instructions:
            developer = developer.with_instructions(instructions)
        developer = developer.with_function_tools(
            [
                harmony.ToolDescription.new(
                    tool["name"], tool["description"], parameters=tool.get("parameters")
                )
                for tool in tools
            ]
        )
        found.append(Message.from_role_and_content(Role.DEVELOPER, developer))
    elif instructions:
        # The official template ends these with an empty line, the library does not.
        found.append(Message.from_role_and_content(Role.DEVELOPER, f"# Instructions\n\n{instructions}\n\n"))
    names = {}
    for message in given:
        if message["role"] == "tool":
            # The official template writes a result as a JSON string.
            author = Author.new(Role.TOOL, f"functions.{names[message['tool_call_id']]}")
            text = json.dumps(message["content"], ensure_ascii=False)
            result = Message.from_author_and_content(author, text)
            found.append(result.with_recipient("assistant").with_channel("commentary"))
            continue
        role = Role(message["role"])
        if "reasoning_content" in message:
            thought = Message.from_role_and_content(role, message["reasoning_content"])
            found.append(thought.with_channel("analysis"))
        calls = message.get("tool_calls", [])
        if message.get("content") is not None:
            said = Message.from_role_and_content(role, message["content"])
            found.append(said if role is Role.USER else said.with_channel("commentary" if calls else "final"))
        for one in calls:
            names[one["id"]] = one["function"]["name"]
            made = Message.from_role_and_content(role, one["function"]["arguments"])
            made = made.with_channel("commentary").with_recipient(f"functions.{one['function']['name']}")
            found.append(made.with_content_type("json"))
    return found


def parsed(encoding: harmony.HarmonyEncoding, text: str) -> list[list[str | None]] | None:
    """Channel, recipient and text of each message; None if the library refuses the reply."""
    ids = encoding.encode(text, allowed_special="all")
    try:
        read = encoding.parse_messages_from_completion_tokens(ids, Role.ASSISTANT)
    except harmony.HarmonyError:
        return None
    return [
        [one.channel, one.recipient, one.content_type, one.content[0].text if one.content else ""]
        for one in read
    ]


def main() -> None:
    encoding = harmony.load_harmony_encoding(harmony.HarmonyEncodingName.HARMONY_GPT_OSS)
    prompts = []
    for conversation in CONVERSATIONS:
        made = harmony.Conversation.from_messages(messages(conversation))
        ids = encoding.render_conversation_for_completion(made, Role.ASSISTANT)
        prompts.append({**conversation, "ids": ids})
    read = [[text, parsed(encoding, text)] for text in replies()]
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(json.dumps({"prompts": prompts, "replies": read}, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main()
