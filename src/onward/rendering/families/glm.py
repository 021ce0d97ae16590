"""GLM-4.5 and later, up to GLM-5.2."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from onward.rendering.codecs.arg_key import MARKS, arg_key
from onward.rendering.codecs.call import dumps
from onward.rendering.families.conversation import Called, Conversation, Turn
from onward.rendering.families.family import HYBRID, Efforts, Family, Render, on_or_off
from onward.rendering.families.qwen3 import split_thought
from onward.rendering.families.qwen35 import written
from onward.rendering.families.repos import COPIES
from onward.rendering.parsing.grammar import NEWLINE, NEWLINES, NOTHING, Edge, Grammar, Says, State
from onward.rendering.prompt import PromptBuilder

_HEADER: Final = "<|assistant|>"
_NOTHINK: Final = "/nothink"
_BEFORE_TOOLS: Final = (
    "<|system|>\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
)
_AFTER_TOOLS: Final = (
    "</tools>\n\nFor each function call, output the function name and arguments within the following XML "
    "format:\n"
)
_HOW_IN_LINES: Final = (
    "<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>\n<arg_value>{arg-value-1}</arg_value>\n"
    "<arg_key>{arg-key-2}</arg_key>\n<arg_value>{arg-value-2}</arg_value>\n...\n</tool_call>"
)
_HOW: Final = (
    "<tool_call>{function-name}<arg_key>{arg-key-1}</arg_key><arg_value>{arg-value-1}</arg_value>"
    "<arg_key>{arg-key-2}</arg_key><arg_value>{arg-value-2}</arg_value>...</tool_call>"
)


# GLM-4.5 and GLM-4.6: every part on a line of its own.


def _render_45(conversation: Conversation, prompt: PromptBuilder) -> None:
    turns = conversation.turns
    prompt.frame("[gMASK]<sop>")
    if conversation.tools:
        prompt.frame(_BEFORE_TOOLS)
        for tool in conversation.tools:
            prompt.text(dumps(tool) + "\n")
        prompt.frame(_AFTER_TOOLS + _HOW_IN_LINES)
    asked = _last_question(turns)
    for place, turn in enumerate(turns):
        if turn.role == "user":
            _question_45(turn, prompt, thinks=bool(conversation.effort))
        elif turn.role == "assistant":
            _assistant_45(turn, prompt, recent=place > asked)
        elif turn.role == "tool":
            if not place or turns[place - 1].role != "tool":
                prompt.frame("<|observation|>")
            prompt.frame("\n<tool_response>\n").text(turn.text).frame("\n</tool_response>")
        else:
            prompt.frame("<|system|>\n").text(turn.text)
    if conversation.generate:
        prompt.frame(_HEADER).reply()
        if not conversation.effort:
            prompt.frame("\n<think></think>")


def _question_45(turn: Turn, prompt: PromptBuilder, *, thinks: bool) -> None:
    # A caller's own "/nothink" is a control token only where we would write it anyway.
    text = turn.text if thinks else turn.text.removesuffix(_NOTHINK)
    prompt.frame("<|user|>\n").text(text)
    if not thinks:
        prompt.frame(_NOTHINK)


def _assistant_45(turn: Turn, prompt: PromptBuilder, *, recent: bool) -> None:
    content, reasoning = turn.text, turn.reasoning
    if reasoning is None:
        reasoning, content = split_thought(content)
    prompt.frame(_HEADER).reply().frame("\n<think>")
    if recent:
        prompt.text(reasoning.strip())
    prompt.frame("</think>")
    if content.strip():
        prompt.text("\n" + content.strip())
    for call in turn.calls:
        prompt.frame("\n")
        _write_call(call, prompt, lines=True)


def _write_call(call: Called, prompt: PromptBuilder, *, lines: bool) -> None:
    line = "\n" if lines else ""
    prompt.frame("<tool_call>").text(call.name).frame(line)
    if call.value is None:
        prompt.text(call.arguments).frame(line)
    for name, value in (call.value or {}).items():
        prompt.frame("<arg_key>").text(name).frame(f"</arg_key>{line}<arg_value>")
        prompt.text(written(value, json_values=True)).frame(f"</arg_value>{line}")
    prompt.frame("</tool_call>")


# GLM-4.7 and later: no white space of the format's own.


def _renderer(*, empty: str, later: bool, fills: bool = False) -> Render:
    """How the models differ.

    `empty`: what stands for no thought. `later`: only the functions of tools are declared, and thoughts
    stay as they are, with their white space. `fills`: a message without a thought has an empty one if
    it is recent, or others of its turn have one.
    """

    def render(conversation: Conversation, prompt: PromptBuilder) -> None:
        turns = conversation.turns
        prompt.frame("[gMASK]<sop>")
        if isinstance(conversation.effort, str):
            prompt.frame(f"<|system|>Reasoning Effort: {conversation.effort}")
        if conversation.tools:
            prompt.frame(_BEFORE_TOOLS)
            for tool in conversation.tools:
                _declare(tool, prompt, function_alone=later)
            prompt.frame(_AFTER_TOOLS + _HOW)
        kept = _kept_thoughts(conversation, later=later, fills=fills)
        for place, turn in enumerate(turns):
            if turn.role == "assistant":
                reasoning, content = kept[place]
                prompt.frame(_HEADER).reply()
                if reasoning is None:
                    prompt.frame(empty)
                else:
                    prompt.frame("<think>").text(reasoning).frame("</think>")
                prompt.text(content.strip())
                for call in turn.calls:
                    _write_call(call, prompt, lines=False)
            elif turn.role == "tool":
                if not place or turns[place - 1].role != "tool":
                    prompt.frame("<|observation|>")
                prompt.frame("<tool_response>").text(turn.text).frame("</tool_response>")
            else:
                prompt.frame("<|user|>" if turn.role == "user" else "<|system|>").text(turn.text)
        if conversation.generate:
            prompt.frame(_HEADER).reply().frame("<think>" if conversation.effort else empty)

    return render


def _declare(tool: Mapping[str, Any], prompt: PromptBuilder, *, function_alone: bool) -> None:
    if function_alone:
        function = tool.get("function", tool)
        tool = cast("dict[str, Any]", function) if isinstance(function, dict) else {}
        if tool.get("defer_loading"):
            return
        tool = {name: value for name, value in tool.items() if name not in ("defer_loading", "strict")}
    prompt.text(dumps(tool) + "\n")


def _kept_thoughts(
    conversation: Conversation, *, later: bool, fills: bool
) -> Mapping[int, tuple[str | None, str]]:
    """Of each assistant message the thought that is written, if any, and the content."""
    turns = conversation.turns
    asked = _last_question(turns)
    everywhere = not conversation.flag("clear_thinking", default=True)
    thoughtful = _thoughtful(turns) if fills else frozenset[int]()
    kept: dict[int, tuple[str | None, str]] = {}
    for place, turn in enumerate(turns):
        if turn.role != "assistant":
            continue
        recent = place > asked
        content, reasoning = turn.text, turn.reasoning
        if reasoning is None and "</think>" in content:
            reasoning, content = _split(content) if later else split_thought(content)
        if reasoning is None and fills and (conversation.effort if recent else place in thoughtful):
            reasoning = ""
        if not later:
            reasoning = reasoning.strip() if reasoning else None
        kept[place] = (reasoning if everywhere or recent else None, content)
    return kept


def _thoughtful(turns: Sequence[Turn]) -> frozenset[int]:
    """The places of messages that follow a question some answer to which came with its reasoning."""
    questions: list[int] = []
    question = -1
    for place, turn in enumerate(turns):
        if turn.role == "user":
            question = place
        questions.append(question)
    answered = {questions[place] for place, turn in enumerate(turns) if turn.reasoning is not None}
    return frozenset(place for place, question in enumerate(questions) if question in answered - {-1})


def _split(content: str) -> tuple[str, str]:
    before, _, _ = content.partition("</think>")
    return before.rpartition("<think>")[2], content.rpartition("</think>")[2]


def _last_question(turns: Sequence[Turn]) -> int:
    return max((place for place, turn in enumerate(turns) if turn.role == "user"), default=-1)


def _grammar(*, trims: bool, bare_end: bool) -> Grammar:
    """`trims`: newlines around a thought are the format's. `bare_end`: ``</think>`` may stand alone.

    Those around the content are the format's in every version: the templates strip it.
    """
    around = NEWLINES if trims else NOTHING
    call = {"<tool_call>": Edge(to="call", trail=NEWLINE)}
    done = {"</think>": Edge(to="answer", trail=around, lead=NEWLINES)}
    start = {"<think>": Edge(to="reasoning", lead=around)} | call | (done if bare_end else {})
    states = {
        "start": State(says=Says.SPACE, edges=start, otherwise="answer", ends=True),
        "reasoning": State(says=Says.REASONING, edges=done, ends=True),
        "answer": State(says=Says.CONTENT, edges=call, ends=True),
        "call": State(
            says=Says.CALL, edges={"</tool_call>": Edge(to="called", close=True)}, keeps=frozenset(MARKS)
        ),
        "called": State(says=Says.SPACE, edges=call, otherwise="answer", ends=True),
    }
    return Grammar(start="start", states=states, codec=arg_key)


_STOPS: Final = ("<|user|>", "<|observation|>", "<|endoftext|>")
_OURS: Final = ("[gMASK]<sop>", "<|observation|>", "<arg_key>{arg-key-1}")
_CONTROL: Final = (
    *("[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>", "<think>"),
    *("</think>", "<tool_call>", "</tool_call>", *MARKS),
)
_IN_LINES: Final = "<tool_call>{function-name}\n"


def _family(
    name: str,
    repo: str,
    *,
    render: Render,
    grammar: Grammar,
    template: tuple[str, ...],
    lacks: tuple[str, ...],
    efforts: Efforts | None = None,
) -> Family:
    return Family(
        name=name,
        repos=(rf"(zai-org|unsloth)/{repo}{COPIES}",),
        kind=HYBRID,
        marks=_CONTROL,
        template=(*_OURS, *template),
        template_lacks=lacks,
        render=render,
        grammar=grammar,
        header=_HEADER,
        stops=_STOPS,
        efforts=efforts or on_or_off(),
        tools=True,
    )


_EFFORTS_52: Final = Efforts(
    values={True: "Max", False: False, "none": False, "high": "High", "max": "Max"},
    default="Max",
    switch="enable_thinking",
)

FAMILIES: Final = (
    _family(
        "glm-4.5",
        r"GLM-4\.(5|5-Air|6)",
        render=_render_45,
        grammar=_grammar(trims=True, bare_end=False),
        template=(_IN_LINES, _NOTHINK),
        lacks=("<|image|>", "<|begin_of_image|>"),
    ),
    _family(
        "glm-4.7",
        r"GLM-(4\.7|4\.7-Flash|5)",
        render=_renderer(empty="</think>", later=False),
        grammar=_grammar(trims=True, bare_end=True),
        template=("clear_thinking",),
        lacks=(_IN_LINES, "tool_to_json", "<|begin_of_image|>"),
    ),
    _family(
        "glm-5.1",
        r"GLM-5\.1",
        render=_renderer(empty="</think>", later=True, fills=True),
        grammar=_grammar(trims=False, bare_end=True),
        template=("tool_to_json", "thinking_indices"),
        lacks=(),
    ),
    _family(
        "glm-5.2",
        r"GLM-5\.2",
        render=_renderer(empty="<think></think>", later=True),
        grammar=_grammar(trims=False, bare_end=False),
        template=("tool_to_json", "Reasoning Effort: "),
        # GLM-5.3 always reasons, has a third effort, and sorts the results of tools by their calls.
        lacks=("thinking_indices", "['low', 'high']"),
        efforts=_EFFORTS_52,
    ),
)
