"""A renderer and parser for a family: special IDs directly, text as text."""

from collections.abc import Collection, Sequence
from typing import Final

from onward.core.clock import Clock, SystemClock
from onward.core.failure import Failure, FailureKind, invalid
from onward.core.request import ChatRequest, TextPart
from onward.rendering.families.conversation import conversation_of
from onward.rendering.families.family import Family
from onward.rendering.guard import NONCHARACTERS
from onward.rendering.parsing.reply import Reply
from onward.rendering.parsing.table import Table
from onward.rendering.prompt import PromptBuilder
from onward.rendering.renderer import RenderedPrompt, ReplyOptions, reply_options
from onward.rendering.tokenizer import Tokenizer


class NativeRenderer:
    """Renders conversations and reads replies in the format of a family; a `renderer.Renderer`."""

    def __init__(
        self,
        family: Family,
        tokenizer: Tokenizer,
        *,
        reason: str = "",
        clock: Clock | None = None,
        longest_prompt: int | None = None,
    ) -> None:
        """`reason`: why this family. `longest_prompt`: certainly longer prompts are not encoded."""
        self.family: Final = family
        self.name: Final = family.name
        self.reason: Final = reason
        self.tools: Final = family.tools
        self.images: Final = family.images
        self.tokenizer: Final = tokenizer
        self._tokenizer: Final = tokenizer
        self._clock: Final = clock or SystemClock()
        self._longest_prompt: Final = longest_prompt
        self._table: Final = Table(family.grammar, tokenizer)
        own = {tokenizer.control_id(stop) for stop in family.stops} | tokenizer.end_token_ids
        own -= {tokenizer.control_id(mark) for mark in family.goes_on}
        self._stops: Final = frozenset(token for token in own if token is not None)

    def render(self, request: ChatRequest) -> RenderedPrompt:
        builder = self.build(request)
        self._check_size(builder.string)
        ids, prefill = builder.ids()
        if not ids and not builder.images:
            raise invalid("messages", "'messages' makes an empty prompt: send at least one with text.")
        begun = request.add_generation_prompt or request.continue_final_message
        return RenderedPrompt(ids, sorted(self._stops), prefill if begun else [], builder.images)

    def takes_effort(self, effort: str | float | bool) -> bool:
        return self.family.efforts.takes(effort)

    def build(self, request: ChatRequest) -> PromptBuilder:
        """The prompt before it is encoded."""
        family = self.family
        effort = family.efforts.read(request.reasoning_effort, request.template_kwargs)
        end = _free_letter(request) if request.continue_final_message else ""
        conversation = conversation_of(
            request,
            developer=family.developer,
            images=family.images is not None,
            effort=effort,
            clock=self._clock,
            end=end,
        )
        builder = PromptBuilder(self._tokenizer, end=end)
        family.render(conversation, builder)
        if end and not builder.closed:
            raise invalid(
                "continue_final_message",
                "This model's format cannot continue the assistant's message at the end of 'messages': end "
                "them with another one.",
            )
        return builder

    def parser(
        self,
        request: ChatRequest,
        prompt: RenderedPrompt,
        *,
        index: int,
        end_token_ids: Collection[int],
    ) -> Reply:
        return self.reply(reply_options(request, prompt, index=index, end_token_ids=end_token_ids))

    def reply(self, options: ReplyOptions) -> Reply:
        """A parser without a request."""
        return Reply(self._table, self._tokenizer, self._stops, options)

    def begun(self, prompt: Sequence[int], *, bare: bool = False) -> list[int]:
        """Of a prompt given as IDs, those that belong to the reply: all behind the last header.

        Without a header none do; or all, if the prompt is `bare`: the end of one.
        """
        tokenizer, header = self._tokenizer, self.family.header.encode()
        first = tokenizer.encode(self.family.header, control=True)[:1]
        start = len(prompt) - 1
        while start >= 0 and prompt[start : start + 1] != first:
            start -= 1
        if start < 0:
            return list(prompt) if bare else []
        spelled = b""
        for at in range(start, len(prompt)):
            spelled += tokenizer.token_bytes(prompt[at])
            if len(spelled) >= len(header):
                return list(prompt[at + 1 :]) if spelled == header else []
        return []

    def _check_size(self, text: str) -> None:
        limit = self._longest_prompt
        if limit is not None and (least := self._tokenizer.least_tokens(text, limit)) > limit:
            raise Failure(
                FailureKind.CONTEXT_LENGTH_EXCEEDED,
                f"'messages' have at least {least} tokens; this model's context is {limit}. Shorten them.",
                param="messages",
            )


def _free_letter(request: ChatRequest) -> str:
    """A code point that no text of the conversation holds."""
    texts = [message.content for message in request.messages if isinstance(message.content, str)]
    parts = [
        part for message in request.messages for part in message.content or () if isinstance(part, TextPart)
    ]
    used = "".join(texts + [part.text for part in parts])
    for letter in NONCHARACTERS:
        if letter not in used:
            return letter
    raise invalid("messages", "'messages' hold too many Unicode noncharacters (U+FDD0 to U+FDEF).")
