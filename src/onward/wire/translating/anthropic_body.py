"""A neutral chat request as a body of Anthropic's Messages."""

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from onward.core.failure import invalid
from onward.core.request import ChatRequest, ContentPart, ImagePart, Message, TextPart, ToolCall
from onward.core.stretches import stretches
from onward.wire.thinking_blocks import thinking_blocks

_MODES: Final = {"none": "none", "auto": "auto", "required": "any"}
_BUDGETS: Final = {
    "minimal": 1024,
    "low": 2048,
    "medium": 8192,
    "high": 16_384,
    "xhigh": 32_768,
    "max": 65_536,
}
"""Tokens of reasoning for an effort."""
_LEAST_BUDGET: Final = 1024
_ADAPTIVE: Final = {"type": "adaptive", "display": "summarized"}
"""With its text, which newer models leave out unless they are asked."""
_HIGHEST_TEMPERATURE: Final = 1.0
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_-]")
_LEAST_TOP_P: Final = 0.95
"""Beside reasoning."""
_LEADING: Final = frozenset({"system", "developer"})
_WITHOUT: Final = "the provider of this model takes no '%s'. Leave it out, or use another model."
_Asks = Callable[[ChatRequest], bool]
_UNTRANSLATABLE: Final[tuple[tuple[str, _Asks], ...]] = (
    ("n", lambda one: one.n > 1),
    ("logprobs", lambda one: one.logprobs is not None),
    ("return_token_ids", lambda one: one.return_token_ids),
    ("stop_token_ids", lambda one: bool(one.stop_token_ids)),
    ("logit_bias", lambda one: bool(one.sampling.logit_bias)),
    ("seed", lambda one: one.sampling.seed is not None),
    ("presence_penalty", lambda one: one.sampling.presence_penalty != 0),
    ("frequency_penalty", lambda one: one.sampling.frequency_penalty != 0),
    ("repetition_penalty", lambda one: one.sampling.repetition_penalty != 1),
    ("min_p", lambda one: one.sampling.min_p != 0),
    ("min_tokens", lambda one: one.min_tokens > 0),
    ("ignore_eos", lambda one: one.ignore_eos),
    ("chat_template_kwargs", lambda one: bool(one.template_kwargs)),
    ("separate_reasoning", lambda one: not one.separate_reasoning),
    ("add_generation_prompt", lambda one: not (one.add_generation_prompt or one.continue_final_message)),
)
"""What this API has no word for: the field, and whether a request needs it."""


def messages_fields(request: ChatRequest, *, most: int, adaptive: bool = False) -> dict[str, Any]:
    """The fields of a body, save the model, the limit and `stream`. `most`: the limit that will be sent.
    `adaptive`: whether the model is told an effort, and decides itself how much it reasons; else a budget.

    Raises `Failure` (INVALID_REQUEST) with the field that this API cannot say.
    """
    for name, asks in _UNTRANSLATABLE:
        if asks(request):
            raise invalid(name, f"'{name}' cannot be passed on: {_WITHOUT % name}")
    sampling = request.sampling
    if sampling.temperature > _HIGHEST_TEMPERATURE:
        raise invalid(
            "temperature",
            f"'temperature' is {sampling.temperature:g}: the provider of this model takes 0 to 1.",
        )
    if any(not stop.strip() for stop in request.stop):
        raise invalid(
            "stop", "'stop' holds nothing but white space, which the provider of this model does not take."
        )
    leading = _leading(request.messages)
    fields: dict[str, Any] = {"messages": _conversation(request, leading)}
    system = _system(request.messages[:leading])
    if system:
        fields["system"] = system[0]["text"] if len(system) == 1 else system
    if request.tools:
        fields["tools"] = [_tool(tool) for tool in request.tools]
        choice = _choice(request)
        if choice is not None:
            fields["tool_choice"] = choice
    thinking = _thinking(request, most, adaptive=adaptive)
    effort = request.reasoning_effort
    adapts = thinking is _ADAPTIVE and effort is not True
    optional = {
        "temperature": (sampling.temperature, 1.0),
        "top_p": (sampling.top_p, 1.0),
        "top_k": (sampling.top_k, 0),
        "stop_sequences": (request.stop, []),
        "metadata": ({"user_id": request.user} if request.user else None, None),
        "thinking": (thinking, None),
        "output_config": ({"effort": "low" if effort == "minimal" else effort} if adapts else None, None),
    }
    return fields | {name: value for name, (value, usual) in optional.items() if value != usual}


def _while_it_reasons(request: ChatRequest) -> None:
    """Refuse what this API does not take beside reasoning: it would not say which field is at fault."""
    for name, wrong in (
        ("temperature", request.sampling.temperature != 1),
        ("top_k", request.sampling.top_k > 0),
        ("top_p", request.sampling.top_p < _LEAST_TOP_P),
        ("tool_choice", request.tool_choice not in (None, "auto", "none")),
    ):
        if wrong:
            raise invalid(
                name, f"'{name}' cannot go with 'reasoning_effort' at this model: leave one of them out."
            )


def _lost_reasoning(messages: list[Message]) -> bool:
    """Whether results answer calls whose reasoning did not come back, as many clients drop what they do not
    know. This API refuses to reason on then.
    """
    last = next((one for one in reversed(messages) if one.role == "assistant"), None)
    if last is None or not last.tool_calls:
        return False
    return not any(thought.signature or thought.sealed is not None for thought in last.thoughts)


def _leading(messages: list[Message]) -> int:
    """How many messages stand before the conversation."""
    count = 0
    while count < len(messages) and messages[count].role in _LEADING:
        count += 1
    return count


def _system(messages: list[Message]) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for position, message in enumerate(messages):
        path = f"messages[{position}].content"
        blocks += _content(message.content, path)
        if any(block["type"] != "text" for block in blocks):
            raise invalid(path, f"'{path}' must be text for this model. Send images as the user's.")
    return blocks


def _conversation(request: ChatRequest, leading: int) -> list[dict[str, Any]]:
    """Messages of one role in a row are one: the answers to several calls have to come together, in front of
    what else the user says.
    """
    turns: list[dict[str, Any]] = []
    for position in range(leading, len(request.messages)):
        role, blocks = _turn(request.messages[position], f"messages[{position}]")
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": role, "content": blocks})
    for turn in turns:
        if turn["role"] == "user":
            turn["content"].sort(key=lambda block: block["type"] != "tool_result")
    if not turns:
        raise invalid("messages", "'messages' needs a message of role 'user' for this model.")
    if turns[-1]["role"] == "assistant" and not request.continue_final_message:
        raise invalid(
            "messages",
            "The last of 'messages' is the assistant's: with this model the reply continues it. Set "
            "'continue_final_message', or send a message of role 'user' last.",
        )
    return turns


def _turn(message: Message, path: str) -> tuple[str, list[dict[str, Any]]]:
    """The role and the blocks of a message."""
    if message.role == "tool":
        if message.tool_call_id is None:
            raise invalid(
                f"{path}.role",
                f"'{path}.role' is 'function': send a message of role 'tool' with its 'tool_call_id'.",
            )
        result: dict[str, Any] = {"type": "tool_result", "tool_use_id": _id(message.tool_call_id)}
        content = _content(message.content, f"{path}.content")
        if content:
            result["content"] = content
        if message.is_error:
            result["is_error"] = True
        return "user", [result]
    if message.name is not None:
        raise invalid(f"{path}.name", f"'{path}.name' cannot be passed on: {_WITHOUT % 'name'}")
    if message.role != "assistant":
        role = "system" if message.role in _LEADING else message.role
        return role, _content(message.content, f"{path}.content")
    signed = [one for one in message.thoughts if one.signature or one.sealed is not None]
    calls = [
        _call(call, f"{path}.tool_calls[{number}].function.arguments")
        for number, call in enumerate(message.tool_calls)
    ]
    blocks: list[dict[str, Any]] = []
    for stretch in stretches(message.content, len(calls), signed):
        blocks += thinking_blocks(stretch.thoughts)
        blocks += _content(stretch.content, f"{path}.content")
        blocks += calls[stretch.calls]
    return "assistant", blocks


def _content(content: str | list[ContentPart] | None, path: str) -> list[dict[str, Any]]:
    """Blocks; texts of nothing but white space are left out, as the API refuses them."""
    if content is None:
        return []
    if isinstance(content, str):
        content = [TextPart(content)]
    parts = [part for part in content if not isinstance(part, TextPart) or part.text.strip()]
    return [
        {"type": "text", "text": part.text} if isinstance(part, TextPart) else _image(part, path)
        for part in parts
    ]


def _image(part: ImagePart, path: str) -> dict[str, Any]:
    if part.url[:5].lower() != "data:":
        return {"type": "image", "source": {"type": "url", "url": part.url}}
    kind, _, data = part.url[5:].partition(",")
    media_type = kind.partition(";")[0].strip().lower()
    if not media_type:
        raise invalid(path, f"'{path}' holds an image without its type: write 'data:image/png;base64,…'.")
    media_type = "image/jpeg" if media_type == "image/jpg" else media_type
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def _call(call: ToolCall, path: str) -> dict[str, Any]:
    """The arguments go on as they are spelled, and have to be an object."""
    spelled = (call.arguments.strip() or "{}").encode("utf-8", "replace")
    try:
        known = msgspec.json.decode(spelled)
    except msgspec.MsgspecError:
        known = None
    if type(known) is not dict:
        raise invalid(path, f"'{path}' must be a JSON object for this model, in a string.")
    return {"type": "tool_use", "id": _id(call.id), "name": call.name, "input": msgspec.Raw(spelled)}


def _id(call: str) -> str:
    """A call's ID in the letters that this API takes. Other models' have more, such as ``functions.f:0``, and
    a history may have been begun with one.
    """
    return _FOREIGN.sub(lambda found: f"_{ord(found[0]):x}", call)


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    function = tool["function"]
    schema = {"type": "object", **(function.get("parameters") or {})}
    made = {"name": function["name"], "input_schema": schema}
    for name in ("description", "strict"):
        if function.get(name) is not None:
            made[name] = function[name]
    return made


def _choice(request: ChatRequest) -> dict[str, Any] | None:
    choice, alone = request.tool_choice, not request.parallel_tool_calls
    if choice is None and not alone:
        return None
    if isinstance(choice, dict):
        made: dict[str, Any] = {"type": "tool", "name": choice["function"]["name"]}
    else:
        made = {"type": _MODES[choice or "auto"]}
    if alone and made["type"] != "none":
        made["disable_parallel_tool_use"] = True
    return made


def _thinking(request: ChatRequest, most: int, *, adaptive: bool) -> dict[str, Any] | None:
    effort = request.reasoning_effort
    if effort is None:
        return None
    if effort is False or effort == "none":
        return {"type": "disabled"}
    budget = _BUDGETS.get("medium" if effort is True else str(effort))
    if budget is None:
        raise invalid(
            "reasoning_effort",
            "'reasoning_effort' must be 'none', 'minimal', 'low', 'medium', 'high', 'xhigh' or 'max' for "
            "this model.",
        )
    if adaptive:
        _while_it_reasons(request)
        return _ADAPTIVE
    if most <= _LEAST_BUDGET:
        raise invalid(
            "reasoning_effort",
            f"'reasoning_effort' needs a limit of more than {_LEAST_BUDGET} tokens with this model: raise "
            "'max_completion_tokens', or leave it out.",
        )
    if _lost_reasoning(request.messages):
        return None
    _while_it_reasons(request)
    return {"type": "enabled", "budget_tokens": min(budget, most - 1)}
