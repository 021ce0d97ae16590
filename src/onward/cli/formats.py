"""`onward render` and `onward parse`: chat formats, both directions, without a server."""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from onward.cli import models
from onward.cli.error import CommandError
from onward.core.delta import ChoiceDelta, fold, settled
from onward.core.failure import Failure
from onward.core.generate import EngineFinish, ScoredToken
from onward.core.request import ChatRequest, Message
from onward.dialects import DIALECTS
from onward.rendering.families import registry
from onward.rendering.families.conversation import conversation_of
from onward.rendering.families.native import NativeRenderer
from onward.rendering.prompt import PromptBuilder
from onward.rendering.renderer import ReplyOptions
from onward.wire.requests import render_request
from onward.wiring import config as settings
from onward.wiring import offline
from onward.wiring.listen import ServeError


def render(chosen: argparse.Namespace) -> None:
    """Read a chat request and print the prompt that it becomes, as JSON."""
    renderer = _renderer(chosen)
    if renderer is None and not _is_family(chosen.id):
        models.render(chosen)
        return
    request = _request(chosen.id)
    try:
        shown = _shown(renderer, request) if renderer is not None else _without_tokens(chosen.id, request)
    except Failure as failure:
        raise CommandError(failure.message) from None
    print(json.dumps(shown, ensure_ascii=False))


def parse(chosen: argparse.Namespace) -> None:
    """Read replies, one JSON object a line, and print each as a chat message, or as its deltas."""
    renderer = _renderer(chosen)
    if renderer is None:
        hint = "give the file of its tokenizer: --tokenizer tokenizer.json"
        if not _is_family(chosen.id):
            hint = "it is no model of the config and no family; families are " + ", ".join(registry.BY_NAME)
        raise CommandError(f"{chosen.id} cannot be parsed: {hint}")
    for number, line in enumerate(sys.stdin, 1):
        if line.strip():
            said = _reply(renderer, line, number, stream=chosen.stream)
            print(json.dumps(said, ensure_ascii=False), flush=True)


def _renderer(chosen: argparse.Namespace) -> offline.Chat | None:
    """The renderer of a model of the config, or of a family with the tokenizer that is given."""
    try:
        if chosen.tokenizer is not None:
            return offline.family_renderer(chosen.id, Path(chosen.tokenizer))
        configured = [settings.default_model()]
        if chosen.config is not None:
            configured = settings.load(chosen.config).models
        for model in configured:
            if chosen.id in (model.id, *model.aliases, model.repo):
                return offline.model_renderer(model)
    except settings.ConfigError as error:
        raise CommandError(error.faults[0]) from None
    except ServeError as error:
        raise CommandError(str(error)) from None
    return None


def _is_family(name: str) -> bool:
    try:
        registry.named(name)
    except registry.UnknownFamilyError:
        return False
    return True


def _request(model: str) -> ChatRequest:
    body = models.read_request()
    try:
        return render_request(DIALECTS["openai"], body | {"model": model})
    except Failure as failure:
        raise CommandError(failure.message) from None


def _shown(renderer: offline.Chat, request: ChatRequest) -> dict[str, Any]:
    prompt = renderer.render(request)
    return {
        "prompt_token_ids": prompt.ids,
        "prompt": renderer.tokenizer.decode(prompt.ids),
        "stop_token_ids": prompt.stop_token_ids,
    }


def _without_tokens(name: str, request: ChatRequest) -> dict[str, Any]:
    """The prompt as a text alone: there is no tokenizer."""
    family = registry.named(name)
    builder = PromptBuilder()
    conversation = conversation_of(
        request,
        developer=family.developer,
        images=False,
        effort=family.efforts.read(request.reasoning_effort, request.template_kwargs),
        clock=offline.CLOCK,
        end="",
    )
    family.render(conversation, builder)
    return {"prompt_token_ids": None, "prompt": builder.string, "stop_token_ids": None}


def _reply(renderer: offline.Chat, line: str, number: int, *, stream: bool) -> Any:
    given = _line(line, number)
    ids = _ids(renderer, given.get("token_ids"), f"line {number}: token_ids")
    tools = given.get("tools") or []
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise CommandError(f"line {number}: tools must be a list of objects")
    finish = given.get("finish_reason")
    ended = finish is not None and finish != "length"
    why = EngineFinish.STOP_TOKEN if ended else EngineFinish.LENGTH
    whole: list[ChoiceDelta] = []
    for prefill in _prefills(renderer, given, number):
        deltas = list(_deltas(renderer, ids, prefill, tools, why))
        if not whole or deltas[-1].plain is None:
            whole = deltas
        if whole[-1].plain is None:
            break
    if stream:
        return [said for delta in whole if (said := _delta(delta))]
    return _message(fold(whole)[0])


def _deltas(
    renderer: offline.Chat, ids: list[int], prefill: list[int], tools: list[Any], why: EngineFinish
) -> Iterator[ChoiceDelta]:
    reply = renderer.reply(ReplyOptions(prefill=prefill, tools=tools))
    for token in ids:
        reply.push(ScoredToken(token))
        yield reply.take()
    yield reply.finish(why)


def _prefills(renderer: offline.Chat, given: dict[str, Any], number: int) -> list[list[int]]:
    """What the prompt may have begun of the reply: said by the line, else each way of the family.

    Of these the first counts under which the reply is well-formed.
    """
    if given.get("prompt_token_ids") is not None:
        path = f"line {number}: prompt_token_ids"
        return [renderer.begun(_ids(renderer, given["prompt_token_ids"], path))]
    text = given.get("generation_prompt")
    if text is not None:
        if not isinstance(text, str):
            raise CommandError(f"line {number}: generation_prompt must be a text")
        return [renderer.begun(renderer.tokenizer.encode(text, control=True), bare=True)]
    if not isinstance(renderer, NativeRenderer):
        return [[]]
    efforts = [None, *renderer.family.efforts.values]
    asked = [Message(role="user", content="Hello")]
    known = [
        renderer.render(ChatRequest(model="", messages=asked, reasoning_effort=effort)).prefill
        for effort in efforts
    ]
    return [*known, []]


def _line(line: str, number: int) -> dict[str, Any]:
    try:
        given = json.loads(line)
    except ValueError as error:
        raise CommandError(f"line {number} is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise CommandError(f"line {number} must be a JSON object with token_ids")
    return given


def _ids(renderer: offline.Chat, value: Any, path: str) -> list[int]:
    size = renderer.tokenizer.vocab_size
    if not isinstance(value, list) or not all(type(token) is int and 0 <= token < size for token in value):
        raise CommandError(f"{path} must be a list of token IDs from 0 to {size - 1}")
    return value


def _message(choice: ChoiceDelta) -> dict[str, Any]:
    said = settled(choice)
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in said.tool_calls
    ]
    return {
        "content": said.text or (None if calls else ""),
        "reasoning_content": said.reasoning or None,
        "tool_calls": calls or None,
        "well_formed": choice.plain is None,
        "finish_reason": said.finish,
    }


def _delta(delta: ChoiceDelta) -> dict[str, Any]:
    said: dict[str, Any] = {}
    if delta.reasoning:
        said["reasoning_content"] = delta.reasoning
    if delta.text:
        said["content"] = delta.text
    if delta.tool_calls:
        said["tool_calls"] = [
            {
                "index": call.index,
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in delta.tool_calls
        ]
    return said
