"""DeepSeek V3.2. The authority is the encoder in Python that it comes with."""

from collections.abc import Sequence
from typing import Final

from onward.rendering.codecs.call import dumps
from onward.rendering.codecs.dsml import DSML
from onward.rendering.families.conversation import Conversation, Turn
from onward.rendering.families.deepseek_v31 import BOS, EOS, HEADER, MARKS, USER
from onward.rendering.families.dsml import Tags, grammar, last_question, write_calls
from onward.rendering.families.family import HYBRID, Family, on_or_off
from onward.rendering.families.repos import COPIES
from onward.rendering.prompt import PromptBuilder

_TAGS: Final = Tags("function_calls")
_OPENING, _CLOSING = _TAGS.opening, _TAGS.closing
_BEFORE_TOOLS: Final = (
    "\n\n## Tools\nYou have access to a set of tools you can use to answer the user's question.\n"
    f'You can invoke functions by writing a "{_OPENING}" block like the following as part of your reply to '
    f'the user:\n{_OPENING}\n<{DSML}invoke name="$FUNCTION_NAME">\n'
    f'<{DSML}parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</{DSML}parameter>\n...\n'
    f'</{DSML}invoke>\n<{DSML}invoke name="$FUNCTION_NAME2">\n...\n</{DSML}invoke>\n{_CLOSING}\n'
    "String and scalar parameters should be specified as is without any escaping or quotes, while lists and "
    'objects should use JSON format. The "string" attribute should be set to "true" for string type '
    'parameters and "false" for other types (numbers, booleans, arrays, objects).\n'
    "If the thinking_mode is enabled, then after function results you should strongly consider outputting a "
    f"thinking block. Here is an example:\n{_OPENING}\n...\n{_CLOSING}\n<function_results>\n...\n"
    "</function_results>\n<think>...thinking about results</think>\n"
    "Here are the functions available in JSONSchema format:\n<functions>\n"
)
_AFTER_TOOLS: Final = "\n</functions>\n"


def _render(conversation: Conversation, prompt: PromptBuilder) -> None:
    turns = conversation.turns
    asked = last_question(turns, "user")
    thinks = bool(conversation.effort)
    prompt.frame(BOS)
    if conversation.tools and (not turns or turns[0].role != "system"):
        _tools(conversation, prompt)
    for place, turn in enumerate(turns):
        wanted = conversation.generate or place < len(turns) - 1
        if turn.role == "system":
            prompt.text(turn.text)
            if conversation.tools and not place:
                _tools(conversation, prompt)
        elif turn.role == "user":
            prompt.frame(USER).text(turn.text)
            if wanted:
                prompt.frame(HEADER).reply().frame("<think>" if thinks and place == asked else "</think>")
        elif turn.role == "tool":
            last = _result(turns, place, prompt)
            if last and wanted:
                prompt.frame("\n\n").reply().frame("<think>" if thinks and place >= asked else "</think>")
        else:
            if place == 0 or turns[place - 1].role not in ("user", "tool"):
                prompt.reply()
            if thinks and place > asked:
                prompt.text(turn.reasoning or "").frame("</think>")
            prompt.text(turn.text)
            write_calls(turn.calls, _TAGS, prompt)
            prompt.frame(EOS)
    if conversation.generate and turns and turns[-1].role in ("assistant", "system"):
        prompt.reply()


def _tools(conversation: Conversation, prompt: PromptBuilder) -> None:
    prompt.frame(_BEFORE_TOOLS)
    prompt.text("\n".join([dumps(tool.get("function")) for tool in conversation.tools]))
    prompt.frame(_AFTER_TOOLS)


def _result(turns: Sequence[Turn], place: int, prompt: PromptBuilder) -> bool:
    """A tool's result; whether it is the last of its calls."""
    if place == 0 or turns[place - 1].role != "tool":
        prompt.frame("\n\n<function_results>")
    prompt.frame("\n<result>").text(turns[place].text).frame("</result>")
    if place < len(turns) - 1 and turns[place + 1].role == "tool":
        return False
    prompt.frame("\n</function_results>")
    return True


FAMILIES: Final = (
    Family(
        name="deepseek-v3.2",
        repos=(rf"[^/]+/DeepSeek-V3\.2(-Speciale)?{COPIES}",),
        kind=HYBRID,
        marks=MARKS,
        template=(USER, DSML, "function_calls"),
        render=_render,
        grammar=grammar(_TAGS),
        header=HEADER,
        stops=(EOS,),
        efforts=on_or_off(default=False, switch="thinking"),
        tools=True,
    ),
)
