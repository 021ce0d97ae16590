"""What the mock provider says: the words for its misbehaviour, its bodies and events, how it counts tokens.

Nothing is random, so a test can compute what a request costs (`prompt_tokens`, `completion_tokens`).
"""

import json
import re
from dataclasses import dataclass, fields, replace
from typing import Any, Self

CREATED = 1_700_000_000
SECRET = "sk-the-operators-own-secret"
"""Stands in the messages of refusals: it must reach no caller and no log."""
_ORDER = re.compile(r"\[\[([a-z0-9_]+)(?:=([^\]]*))?\]\]")
_USUAL_TOKENS = 5


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """How a request is answered. In a prompt: ``[[status=500]] [[retry_after=7]] [[no_done]]``.

    Counts of events begin with 0: ``cut=2`` sends two events. Times are in seconds.
    """

    # When, and how much of it

    delay: float = 0
    """Before the header."""
    pause: float = 0
    """Before each event."""
    never: bool = False
    """Reads the request and says nothing, for ever."""
    silent: bool = False
    """Sends the header and nothing more, for ever."""
    stall: int | None = None
    """Sends nothing more after as many events (whole answers: bytes), for ever."""
    hums: int | None = None
    """Sends nothing but comments instead of that event, for ever (streams only)."""
    hold: int | None = None
    """Waits for `MockProvider.let_go` before that event (whole answers: before the header)."""
    cut: int | None = None
    """Drops the connection after as many events (whole answers: bytes of the body)."""
    reset: bool = False
    """...with RST rather than FIN; without `cut`: instead of an answer."""
    drop: bool = False
    """Closes the connection instead of an answer."""
    drip: bool = False
    """One byte per packet."""
    length: int = 0
    """Added to the real content-length (whole answers only)."""

    # HTTP

    status: int = 200
    retry_after: str | None = None
    content_type: str | None = None
    html: bool = False
    """An error page of HTML (with `status` 200 too)."""
    encoding: str | None = None
    """A content-encoding it claims."""
    interim: bool = False
    """100 and 103 before the answer."""
    http10: bool = False
    """HTTP/1.0, the body ends with the connection."""
    close: bool = False
    """`connection: close`."""
    close_after: bool = False
    """Closes the connection right after the answer, without a word."""
    keep_alive: str | None = None
    """The value of the header `keep-alive`."""
    extra: bool = False
    """Bytes that nobody asked for, behind the answer."""

    rejects: bool = False
    """A refusal, by `status` or by `error_event`, is for what the prompt says."""

    # Events

    crlf: bool = False
    no_space: bool = False
    """``data:{...}``"""
    comments: bool = False
    """A comment line before each event."""
    named: bool = False
    """An ``event:`` and an ``id:`` line in each event."""
    no_done: bool = False
    error_event: int | None = None
    """An error instead of that event, and nothing after it."""
    huge: int = 0
    """Bytes of an extra piece of text in the first event."""

    # Content

    tokens: int | None = None
    """Per choice. Else `max_tokens`, at most 5."""
    echo_model: bool = False
    """Says the name it was asked for; else a longer one of its own."""
    reasoning: int = 0
    """As many tokens of `reasoning_content` first."""
    tools: bool = False
    """Two calls, their deltas interleaved."""
    logprobs: bool = False
    broken_json: bool = False
    branded: bool = False
    """Names itself: in members of its own, in comments."""
    bare: bool = False
    """Tells no `id`, `object` and `created`."""
    redacted: bool = False
    """Thinking that cannot be read (`/messages` alone, as are the next two)."""
    pings: bool = False
    """A ping behind each event."""
    stop_reason: str | None = None
    stop_sequence: str | None = None
    """What ended the answer."""

    # Usage

    usage: str = "asked"
    """``asked``: as a stream's `include_usage` says, always in whole answers; ``always``; ``never``."""
    usage_on_last: bool = False
    """In the event that says why the choice ended, not in one of its own."""
    usage_null: bool = False
    """``usage: null`` in every other event."""
    usage_each: bool = False
    """What there is so far, in every event."""
    cached: int = 0
    """Of the prompt's tokens."""
    cache_creation: int = 0
    """Of the prompt's tokens, written to the cache (`/messages` alone)."""
    counts: str | None = None
    """``900/70``: what it says instead of the true numbers."""

    @classmethod
    def parse(cls, text: str, base: "Behaviour | None" = None) -> "Behaviour":
        """What stands in a prompt, over `base`."""
        known = {field.name: field.type for field in fields(cls)}
        changes: dict[str, Any] = {}
        for name, value in _ORDER.findall(text):
            kind = known[name]  # a typing mistake in a test
            if kind is bool:
                changes[name] = value not in {"0", "false"}
            else:
                changes[name] = {float: float, str: str, str | None: str}.get(kind, int)(value)
        return replace(base or cls(), **changes)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request as the mock understands it."""

    body: dict[str, Any]
    chat: bool
    does: Behaviour

    @classmethod
    def read(cls, path: str, body: dict[str, Any], base: Behaviour) -> Self:
        return cls(body=body, chat="/chat/" in path, does=Behaviour.parse(prompt_text(body), base))

    @property
    def stream(self) -> bool:
        return bool(self.body.get("stream"))

    @property
    def choices(self) -> int:
        return prompts(self.body) * (self.body.get("n") or 1)

    @property
    def tokens(self) -> int:
        """Of each choice."""
        return tokens_each(self.body, self.does)

    @property
    def model(self) -> str:
        asked = str(self.body.get("model", ""))
        return asked if self.does.echo_model else f"{asked}-2026-01-01"

    @property
    def usage(self) -> dict[str, Any]:
        return usage_of(self.body, self.does)


# Counting


def prompt_text(body: dict[str, Any]) -> str:
    """All text of a request that its author wrote."""
    return " ".join(text for name in ("prompt", "system", "messages") for text in _texts(body.get(name)))


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for part in value for text in _texts(part)]
    if isinstance(value, dict):
        return [text for key in ("content", "text") for text in _texts(value.get(key))]
    return []


def prompts(body: dict[str, Any]) -> int:
    """How many prompts: a batch of strings, or of lists of token IDs, is several."""
    prompt = body.get("prompt")
    batch = isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list)
    return len(prompt) if batch else 1


def prompt_tokens(body: dict[str, Any]) -> int:
    """A token for each word and each token ID; three for each message."""
    prompt = body.get("prompt")
    parts = [one if isinstance(one, list) else [one] for one in prompt] if isinstance(prompt, list) else []
    ids = sum(isinstance(one, int) for part in parts for one in part)
    return ids + len(prompt_text(body).split()) + 3 * len(body.get("messages") or [])


def tokens_each(body: dict[str, Any], does: Behaviour | None = None) -> int:
    """Of one choice."""
    does = does or Behaviour.parse(prompt_text(body))
    if does.tokens is not None:
        return does.tokens
    most = body.get("max_completion_tokens") or body.get("max_tokens")
    return min(most, _USUAL_TOKENS) if isinstance(most, int) else _USUAL_TOKENS


def completion_tokens(body: dict[str, Any], does: Behaviour | None = None) -> int:
    """Of all choices, those that `best_of` threw away as well."""
    each = max(body.get("n") or 1, body.get("best_of") or 1)
    return prompts(body) * each * tokens_each(body, does)


def usage_of(body: dict[str, Any], does: Behaviour) -> dict[str, Any]:
    """The `usage` of an answer."""
    asked, made = prompt_tokens(body), completion_tokens(body, does)
    if does.counts is not None:
        asked, made = (int(part) for part in does.counts.split("/"))
    usage: dict[str, Any] = {"prompt_tokens": asked, "completion_tokens": made, "total_tokens": asked + made}
    if does.cached:
        usage["prompt_tokens_details"] = {"cached_tokens": does.cached}
    return usage


# Bodies


def refusal(asked: Asked, _: int) -> bytes:
    """The body of a status of 400 or more."""
    message = f"The key {SECRET} may not do this to model {asked.body.get('model')}."
    code = "content_filter" if asked.does.rejects else "no"
    return json.dumps({"error": {"message": message, "type": "refused", "code": code}}).encode()


BRAND = "Acme-Inference"
_BRANDED: dict[str, Any] = {"provider": BRAND, "system_fingerprint": f"fp_{BRAND}", "x": [{"by": BRAND}, "]"]}

PAGE = b"<html><head><title>502 Bad Gateway</title></head><body>nginx, upstream-7.internal</body></html>"


def whole(asked: Asked) -> bytes:
    """The body of an unstreamed answer."""
    if asked.does.broken_json:
        return b'{"choices":[{"text":"half'
    body = {
        "id": _id(asked),
        "object": "chat.completion" if asked.chat else "text_completion",
        "created": CREATED,
        "model": asked.model,
        "choices": [_choice(asked, n) for n in range(asked.choices)],
    }
    if asked.does.branded:
        body = {**_BRANDED, **body}
    if asked.does.bare:
        body = _bared(body)
    if asked.does.usage != "never":
        body["usage"] = asked.usage
    return json.dumps(body).encode()


def _choice(asked: Asked, n: int) -> dict[str, Any]:
    does = asked.does
    thought = does.reasoning if asked.chat else 0
    text = "".join(piece(k, n) for k in range(thought, asked.tokens))
    text = "x" * does.huge + text
    scores = _scores(asked, range(asked.tokens), n)
    made: dict[str, Any] = {"index": n, "logprobs": scores, "finish_reason": _finish(asked)}
    if not asked.chat:
        return {"text": text, **made}
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if does.reasoning:
        message["reasoning_content"] = "".join(piece(k, n) for k in range(does.reasoning))
    if does.tools:
        message["content"] = None
        message["tool_calls"] = [
            {"id": f"call_{k}", "type": "function", "function": {"name": f"f{k}", "arguments": '{"a": 1}'}}
            for k in range(2)
        ]
    return {"message": message, **made, **_stop(asked)}


def events(asked: Asked) -> list[bytes]:
    """A stream, each event whole, ``[DONE]`` too."""
    does = asked.does
    made = [
        _delta(asked, n, {"role": "assistant", "content": ""}) for n in range(asked.choices) if asked.chat
    ]
    if does.tools:
        made += _call_deltas(asked)
    else:
        made += [_delta(asked, n, k) for k in range(asked.tokens) for n in range(asked.choices)]
    made += [_delta(asked, n, None, last=True) for n in range(asked.choices)]
    counted = does.usage == "always" or (
        does.usage == "asked" and bool((asked.body.get("stream_options") or {}).get("include_usage"))
    )
    if does.usage_null or (counted and not does.usage_on_last):
        for event in made:
            event["usage"] = None
    if does.usage_each:
        for n, event in enumerate(made):
            event["usage"] = {**asked.usage, "completion_tokens": min(n, asked.usage["completion_tokens"])}
    if counted and does.usage_on_last:
        made[-1]["usage"] = asked.usage
    elif counted:
        made.append(_event(asked, []) | {"usage": asked.usage})
    if does.branded:
        made = [{"provider": BRAND, **event, **_BRANDED} for event in made]
    texts = [json.dumps(event) for event in made]
    if does.broken_json:
        texts[-1] = texts[-1][:-9]
    if does.error_event is not None:
        code = "content_filter" if does.rejects else 503
        error = {"error": {"message": f"overloaded, says {SECRET}", "type": "server_error", "code": code}}
        texts = [*texts[: does.error_event], json.dumps(error)]
    elif not does.no_done:
        texts.append("[DONE]")
    return [_framed(text, n, does) for n, text in enumerate(texts)]


def _framed(text: str, n: int, does: Behaviour) -> bytes:
    end = "\r\n" if does.crlf else "\n"
    lines = [f": {BRAND if does.branded else 'keep going'}", ""] if does.comments else []
    if does.named:
        lines += ["event: message", f"id: {n}"]
    lines.append(f"data:{text}" if does.no_space else f"data: {text}")
    return (end.join(lines) + end + end).encode()


def _id(asked: Asked) -> str:
    return "chatcmpl-mock" if asked.chat else "cmpl-mock"


def _event(asked: Asked, choices: list[Any]) -> dict[str, Any]:
    name = "chat.completion.chunk" if asked.chat else "text_completion"
    event = {"id": _id(asked), "object": name, "created": CREATED, "model": asked.model, "choices": choices}
    return _bared(event) if asked.does.bare else event


def _bared(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in {"id", "object", "created"}}


def _delta(asked: Asked, n: int, part: int | dict[str, Any] | None, *, last: bool = False) -> dict[str, Any]:
    """`part`: a token by its number, or the delta itself."""
    token = part if isinstance(part, int) else None
    text = "" if token is None else piece(token, n)
    if token == 0 and n == 0:
        text = "x" * asked.does.huge + text
    scores = _scores(asked, [] if token is None else [token], n)
    made = {"index": n, "logprobs": scores, "finish_reason": _finish(asked) if last else None}
    if not asked.chat:
        return _event(asked, [{"text": text, **made}])
    name = "reasoning_content" if token is not None and token < asked.does.reasoning else "content"
    delta = part if isinstance(part, dict) else {} if token is None else {name: text}
    made |= _stop(asked) if last else {}
    return _event(asked, [{"delta": delta, **made}])


def _call_deltas(asked: Asked) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for n in range(asked.choices):
        calls: list[dict[str, Any]] = [
            {
                "index": k,
                "id": f"call_{k}",
                "type": "function",
                "function": {"name": f"f{k}", "arguments": ""},
            }
            for k in range(2)
        ]
        pieces = [
            {"index": k, "function": {"arguments": part}} for part in ('{"a"', ": 1}") for k in range(2)
        ]
        made += [_delta(asked, n, {"tool_calls": [call]}) for call in calls + pieces]
    return made


def _finish(asked: Asked) -> str:
    if asked.does.tools:
        return "tool_calls"
    most = asked.body.get("max_completion_tokens") or asked.body.get("max_tokens")
    return "length" if asked.tokens == most else "stop"


def _stop(asked: Asked) -> dict[str, Any]:
    """As vLLM has it, where it is told what ended a choice of a chat."""
    told = asked.does.stop_sequence
    return {} if told is None else {"stop_reason": told}


def piece(token: int, choice: int = 0) -> str:
    """The text of a token."""
    return f" w{token}" if choice == 0 else f" w{token}c{choice}"


def _scores(asked: Asked, tokens: Any, n: int) -> dict[str, Any] | None:
    if not asked.does.logprobs:
        return None
    texts = [piece(token, n) for token in tokens]
    if asked.chat:
        return {
            "content": [{"token": text, "logprob": -0.5, "bytes": None, "top_logprobs": []} for text in texts]
        }
    return {
        "tokens": texts,
        "token_logprobs": [-0.5 for _ in texts],
        "top_logprobs": [{text: -0.5} for text in texts],
        "text_offset": [0 for _ in texts],
    }
