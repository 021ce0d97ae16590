"""SmolLM2 and SmolLM3."""

import time
from typing import Any, Final, cast

from onward.rendering.families.chatml import HEADER, STOPS, think_and_call
from onward.rendering.families.conversation import Conversation
from onward.rendering.families.family import HYBRID, Family, on_or_off
from onward.rendering.families.repos import COPIES
from onward.rendering.parsing.grammar import content_only
from onward.rendering.prompt import PromptBuilder

_SMOLLM2_SYSTEM: Final = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
_THINKING_SYSTEM: Final = (
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face. Your role as an assistant "
    "involves thoroughly exploring questions through a systematic thinking process before providing the "
    "final precise and accurate solutions. This requires engaging in a comprehensive cycle of analysis, "
    "summarizing, exploration, reassessment, reflection, backtracking, and iteration to develop well-"
    "considered thinking process. Please structure your response into two main sections: Thought and "
    "Solution using the specified format: <think> Thought section </think> Solution section. In the "
    "Thought section, detail your reasoning process in steps. Each step should include detailed "
    "considerations such as analysing questions, summarizing relevant findings, brainstorming new ideas, "
    "verifying the accuracy of the current steps, refining any errors, and revisiting previous steps. In "
    "the Solution section, based on various attempts, explorations, and reflections from the Thought "
    "section, systematically present the final solution that you deem correct. The Solution section "
    "should be logical, accurate, and concise and detail necessary steps needed to reach the conclusion."
)
_PLAIN_SYSTEM: Final = "You are a helpful AI assistant named SmolLM, trained by Hugging Face."
_BEFORE_XML_TOOLS: Final = (
    "You may call one or more functions to assist with the user query.\nYou are provided with function "
    "signatures within <tools></tools> XML tags:\n\n<tools>\n"
)
_AFTER_XML_TOOLS: Final = (
    "</tools>\n\nFor each function call, return a json object with function name and arguments within "
    '<tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": '
    "<args-json-object>}\n</tool_call>"
)
_BEFORE_PYTHON_TOOLS: Final = (
    "When you send a message containing Python code between '<code>' and '</code>' tags, it will be "
    "executed in a stateful Jupyter notebook environment, and you will then be given the output to continued "
    "reasoning in an agentic loop.\n\nYou can use the following tools in your python code like regular "
    "functions:\n<tools>\n"
)
_AFTER_PYTHON_TOOLS: Final = (
    "</tools>\n\nThe state persists between code executions: so variables that you define in one step are "
    "still available thereafter."
)


def _render_smollm2(conversation: Conversation, prompt: PromptBuilder) -> None:
    turns = conversation.turns
    if turns and turns[0].role != "system":
        prompt.frame(f"<|im_start|>system\n{_SMOLLM2_SYSTEM}<|im_end|>\n")
    for turn in turns:
        prompt.frame(f"<|im_start|>{turn.role}\n")
        if turn.role == "assistant":
            prompt.reply()
        prompt.text(turn.text).frame("<|im_end|>\n")
    if conversation.generate:
        prompt.frame(HEADER).reply()


def _render_smollm3(conversation: Conversation, prompt: PromptBuilder) -> None:
    thinks = _opening(conversation, prompt)
    for turn in conversation.turns:
        if turn.role in ("user", "tool"):
            prompt.frame("<|im_start|>user\n").text(turn.text).frame("<|im_end|>\n")
        elif turn.role == "assistant":
            prompt.frame(HEADER).reply()
            if not thinks:
                prompt.frame("<think>\n\n</think>\n")
            prompt.text(turn.text.lstrip("\n")).frame("<|im_end|>\n")
    if conversation.generate:
        prompt.frame(HEADER).reply()
        if not thinks:
            prompt.frame("<think>\n\n</think>\n")


def _opening(conversation: Conversation, prompt: PromptBuilder) -> bool:
    """The system message; whether the model is to reason."""
    turns = conversation.turns
    thinks = bool(conversation.effort)
    system = turns[0].text if turns and turns[0].role == "system" else ""
    if "/no_think" in system:
        thinks = False
    elif "/think" in system:
        thinks = True
    custom = system.replace("/no_think", "").replace("/think", "").rstrip()
    prompt.frame("<|im_start|>system\n")
    if "/system_override" in system:
        prompt.text(custom.replace("/system_override", "").rstrip()).frame("<|im_end|>\n")
        return thinks
    date = time.strftime("%d %B %Y", time.localtime(conversation.clock.unix()))
    prompt.frame(
        f"## Metadata\n\nKnowledge Cutoff Date: June 2025\nToday Date: {date}\n"
        f"Reasoning Mode: {'/think' if thinks else '/no_think'}\n\n## Custom Instructions\n\n"
    )
    if custom:
        prompt.text(custom).frame("\n\n")
    else:
        prompt.frame((_THINKING_SYSTEM if thinks else _PLAIN_SYSTEM) + "\n\n")
    _tools(conversation, prompt)
    return thinks


def _tools(conversation: Conversation, prompt: PromptBuilder) -> None:
    # The official template ends the system message only where there are tools.
    xml = list(conversation.tools) or _listed(conversation, "xml_tools")
    python = _listed(conversation, "python_tools")
    if not xml and not python:
        return
    prompt.frame("### Tools\n\n")
    if xml:
        prompt.frame(_BEFORE_XML_TOOLS)
        for tool in xml:
            prompt.text(f"{tool}\n")
        prompt.frame(_AFTER_XML_TOOLS)
    if python:
        prompt.frame(_BEFORE_PYTHON_TOOLS)
        for tool in python:
            prompt.text(f"{tool}\n")
        prompt.frame(_AFTER_PYTHON_TOOLS)
    prompt.frame("\n\n<|im_end|>\n")


def _listed(conversation: Conversation, name: str) -> list[Any]:
    value = conversation.options.get(name)
    return cast("list[Any]", value) if isinstance(value, list) else []


FAMILIES: Final = (
    Family(
        name="smollm2",
        repos=(rf"[^/]+/SmolLM2-(135M|360M|1\.7B)-Instruct{COPIES}",),
        marks=("<|im_start|>", "<|im_end|>"),
        template=("<|im_start|>", _SMOLLM2_SYSTEM),
        template_lacks=("tools",),
        render=_render_smollm2,
        grammar=content_only(),
        header=HEADER,
        stops=STOPS,
    ),
    Family(
        name="smollm3",
        repos=(rf"[^/]+/SmolLM3-3B{COPIES}",),
        kind=HYBRID,
        marks=("<|im_start|>", "<|im_end|>", "<think>", "</think>"),
        template=("## Metadata", "Reasoning Mode: ", "xml_tools"),
        render=_render_smollm3,
        grammar=think_and_call(),
        header=HEADER,
        stops=("<|im_end|>", "<|end_of_text|>"),
        efforts=on_or_off(),
        tools=True,
    ),
)
