"""Bodies to requests: the dialect reads the fields, and here they find their place."""

from typing import Any

from onward.core.failure import invalid
from onward.core.generate import Sampling
from onward.core.request import ChatRequest, CompletionRequest, Message, Thinking
from onward.core.tokenizing import DetokenizeRequest, TokenizeRequest
from onward.dialects.client_tools import ToolUse
from onward.dialects.interpreter import read
from onward.dialects.prompts import PromptList, StopList
from onward.dialects.schema import Dialect
from onward.dialects.tools import check_tool_choice

_NO_STOPS = StopList()
_NO_PROMPTS = PromptList([], batch=False)
_NO_TOOL_USE = ToolUse()


def completion_request(dialect: Dialect, body: dict[str, Any]) -> CompletionRequest:
    """A body of the `completions` surface. Raises `Failure` with the field that is wrong."""
    found = read(dialect.surfaces["completions"], body)
    prompts: PromptList = found["prompts"] or _NO_PROMPTS
    return CompletionRequest(
        prompts=prompts.items,
        prompt_chunks=found.get("prompt_chunks"),
        batch=prompts.batch,
        suffix=found.get("suffix"),
        echo=found.get("echo", False),
        best_of=found.get("best_of"),
        logprobs=found.get("logprobs"),
        **_output(found),
    )


def chat_request(dialect: Dialect, body: dict[str, Any]) -> ChatRequest:
    """A body of the `chat` surface. Raises `Failure` with the field that is wrong."""
    found = read(dialect.surfaces["chat"], body)
    return ChatRequest(
        tool_choice=found.get("tool_choice"),
        parallel_tool_calls=found.get("parallel_tool_calls", True),
        separate_reasoning=found.get("separate_reasoning", True),
        logprobs=(found.get("top_logprobs") or 0) if found.get("logprobs") else None,
        **_conversation(found),
        **_output(found),
    )


def messages_request(dialect: Dialect, body: dict[str, Any]) -> ChatRequest:
    """A body of the `messages` surface. Raises `Failure` with the field that is wrong."""
    found = read(dialect.surfaces["messages"], body)
    use: ToolUse = found["tool_choice"] or _NO_TOOL_USE
    tools: list[dict[str, Any]] = found["tools"]
    check_tool_choice(use.choice, tools, "tool_choice")
    messages: list[Message] = found["messages"]
    continues = messages[-1].role == "assistant"
    system: str | list[dict[str, str]] | None = found["system"]
    texts = [system] if isinstance(system, str) else [block["text"] for block in system or ()]
    if text := "\n".join(filter(None, texts)):
        messages = [Message(role="system", content=text), *messages]
    return ChatRequest(
        messages=messages,
        tools=tools,
        tool_choice=use.choice,
        parallel_tool_calls=use.parallel,
        thinking=_thinking(found["thinking"], found["output_config"]),
        continue_final_message=continues,
        add_generation_prompt=not continues,
        ordered=True,
        **_output({**found, "user": (found["metadata"] or {}).get("user_id")}),
    )


def _thinking(sent: dict[str, Any] | None, output: dict[str, Any] | None) -> Thinking | None:
    effort = (output or {}).get("effort")
    if sent is None:
        return Thinking(effort=effort) if effort else None
    kind, budget = sent["type"], sent["budget_tokens"]
    if kind == "enabled" and budget is None:
        raise invalid(
            "thinking.budget_tokens", "'thinking.budget_tokens' is required where 'thinking' is enabled."
        )
    on = {"enabled": True, "disabled": False}.get(kind)
    return Thinking(on=on, budget=budget, effort=effort, shown=sent["display"] != "omitted")


def render_request(dialect: Dialect, body: dict[str, Any]) -> ChatRequest:
    """A body of the `render` surface: a conversation, of which only the prompt is asked for."""
    found = read(dialect.surfaces["render"], body)
    return ChatRequest(model=found["model"], **_conversation(found))


def tokenize_request(dialect: Dialect, body: dict[str, Any]) -> TokenizeRequest:
    """A body of the `tokenize` surface: a text or a conversation."""
    found = read(dialect.surfaces["tokenize"], body)
    model = found["model"]
    chat = ChatRequest(model=model, **_conversation(found)) if found["messages"] is not None else None
    return TokenizeRequest(
        model=model, prompt=found["prompt"], add_special_tokens=found["add_special_tokens"], chat=chat
    )


def detokenize_request(dialect: Dialect, body: dict[str, Any]) -> DetokenizeRequest:
    """A body of the `detokenize` surface."""
    found = read(dialect.surfaces["detokenize"], body)
    return DetokenizeRequest(model=found["model"], tokens=found["tokens"])


def _conversation(found: dict[str, Any]) -> dict[str, Any]:
    continues = found.get("continue_final_message", False)
    opens = found.get("add_generation_prompt")
    return {
        "messages": found["messages"],
        "tools": found.get("tools") or [],
        "reasoning_effort": found.get("reasoning_effort"),
        "template_kwargs": found.get("template_kwargs") or {},
        "continue_final_message": continues,
        "add_generation_prompt": not continues if opens is None else opens,
    }


def _output(found: dict[str, Any]) -> dict[str, Any]:
    """What `OutputOptions` says; a dialect may know only some of it."""
    get = found.get
    stops: StopList = get("stop") or _NO_STOPS
    options: dict[str, bool] = get("stream_options") or {}
    include_usage = options.get("include_usage", False)
    more_stops: list[int] = get("stop_token_ids") or []
    return {
        "model": found["model"],
        "sampling": Sampling(
            temperature=get("temperature", 1.0),
            top_p=get("top_p", 1.0),
            top_k=get("top_k", 0),
            min_p=get("min_p", 0.0),
            presence_penalty=get("presence_penalty", 0.0),
            frequency_penalty=get("frequency_penalty", 0.0),
            repetition_penalty=get("repetition_penalty", 1.0),
            logit_bias=get("logit_bias") or {},
            seed=get("seed"),
        ),
        "max_tokens": get("max_tokens"),
        "unset_max_tokens": get("unset_max_tokens"),
        "model_max_tokens": get("model_max_tokens", False),
        "min_tokens": get("min_tokens", 0),
        "ignore_eos": get("ignore_eos", False),
        "n": get("n", 1),
        "stop": stops.texts,
        "stop_token_ids": stops.token_ids + more_stops if more_stops else stops.token_ids,
        "return_token_ids": get("return_token_ids", False),
        "stream": get("stream", False),
        "include_usage": include_usage,
        "continuous_usage": include_usage and options.get("continuous_usage_stats", False),
        "clip_to_context": get("clip_to_context", False),
        "user": get("user"),
    }
