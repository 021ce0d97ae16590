"""Chat for any model: the template that came with it, in a sandbox.

The template's text is the model's own format, token for token; see `guard` for how the text of
a conversation is kept from becoming control tokens on the way. What a template can take (content
as a string or as parts, arguments as an object or as text) is found out by trying it once.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec
from jinja2 import Template, TemplateError, meta

from onward.core.clock import Clock, SystemClock
from onward.core.failure import Failure, FailureKind, excerpt, invalid
from onward.core.request import ChatRequest, Message, ToolCall
from onward.rendering.conversation import Shape, message_values
from onward.rendering.families.fallback import begun_thought, reply_grammar
from onward.rendering.guard import NONCHARACTERS, Framing, Guard, strings_in, without_seams
from onward.rendering.parsing.reply import Reply
from onward.rendering.parsing.table import Table
from onward.rendering.renderer import RenderedPrompt, Renderer, ReplyOptions, ReplyParser, reply_options
from onward.rendering.sandbox import RefusalError, Sandbox
from onward.rendering.tokenizer import Tokenizer

_MAX_OUTPUT: Final = 1 << 26
_TAIL: Final = 32
"""Tokens at the end of a prompt in which a thought may have begun."""
_PROBE: Final = "onward-probe"
_PROBE_ARGUMENTS: Final = f'{{"{_PROBE}": 1}}'
_OFF: Final = frozenset({"none", "off", "disabled", "false"})
_SWITCHES: Final = ("enable_thinking", "thinking")
_FIELDS: Final = frozenset({"messages", "tools", "add_generation_prompt", "continue_final_message"})
_RESERVED: Final = _FIELDS | {"bos_token", "eos_token", "pad_token"}


class ChatTemplateError(ValueError):
    """The template of a model cannot be used at all; the message says why."""


class TemplateRenderer:
    """Renders conversations with a model's own Jinja template."""

    def __init__(
        self,
        source: str,
        tokenizer: Tokenizer,
        *,
        clock: Clock | None = None,
        longest_prompt: int | None = None,
        reason: str = "",
    ) -> None:
        """`longest_prompt`: prompts that are certainly longer fail before they are encoded.

        Raises `ChatTemplateError` if `source` is no valid template.
        """
        self.name: Final = "template"
        self.images: Final = None
        self.reason: Final = reason
        grammar, self.tools = reply_grammar(source)
        self._table: Final = Table(grammar, tokenizer)
        self.tokenizer: Final = tokenizer
        self._tokenizer: Final = tokenizer
        self._longest_prompt: Final = longest_prompt
        self._framing: Final = Framing(tokenizer.marks, source)
        sandbox = Sandbox(clock or SystemClock(), NONCHARACTERS)
        try:
            self._template: Final[Template] = sandbox.from_string(source)
            self._variables: Final = meta.find_undeclared_variables(sandbox.parse(source))
        except (TemplateError, RecursionError) as error:
            raise ChatTemplateError(
                f"the model's chat template is not valid: {excerpt(str(error), 300)}"
            ) from None
        self._special: Final = {
            name: tokenizer.spelling(token)
            for name, token in (
                ("bos_token", tokenizer.bos_id),
                ("eos_token", tokenizer.eos_id),
                ("pad_token", tokenizer.pad_id),
            )
            if token is not None
        }
        # Some templates loop over the tools without asking whether there are any.
        asked = [Message(role="user", content=_PROBE)]
        fails = self._tried(asked, Shape()) is None and self._tried(asked, Shape(), []) is not None
        self._no_tools: Final[list[Any] | None] = [] if fails else None
        self.shape: Final = self._probed(developer="developer" in source)

    def render(self, request: ChatRequest) -> RenderedPrompt:
        """The prompt of a conversation; see `renderer.Renderer`."""
        messages = message_values(request.messages, self.shape)
        if request.continue_final_message:
            _check_continued(request.messages)
        wanted = self._wanted(request)
        guard = Guard(self._framing, strings_in([messages, request.tools, wanted]))
        shown = [_guarded_message(message, guard) for message in messages]
        if request.continue_final_message:
            _mark_end(shown[-1], guard.end)
        values: dict[str, Any] = {
            **{name: guard.guarded(value) for name, value in wanted.items()},
            **self._special,
            "messages": shown,
            "tools": guard.guarded(request.tools) or self._no_tools,
            "add_generation_prompt": request.add_generation_prompt and not request.continue_final_message,
        }
        text = self._rendered(values)
        if request.continue_final_message:
            text = _until_end(text, guard.end)
        self._check_size(text)
        ids = self._encoded(guard, text)
        prefill = self._tokenizer.encode(begun_thought(text), control=True)
        return RenderedPrompt(ids, sorted(self._tokenizer.end_token_ids), prefill)

    def parser(
        self, request: ChatRequest, prompt: RenderedPrompt, *, index: int, end_token_ids: Collection[int]
    ) -> ReplyParser:
        """The parser of a reply; see `renderer.Renderer`."""
        return self.reply(reply_options(request, prompt, index=index, end_token_ids=end_token_ids))

    def takes_effort(self, effort: str | float | bool) -> bool:
        switches = any(name in self._variables for name in _SWITCHES)
        return switches or (not isinstance(effort, bool) and "reasoning_effort" in self._variables)

    def reply(self, options: ReplyOptions) -> Reply:
        """A parser without a request."""
        return Reply(self._table, self._tokenizer, self._tokenizer.end_token_ids, options)

    def begun(self, prompt: Sequence[int], *, bare: bool = False) -> list[int]:  # noqa: ARG002
        """Of a prompt given as IDs, those that belong to the reply: the thought it has begun."""
        tail = self._tokenizer.decode(prompt[-_TAIL:])
        return self._tokenizer.encode(begun_thought(tail), control=True)

    def _wanted(self, request: ChatRequest) -> dict[str, Any]:
        """What the caller says to the template directly."""
        for name in request.template_kwargs:
            if name in _RESERVED:
                path = f"chat_template_kwargs.{name}"
                why = "a field of its own" if name in _FIELDS else "set by the server"
                raise invalid(path, f"'{path}' is not taken: '{name}' is {why}.")
        return {**self._effort(request.reasoning_effort), **request.template_kwargs}

    def _effort(self, effort: str | float | bool | None) -> dict[str, Any]:
        """What the template calls the wish for more or less reasoning."""
        if effort is None:
            return {}
        switches = [name for name in _SWITCHES if name in self._variables]
        if isinstance(effort, bool):
            wanted: dict[str, Any] = dict.fromkeys(switches, effort)
        else:
            off = isinstance(effort, str) and effort.lower() in _OFF
            wanted = dict.fromkeys(switches, not off)
            if "reasoning_effort" in self._variables:
                wanted["reasoning_effort"] = effort
        if not wanted:
            accepted = "takes true and false" if switches else "has no such setting: leave it out"
            raise invalid("reasoning_effort", f"'reasoning_effort' is not taken: this model {accepted}.")
        return wanted

    def _rendered(self, values: Mapping[str, Any]) -> str:
        """What the template makes of `values`; whatever goes wrong in it is a `Failure`."""
        pieces: list[str] = []
        size = 0
        try:
            for piece in self._template.generate(values):
                pieces.append(piece)
                size += len(piece)
                if size > _MAX_OUTPUT:
                    break
        except RefusalError as error:
            said = excerpt(without_seams(str(error)), 300)
            raise invalid("messages", f"The model's chat template refuses 'messages': {said}") from None
        except Exception as error:  # noqa: BLE001 - a template can raise anything that Python can
            said = excerpt(without_seams(f"{type(error).__name__}: {error}"), 300)
            message = f"The model's chat template cannot render 'messages': {said}"
            raise invalid("messages", message) from None
        if size > _MAX_OUTPUT:
            raise invalid("messages", f"'messages' become more than {_MAX_OUTPUT} characters: shorten them.")
        return "".join(pieces)

    def _check_size(self, text: str) -> None:
        limit = self._longest_prompt
        if limit is not None and (least := self._tokenizer.least_tokens(text, limit)) > limit:
            raise Failure(
                FailureKind.CONTEXT_LENGTH_EXCEEDED,
                f"'messages' have at least {least} tokens; this model's context is {limit}. Shorten them.",
                param="messages",
            )

    def _encoded(self, guard: Guard, text: str) -> list[int]:
        """IDs, with BOS in front exactly once where the model wants it."""
        tokenizer = self._tokenizer
        ids = tokenizer.encode_pieces(guard.split(text))
        bos = tokenizer.bos_id
        if bos is not None and tokenizer.add_bos:
            while ids[:2] == [bos, bos]:
                del ids[0]
            if ids[:1] != [bos]:
                ids.insert(0, bos)
        return ids

    def _probed(self, *, developer: bool) -> Shape:
        """What the template can take."""
        user = Message(role="user", content=_PROBE)
        parts = False
        if _PROBE not in (self._tried([user], Shape(), self._no_tools) or ""):
            parts = _PROBE in (self._tried([user], Shape(parts=True), self._no_tools) or "")
        shape = Shape(parts=parts, developer=developer)
        tries = [
            msgspec.structs.replace(shape, object_arguments=as_object, null_content=as_null)
            for as_null in (False, True)
            for as_object in (True, False)
        ]
        for shape in tries:
            text = self._tried(_called(_PROBE_ARGUMENTS), shape, self._no_tools)
            if text is not None and f"{{'{_PROBE}'" not in text:
                break
        else:
            return tries[0]
        null = msgspec.structs.replace(shape, null_content=True)
        nulled = self._tried(_called(_PROBE_ARGUMENTS), null, self._no_tools)
        if nulled is not None and nulled.count("None") <= text.count("None"):
            shape = null
        malformed = shape.object_arguments and self._tried(_called(_PROBE), shape, self._no_tools) is None
        return msgspec.structs.replace(shape, wrapped_arguments=malformed)

    def _tried(self, messages: list[Message], shape: Shape, tools: list[Any] | None = None) -> str | None:
        values = {**self._special, "messages": message_values(messages, shape), "tools": tools}
        try:
            return self._rendered({**values, "add_generation_prompt": True})
        except Failure:
            return None


def from_gguf(
    metadata: Mapping[str, Any],
    tokenizer: Tokenizer,
    *,
    clock: Clock | None = None,
    longest_prompt: int | None = None,
) -> Renderer:
    """The renderer of the template in a GGUF; without a usable one, a renderer that says so."""
    source = metadata.get("tokenizer.chat_template")
    if not isinstance(source, str) or not source.strip():
        return NoChat("This model has no chat template: use completions instead.")
    try:
        return TemplateRenderer(source, tokenizer, clock=clock, longest_prompt=longest_prompt)
    except ChatTemplateError as fault:
        return NoChat(f"This model serves completions alone: {fault}.")


class NoChat:
    """The renderer of a model that cannot chat: every conversation fails, with the reason."""

    def __init__(self, reason: str) -> None:
        self.name: Final = "none"
        self.images: Final = None
        self.tools: Final = False
        self.reason: Final = reason

    def render(self, request: ChatRequest) -> RenderedPrompt:  # noqa: ARG002 - none has one
        raise Failure(FailureKind.SURFACE_UNSUPPORTED, self.reason)

    def takes_effort(self, effort: str | float | bool) -> bool:  # noqa: ARG002
        return False

    def parser(
        self,
        request: ChatRequest,  # noqa: ARG002 - there is never a prompt whose reply could be read
        prompt: RenderedPrompt,  # noqa: ARG002
        *,
        index: int,  # noqa: ARG002
        end_token_ids: Collection[int],  # noqa: ARG002
    ) -> ReplyParser:
        raise Failure(FailureKind.SURFACE_UNSUPPORTED, self.reason)


def _called(arguments: str) -> list[Message]:
    """A conversation with a call, for trying a template."""
    call = ToolCall(id="call12345", name="probe", arguments=arguments)
    return [
        Message(role="user", content=_PROBE),
        Message(role="assistant", tool_calls=[call]),
        Message(role="tool", content="1", tool_call_id=call.id, name=call.name),
    ]


def _check_continued(messages: list[Message]) -> None:
    if messages[-1].role != "assistant" or not messages[-1].content:
        raise invalid(
            "continue_final_message",
            "'continue_final_message' needs an assistant message with content at the end of 'messages'.",
        )


def _mark_end(message: dict[str, Any], end: str) -> None:
    """Put `end` behind the text of a message, so that it is found again in the rendered text."""
    if isinstance(message["content"], str):
        message["content"] += end
    else:
        message["content"][-1]["text"] += end


def _until_end(text: str, end: str) -> str:
    at = text.rfind(end)
    if at < 0:
        raise invalid(
            "continue_final_message",
            "This model's template cannot continue the assistant's message at the end of 'messages': end "
            "them with another one.",
        )
    return text[:at].replace(end, "")


def _guarded_message(message: dict[str, Any], guard: Guard) -> dict[str, Any]:
    """A message with seams in all that the caller wrote; its structure stays as it is."""
    return {key: value if key == "role" else guard.guarded(value) for key, value in message.items()}
