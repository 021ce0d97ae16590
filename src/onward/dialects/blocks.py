"""The reader of conversations in blocks: the messages of Anthropic's API, as neutral ones.

What a user's message answers to calls becomes a message for each, in front of what else it says.
Messages of one role in a row are one message. Texts of a user stand on lines of their own; those of an
assistant follow each other as it once wrote them.
"""

from typing import Any, Final, cast

import msgspec

from onward.core.failure import invalid
from onward.core.request import ContentPart, ImagePart, Message, TextPart, Thought, ToolCall
from onward.dialects.images import read_image
from onward.dialects.tools import name_at, object_at, text_at
from onward.dialects.values import Turns, mistyped, unlisted

_Block = tuple[dict[str, Any], str]
"""A block and its path."""
_ROLES: Final = "'user', 'assistant' or 'system'"
_NOT_READ: Final = {
    "document": "documents are not read here: send their text in blocks of type 'text'",
    "search_result": "search results are not read here: send them in blocks of type 'text'",
    "file": "files are not kept here: send the image itself, as base64",
    "server_tool_use": "tools that the server runs are not offered here: leave their calls out",
}


def read_turns(kind: Turns, value: Any, path: str) -> list[Message]:
    """A conversation of at least one message. Its last may be the beginning of the reply."""
    if type(value) is not list:
        raise mistyped(path, "an array of messages", value)
    items = cast("list[Any]", value)
    if len(items) > kind.most:
        raise invalid(path, f"'{path}' holds {len(items)} messages; at most {kind.most} are taken.")
    messages: list[Message] = []
    for position, item in enumerate(items):
        for message in _messages(kind, item, f"{path}[{position}]"):
            if messages and message.role == messages[-1].role and message.role in ("user", "assistant"):
                messages[-1] = _merged(messages[-1], message)
            else:
                messages.append(message)
    if messages and messages[-1].role == "assistant":
        _check_beginning(messages, f"{path}[{len(items) - 1}].content")
    if not messages:
        raise invalid(path, f"'{path}' is empty: send at least one message with content.")
    return [_written(message) for message in messages]


def _messages(kind: Turns, value: Any, path: str) -> list[Message]:
    message = object_at(value, path)
    role = message.get("role")
    if role not in ("user", "assistant", "system"):
        raise unlisted(f"{path}.role", _ROLES, role)
    blocks = _blocks(kind, message.get("content"), f"{path}.content")
    if role == "assistant":
        return [_assistant(blocks)]
    if not blocks:
        raise invalid(f"{path}.content", f"'{path}.content' is empty: only an assistant's may be.")
    if role == "system":
        return [Message(role="system", content=[_text(block, where) for block, where in blocks])]
    return _user(kind, blocks)


def _user(kind: Turns, blocks: list[_Block]) -> list[Message]:
    results: list[Message] = []
    parts: list[ContentPart] = []
    for block, path in blocks:
        match block.get("type"):
            case "text":
                parts.append(_text(block, path))
            case "image":
                parts.append(_image(kind, block, path))
            case "tool_result":
                results.append(_result(kind, block, path))
            case other:
                raise _not_taken(other, "'text', 'image' or 'tool_result'", path)
    return [*results, Message(role="user", content=parts)] if parts else results


def _result(kind: Turns, block: dict[str, Any], path: str) -> Message:
    failed = block.get("is_error")
    if failed is not None and failed is not True and failed is not False:
        raise mistyped(f"{path}.is_error", "true or false", failed)
    parts: list[ContentPart] = []
    content = block.get("content")
    for inner, where in _blocks(kind, "" if content is None else content, f"{path}.content"):
        match inner.get("type"):
            case "text":
                parts.append(_text(inner, where))
            case "image":
                parts.append(_image(kind, inner, where))
            case other:
                raise _not_taken(other, "'text' or 'image'", where)
    call_id = text_at(block.get("tool_use_id"), f"{path}.tool_use_id")
    return Message(role="tool", content=parts, tool_call_id=call_id, is_error=bool(failed))


def _assistant(blocks: list[_Block]) -> Message:
    texts: list[str] = []
    calls: list[ToolCall] = []
    thoughts: list[Thought] = []
    for block, path in blocks:
        match block.get("type"):
            case "text":
                texts.append(_text(block, path).text)
            case "tool_use":
                calls.append(_call(block, path))
            case "thinking" | "redacted_thinking":
                thoughts.append(_placed(_thought(block, path), sum(map(len, texts)), len(calls)))
            case other:
                raise _not_taken(other, "'text', 'tool_use', 'thinking' or 'redacted_thinking'", path)
    readable = [thought.text for thought in thoughts if thought.sealed is None]
    return Message(
        role="assistant",
        content="".join(texts) if texts or not calls else None,
        reasoning="".join(readable) if readable else None,
        tool_calls=calls,
        thoughts=thoughts,
    )


def _blocks(kind: Turns, content: Any, path: str) -> list[_Block]:
    if type(content) is str:
        return [({"type": "text", "text": content}, path)] if content else []
    if type(content) is not list:
        raise mistyped(path, "a string or an array of blocks", content)
    items = cast("list[Any]", content)
    if len(items) > kind.most_parts:
        raise invalid(path, f"'{path}' holds {len(items)} blocks; at most {kind.most_parts} are taken.")
    found: list[_Block] = []
    for position, item in enumerate(items):
        where = f"{path}[{position}]"
        found.append((object_at(item, where), where))
    return found


def _text(block: dict[str, Any], path: str) -> TextPart:
    if block.get("type") != "text":
        raise unlisted(f"{path}.type", "'text'", block.get("type"))
    return TextPart(text_at(block.get("text"), f"{path}.text"))


def _image(kind: Turns, block: dict[str, Any], path: str) -> ImagePart:
    where = f"{path}.source"
    source = object_at(block.get("source"), where)
    match source.get("type"):
        case "base64":
            media_type = text_at(source.get("media_type"), f"{where}.media_type")
            data = text_at(source.get("data"), f"{where}.data")
            part = read_image(kind.images, f"data:{media_type};base64,{data}", where)
        case "url":
            part = read_image(kind.images, text_at(source.get("url"), f"{where}.url"), f"{where}.url")
        case other:
            raise _not_taken(other, "'base64' or 'url'", where)
    return ImagePart(part.url, path=path)


def _call(block: dict[str, Any], path: str) -> ToolCall:
    arguments = object_at(block.get("input"), f"{path}.input")
    return ToolCall(
        text_at(block.get("id"), f"{path}.id"),
        name_at(block.get("name"), f"{path}.name"),
        msgspec.json.encode(arguments).decode(),
    )


def _thought(block: dict[str, Any], path: str) -> Thought:
    if block.get("type") == "redacted_thinking":
        return Thought(sealed=text_at(block.get("data"), f"{path}.data"))
    signature = block.get("signature")
    return Thought(
        text_at(block.get("thinking"), f"{path}.thinking"),
        "" if signature is None else text_at(signature, f"{path}.signature"),
    )


def _placed(thought: Thought, text: int, calls: int) -> Thought:
    """A thought with so much more in front of it."""
    if not (text or calls):
        return thought
    return msgspec.structs.replace(
        thought, text_before=thought.text_before + text, calls_before=thought.calls_before + calls
    )


def _not_taken(name: Any, wanted: str, path: str) -> Exception:
    why = _NOT_READ.get(name) if isinstance(name, str) else None
    if why is not None:
        return invalid(f"{path}.type", f"'{path}.type' is '{name}': {why}.")
    return unlisted(f"{path}.type", wanted, name)


def _check_beginning(messages: list[Message], path: str) -> None:
    """The last message is the assistant's: text that the reply goes on with, or nothing at all."""
    last = messages[-1]
    if last.tool_calls:
        raise invalid(path, f"'{path}' ends with calls: send their results in a message of the user.")
    if last.content:
        return
    if last.thoughts:
        raise invalid(path, f"'{path}' holds no text that the reply could go on with: add some.")
    messages.pop()


def _merged(first: Message, second: Message) -> Message:
    """Two messages of one role as one."""
    if first.role == "user":
        return Message(role="user", content=[*_parts(first), *_parts(second)])
    said = len(first.content) if isinstance(first.content, str) else 0
    later = [_placed(thought, said, len(first.tool_calls)) for thought in second.thoughts]
    contents = [one.content for one in (first, second) if isinstance(one.content, str)]
    reasoning = [one.reasoning for one in (first, second) if one.reasoning is not None]
    return Message(
        role="assistant",
        content="".join(contents) if contents else None,
        reasoning="".join(reasoning) if reasoning else None,
        tool_calls=[*first.tool_calls, *second.tool_calls],
        thoughts=[*first.thoughts, *later],
    )


def _written(message: Message) -> Message:
    """A message whose texts stand on lines of their own, but for empty ones; as one text where there is
    nothing else.
    """
    if not isinstance(message.content, list):
        return message
    parts = [part for part in message.content if not isinstance(part, TextPart) or part.text]
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    if len(texts) == len(parts):
        return msgspec.structs.replace(message, content="\n".join(texts))
    spaced = [
        TextPart("\n" + part.text)
        if isinstance(part, TextPart) and place and isinstance(parts[place - 1], TextPart)
        else part
        for place, part in enumerate(parts)
    ]
    return msgspec.structs.replace(message, content=spaced)


def _parts(message: Message) -> list[ContentPart]:
    return message.content if isinstance(message.content, list) else []
