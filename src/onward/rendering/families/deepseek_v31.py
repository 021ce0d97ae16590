"""DeepSeek V3.1, V3.1-Terminus, V3.2-Exp.

The official template writes no tools; the model's card says how they are declared, at the end of
the system prompt, and that is what `render` does. It writes no reasoning of earlier turns either,
and nothing in front of a reply that follows a tool's result.
"""

from typing import Final

from onward.rendering.codecs.call import Json, dumps
from onward.rendering.codecs.named_json import named_json
from onward.rendering.families.conversation import Conversation, Turn
from onward.rendering.families.family import HYBRID, Family, on_or_off
from onward.rendering.families.repos import COPIES
from onward.rendering.parsing.grammar import Edge, Grammar, Says, State
from onward.rendering.prompt import PromptBuilder

BOS: Final = "<｜begin▁of▁sentence｜>"
EOS: Final = "<｜end▁of▁sentence｜>"
USER: Final = "<｜User｜>"
HEADER: Final = "<｜Assistant｜>"
MARKS: Final = (BOS, EOS, USER, HEADER, "<think>", "</think>")
_CALLS: Final = "<｜tool▁calls▁begin｜>"
_CALLS_END: Final = "<｜tool▁calls▁end｜>"
_CALL: Final = "<｜tool▁call▁begin｜>"
_CALL_END: Final = "<｜tool▁call▁end｜>"
_SEPARATOR: Final = "<｜tool▁sep｜>"
_RESULT: Final = "<｜tool▁output▁begin｜>"
_RESULT_END: Final = "<｜tool▁output▁end｜>"
FOREIGN: Final = frozenset(
    {
        *(USER, HEADER, BOS, _RESULT, _RESULT_END, "<｜tool▁outputs▁begin｜>", "<｜tool▁outputs▁end｜>"),
        *("<｜fim▁hole｜>", "<｜fim▁begin｜>", "<｜fim▁end｜>"),
    }
)
"""What never stands in a reply."""
_BEFORE_TOOLS: Final = "\n\n## Tools\nYou have access to the following tools:\n\n"
_AFTER_TOOLS: Final = (
    f"IMPORTANT: ALWAYS adhere to this exact format for tool use:\n{_CALLS}{_CALL}tool_call_name{_SEPARATOR}"
    f"tool_call_arguments{_CALL_END}{{additional_tool_calls}}{_CALLS_END}\n\nWhere:\n"
    "- `tool_call_name` must be an exact match to one of the available tools\n"
    "- `tool_call_arguments` must be valid JSON that strictly follows the tool's Parameters Schema\n"
    "- For multiple tool calls, chain them directly without separators or spaces"
)


def _render(conversation: Conversation, prompt: PromptBuilder) -> None:
    turns = conversation.turns
    system = [turn.text for turn in turns if turn.role == "system"]
    prompt.frame(BOS).text("\n\n".join(system))
    _tools(conversation, prompt)
    asked = False
    answered = False
    for turn in turns:
        if turn.role == "user":
            asked, answered = True, False
            prompt.frame(USER).text(turn.text)
        elif turn.role == "assistant":
            if asked:
                prompt.frame(HEADER).reply().frame("</think>")
            else:
                prompt.reply()
            _assistant(turn, prompt, answers=answered)
            asked = answered = False
        elif turn.role == "tool":
            asked, answered = False, True
            prompt.frame(_RESULT).text(turn.text).frame(_RESULT_END)
    if conversation.generate:
        if asked:
            prompt.frame(HEADER).reply().frame("<think>" if conversation.effort else "</think>")
        else:
            prompt.reply()


def _tools(conversation: Conversation, prompt: PromptBuilder) -> None:
    if not conversation.tools:
        return
    prompt.frame(_BEFORE_TOOLS)
    for tool in conversation.tools:
        function: Json = tool.get("function") or {}
        prompt.frame("### ").text(str(function.get("name")))
        prompt.frame("\nDescription: ").text(str(function.get("description") or ""))
        prompt.frame("\n\nParameters: ").text(dumps(function.get("parameters") or {})).frame("\n\n")
    prompt.frame(_AFTER_TOOLS)


def _assistant(turn: Turn, prompt: PromptBuilder, *, answers: bool) -> None:
    content = turn.text
    if not turn.calls and not answers and "</think>" in content:
        content = content.split("</think>", 1)[1]
    prompt.text(content)
    if turn.calls:
        prompt.frame(_CALLS)
        for call in turn.calls:
            arguments = call.arguments if call.arguments.strip() else "{}"
            prompt.frame(_CALL).text(call.name).frame(_SEPARATOR).text(arguments).frame(_CALL_END)
        prompt.frame(_CALLS_END)
    prompt.frame(EOS)


def _grammar() -> Grammar:
    """Text is given word for word. Calls may stand in a thought that was not closed.

    A section of calls that the model ends without its mark is complete all the same.
    """
    think = {"<think>": Edge(to="reasoning"), "</think>": Edge(to="answer")}
    section = {_CALLS: Edge(to="section")}
    call = {_CALL: Edge(to="call")}
    states = {
        "start": State(says=Says.SPACE, edges=think | section, otherwise="answer", ends=True),
        "reasoning": State(says=Says.REASONING, edges={"</think>": Edge(to="answer")} | section),
        "answer": State(says=Says.CONTENT, edges=section, ends=True),
        "section": State(says=Says.SPACE, edges=call),
        "call": State(
            says=Says.CALL,
            edges={_CALL_END: Edge(to="called", close=True)},
            keeps=frozenset({_SEPARATOR}),
        ),
        "called": State(says=Says.SPACE, edges=call | {_CALLS_END: Edge(to="after")}, ends=True),
        "after": State(says=Says.SPACE, edges=section, otherwise="answer", ends=True),
    }
    return Grammar(start="start", states=states, codec=named_json(_SEPARATOR), foreign=FOREIGN)


FAMILIES: Final = (
    Family(
        name="deepseek-v3.1",
        repos=(rf"[^/]+/DeepSeek-V3\.(1(-Terminus)?|2-Exp){COPIES}",),
        kind=HYBRID,
        marks=(
            BOS,
            EOS,
            USER,
            HEADER,
            "<think>",
            "</think>",
            _CALLS,
            _CALL,
            _SEPARATOR,
            _CALL_END,
            _CALLS_END,
        ),
        template=(USER, HEADER, _SEPARATOR, "thinking", "</think>'}}"),
        template_lacks=("DSML", "```json"),
        render=_render,
        grammar=_grammar(),
        header=HEADER,
        stops=(EOS,),
        efforts=on_or_off(default=False, switch="thinking"),
        tools=True,
    ),
)
