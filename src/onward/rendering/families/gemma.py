"""Gemma 3 and Gemma 4."""

from collections.abc import Sequence
from typing import Final

from onward.core.request import ImagePart
from onward.rendering.codecs import gemma4
from onward.rendering.codecs.call import CodecError
from onward.rendering.families import gemma4_values as values
from onward.rendering.families.conversation import Called, Conversation, Turn
from onward.rendering.families.family import HYBRID, Family, Render, on_or_off
from onward.rendering.families.repos import COPIES
from onward.rendering.parsing.grammar import NEWLINE, Edge, Grammar, Route, Says, State, content_only
from onward.rendering.prompt import PromptBuilder
from onward.rendering.renderer import ImageMarks

_HEADER_3: Final = "<start_of_turn>model\n"
_HEADER_4: Final = "<|turn>model\n"
_IMAGE_4: Final = ImageMarks(before="<|image>", after="<image|>")
_NO_THOUGHT: Final = "<|channel>thought\n<channel|>"


def _render_3(conversation: Conversation, prompt: PromptBuilder) -> None:
    prompt.frame("<bos>")
    turns = list(conversation.turns)
    system = turns.pop(0).text + "\n\n" if turns and turns[0].role == "system" else ""
    if system and not turns:
        turns = [Turn(role="user", content="")]
    for place, turn in enumerate(turns):
        if turn.role == "assistant":
            prompt.frame(_HEADER_3).reply()
        else:
            # The official template has no other roles than these two.
            prompt.frame("<start_of_turn>user\n")
        prompt.text((system if place == 0 else "") + turn.text.strip()).frame("<end_of_turn>\n")
    if conversation.generate:
        prompt.frame(_HEADER_3).reply()


def _renderer_4(*, empty_thought: bool) -> Render:
    """`empty_thought`: a reply without reasoning begins with an empty thought."""

    def render(conversation: Conversation, prompt: PromptBuilder) -> None:
        turns = _opening_4(conversation, prompt, first=False)
        last = _messages_4(turns, conversation, prompt)
        if not conversation.generate:
            return
        if last == "message":
            prompt.frame(_HEADER_4).reply()
            if empty_thought and not conversation.effort:
                prompt.frame(_NO_THOUGHT)
        else:
            prompt.reply()
            if last == "response" and conversation.effort:
                prompt.frame("<|channel>thought\n")

    return render


def _render_first(conversation: Conversation, prompt: PromptBuilder) -> None:
    """As the first published templates do: no reasoning in the history, results as turns."""
    for turn in _opening_4(conversation, prompt, first=True):
        prompt.frame("<|turn>").frame("model" if turn.role == "assistant" else turn.role).frame("\n")
        if turn.role == "assistant":
            prompt.reply()
            _calls(turn.calls, prompt)
            prompt.text(_without_thought(turn.text))
        else:
            prompt.text(turn.text.strip())
        prompt.frame("<turn|>\n")
    if conversation.generate:
        prompt.frame(_HEADER_4).reply()
        if not conversation.effort:
            prompt.frame(_NO_THOUGHT)


def _opening_4(conversation: Conversation, prompt: PromptBuilder, *, first: bool) -> Sequence[Turn]:
    """The system turn; what is left of the conversation."""
    turns = list(conversation.turns)
    system = turns.pop(0) if turns and turns[0].role == "system" else None
    prompt.frame("<bos>")
    if conversation.effort or conversation.tools or system is not None:
        prompt.frame("<|turn>system\n")
        if conversation.effort:
            prompt.frame("<|think|>" if first else "<|think|>\n")
        if system is not None:
            prompt.text(system.text.strip())
        for tool in conversation.tools:
            values.declaration(tool, prompt, first=first)
        prompt.frame("<turn|>\n")
    return turns


def _messages_4(turns: Sequence[Turn], conversation: Conversation, prompt: PromptBuilder) -> str:
    """Write the turns; what the last one ended with: message, call or response."""
    asked = max((place for place, turn in enumerate(turns) if turn.role == "user"), default=-1)
    keeps = conversation.flag("preserve_thinking", default=False)
    last, before = "message", ""
    for place, turn in enumerate(turns):
        if turn.role == "tool":
            continue
        if turn.role != "assistant":
            prompt.frame(f"<|turn>{turn.role}\n")
            _content_4(turn, prompt)
            prompt.frame("<turn|>\n")
            last, before = "message", turn.role
            continue
        if before != "assistant":
            prompt.frame(_HEADER_4)
        prompt.reply()
        if turn.reasoning and (place > asked or (keeps and turn.calls)):
            prompt.frame("<|channel>thought\n").text(turn.reasoning).frame("\n<channel|>")
        _calls(turn.calls, prompt)
        results = _results(turns, place) if turn.calls else ()
        for result in results:
            _response(_name_of(result, turn.calls), result.text, prompt)
        content = _without_thought(turn.text)
        prompt.text(content)
        last, before = "response" if results else "call" if turn.calls else "message", turn.role
        following = next((later.role for later in turns[place + 1 :] if later.role != "tool"), None)
        if last == "call":
            prompt.frame("<|tool_response>")
        elif following != "assistant" and not (results and not content and following is None):
            prompt.frame("<turn|>\n")
    return last


def _content_4(turn: Turn, prompt: PromptBuilder) -> None:
    """Content that may hold images: then every text is stripped by itself."""
    if not any(isinstance(part, ImagePart) for part in turn.parts):
        prompt.text(turn.text.strip())
        return
    for part in turn.parts:
        if isinstance(part, ImagePart):
            prompt.frame(_IMAGE_4.before).image(part).frame(_IMAGE_4.after)
        else:
            prompt.text(part.text.strip())


def _results(turns: Sequence[Turn], place: int) -> Sequence[Turn]:
    """The tool messages behind a message."""
    end = place + 1
    while end < len(turns) and turns[end].role == "tool":
        end += 1
    return turns[place + 1 : end]


def _name_of(result: Turn, calls: Sequence[Called]) -> str:
    found = [call.name for call in calls if call.id == result.call_id]
    return found[-1] if found else result.name or "unknown"


def _calls(calls: Sequence[Called], prompt: PromptBuilder) -> None:
    for call in calls:
        prompt.frame("<|tool_call>call:").text(call.name).frame("{")
        if call.value is None:
            prompt.text(call.arguments)
        else:
            values.arguments(call.value, prompt)
        prompt.frame("}<tool_call|>")


def _response(name: str, text: str, prompt: PromptBuilder) -> None:
    prompt.frame("<|tool_response>response:").text(name).frame("{value:")
    values.string(text, prompt)
    prompt.frame("}<tool_response|>")


def _without_thought(text: str) -> str:
    """Content that a caller sent back with its thoughts, without them."""
    return "".join([part.partition("<|channel>")[0] for part in text.split("<channel|>")]).strip()


def _thought(to: str) -> Route:
    def route(pieces: Sequence[str]) -> str:
        if "".join(pieces) != "thought":
            raise CodecError("a channel that the format does not have")
        return to

    return route


def _grammar_4() -> Grammar:
    end = "<channel|>"
    states = {
        "content": State(
            says=Says.CONTENT,
            edges={"<|channel>": Edge(to="channel"), "<|tool_call>": Edge(to="call")},
            ends=True,
        ),
        "channel": State(
            says=Says.LABEL,
            edges={"\n": Edge(to=_thought("reasoning")), end: Edge(to=_thought("content"))},
        ),
        "reasoning": State(says=Says.REASONING, edges={end: Edge(to="content", trail=NEWLINE)}),
        "call": State(
            says=Says.CALL,
            keeps=frozenset({gemma4.QUOTE}),
            edges={"<tool_call|>": Edge(to="content", close=True)},
        ),
    }
    return Grammar(start="content", states=states, codec=gemma4.call)


def _family_4(
    name: str,
    repos: tuple[str, ...],
    template: tuple[str, ...],
    lacks: tuple[str, ...],
    render: Render,
    *,
    images: ImageMarks | None = _IMAGE_4,
) -> Family:
    return Family(
        name=name,
        repos=repos,
        kind=HYBRID,
        marks=("<bos>", "<|turn>", "<turn|>", "<|channel>", "<channel|>", "<|tool_call>", gemma4.QUOTE),
        template=("<|turn>", "<|channel>thought", "<|tool_call>call:", *template),
        template_lacks=lacks,
        render=render,
        grammar=_grammar_4(),
        header=_HEADER_4,
        stops=("<turn|>", "<eos>", "<|tool_response>"),
        efforts=on_or_off(default=False),
        tools=True,
        images=images,
    )


_CONTINUES: Final = "continue_same_model_turn"
_EMPTY: Final = r"'<|channel>thought\n<channel|>'"

FAMILIES: Final = (
    _family_4(
        "gemma-4",
        (rf"[^/]+/(google_)?gemma-4-\d+B(-A\d+B)?-it{COPIES}",),
        (_CONTINUES, _EMPTY),
        (),
        _renderer_4(empty_thought=True),
    ),
    _family_4(
        "gemma-4-e",
        (rf"[^/]+/(google_)?gemma-4-E\d+B-it{COPIES}",),
        (_CONTINUES,),
        (_EMPTY,),
        _renderer_4(empty_thought=False),
    ),
    _family_4("gemma-4-first", (), (_EMPTY,), ("reasoning_content", _CONTINUES), _render_first, images=None),
    Family(
        name="gemma-3",
        repos=(
            rf"[^/]+/(google_)?gemma-3-\d+(b|m)-it(-qat(-q4_0|-int4)?)?(-unquantized)?{COPIES}",
            rf"[^/]+/(google_)?gemma-3n-E\d+B-it{COPIES}",
        ),
        marks=("<bos>", "<start_of_turn>", "<end_of_turn>"),
        template=("<start_of_turn>", "first_user_prefix", "<end_of_turn>"),
        template_lacks=("tools",),
        render=_render_3,
        grammar=content_only(),
        header=_HEADER_3,
        stops=("<end_of_turn>", "<eos>"),
    ),
)
