"""The bytes of answers, surface by surface, streamed and not, with fixed IDs and times.

`python -m tests.golden.test_transcripts` writes them anew: read the difference before it is kept.
"""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from onward.core.delta import ChoiceDelta, FinishReason, TokenEntry, TokenSpelling, ToolCallDelta, fold
from onward.core.failure import Failure, FailureKind
from onward.core.request import ChatRequest, CompletionRequest
from onward.core.usage import Usage
from onward.dialects import DIALECTS
from onward.dialects.schema import Action
from onward.wire.chat import ChatEncoder
from onward.wire.completions import CompletionEncoder
from onward.wire.requests import chat_request, completion_request

FOLDER = Path(__file__).parent
STOP = FinishReason.STOP


def entry(token: int, text: str, logprob: float | None, offset: int, own: bytes | None = b"") -> TokenEntry:
    spelled = TokenSpelling(token, text, text.encode() if own == b"" else own, logprob)
    other = TokenSpelling(900, " other", b" other", -2.5)
    return TokenEntry(spelled, None if logprob is None else [spelled, other], offset)


PLAIN = [
    ChoiceDelta(index=0, text=" Paris"),
    ChoiceDelta(index=0, text='. "Caf\u00e9"\n\U0001f600'),
    ChoiceDelta(index=0, finish=STOP),
]
SAMPLED = [
    ChoiceDelta(
        index=1, text="", token_ids=[7], entries=[entry(7, r"bytes:\xf0\x9f", -0.25, 7, b"\xf0\x9f")]
    ),
    ChoiceDelta(index=0, text=" sat", token_ids=[3], entries=[entry(3, " sat", -0.125, 7)]),
    ChoiceDelta(
        index=1,
        text="\U0001f600",
        token_ids=[8],
        entries=[entry(8, r"bytes:\x98\x80", -0.5, 7, b"\x98\x80")],
        prompt_token_ids=None,
        finish=FinishReason.LENGTH,
    ),
    ChoiceDelta(index=0, token_ids=[0], entries=[entry(0, "<|end|>", -9999.0, 11, None)], finish=STOP),
]
CALLS = [
    ChoiceDelta(index=0, reasoning="Look it up."),
    ChoiceDelta(index=0, tool_calls=[ToolCallDelta(0, "call_a", "weather", '{"city": "')]),
    ChoiceDelta(index=0, tool_calls=[ToolCallDelta(0, arguments='Paris"}')]),
    ChoiceDelta(
        index=0, tool_calls=[ToolCallDelta(1, "call_b", "time", "{}")], finish=FinishReason.TOOL_CALLS
    ),
]
ECHOED = ChoiceDelta(
    index=0,
    text="The cat",
    entries=[entry(1, "The", None, 0), entry(2, " cat", -1.5, 3)],
    prompt_token_ids=[1, 2],
)
RENDERED = ChoiceDelta(index=0, prompt_token_ids=[1, 2])
USAGE = Usage(prompt_tokens=2, completion_tokens=4, cached_tokens=1)
USER = [{"role": "user", "content": "hi"}]

CASES: dict[str, tuple[str, dict[str, Any], list[ChoiceDelta]]] = {
    "completions-plain": ("completions", {"prompt": "p"}, PLAIN),
    "completions-everything": (
        "completions",
        {"prompt": "p", "n": 2, "echo": True, "logprobs": 1, "return_token_ids": True, "usage": True},
        [ECHOED, *SAMPLED],
    ),
    "chat-plain": ("chat", {"messages": USER}, PLAIN),
    "chat-everything": (
        "chat",
        {
            "messages": USER,
            "n": 2,
            "logprobs": True,
            "top_logprobs": 1,
            "return_token_ids": True,
            "usage": True,
        },
        [RENDERED, *SAMPLED],
    ),
    "chat-calls": ("chat", {"messages": USER}, CALLS),
}


def transcript(dialect_name: str, case: str) -> bytes:
    """Unstreamed, streamed, and broken off after the first delta."""
    dialect = DIALECTS[dialect_name]
    surface, fields, deltas = CASES[case]
    refused = {one.name for one in dialect.surfaces[surface].fields if one.action is Action.REJECT}
    body = {"model": "org/model", **{name: value for name, value in fields.items() if name not in refused}}
    usage = USAGE
    if dialect.response.media_usage and surface == "chat":
        usage = msgspec.structs.replace(USAGE, input_images=1)
    if body.pop("usage", False):
        body |= {"stream": True, "stream_options": {"include_usage": True}}

    request: CompletionRequest | ChatRequest
    if surface == "completions":
        request = completion_request(dialect, body)
        # where echo is no field, nothing is echoed
        deltas = [delta if request.echo or delta is not ECHOED else RENDERED for delta in deltas]
    else:
        request = chat_request(dialect, body)
    deltas = [delta for delta in deltas if delta.index < request.n]

    def encoder() -> CompletionEncoder | ChatEncoder:
        made = CompletionEncoder if isinstance(request, CompletionRequest) else ChatEncoder
        return made(dialect, request, id="0001", created=1700000000)

    streamed, broken = encoder(), encoder()
    failure = Failure(FailureKind.ENGINE_FAILED, "The engine stopped. Send the request again.")
    return b"\n".join(
        [
            b"# unstreamed",
            encoder().body(fold(deltas), usage),
            b"\n# streamed",
            b"".join(streamed.events(delta, usage) for delta in deltas) + streamed.end(usage),
            b"# broken off",
            broken.events(deltas[0], usage) + broken.failure(failure),
        ]
    )


@pytest.mark.covers("O-1", "O-2", "O-3", "O-5", "TC-8", "TC-11", "TH-4", "TH-12", "TH-15", "P-6", "P-10")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_bytes_are_those_that_were_agreed_on(dialect: str, case: str) -> None:
    assert transcript(dialect, case) == (FOLDER / f"{dialect}-{case}.txt").read_bytes()


if __name__ == "__main__":
    for name in DIALECTS:
        for case in CASES:
            (FOLDER / f"{name}-{case}.txt").write_bytes(transcript(name, case))
