"""Streamed = unstreamed, for every combination of echo, n, stop, logprobs and return_token_ids.

The scripted engine says what no real model can be made to say: partial characters, control
tokens, end tokens anywhere, and steps of any size. The two runs cut the same tokens differently.
"""

import asyncio
import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onward.core.delta import fold
from onward.core.request import ChatRequest, CompletionRequest, Message
from onward.dialects.openai import OPENAI
from onward.engines.scripted import ScriptedEngine
from onward.routing.catalog import Model
from onward.serve.model import ServedModel
from onward.serve.pipeline import prepare_chat, prepare_completion, run
from onward.wire.chat import ChatEncoder
from onward.wire.completions import CompletionEncoder
from tests.api import join_chat, join_completion

EMOJI = "naïve 😀日本語 one two three"


def served(tokenizer, renderer, tokens: list[int], cuts: random.Random) -> ServedModel:
    def script(request):
        rotated = list(tokens)
        random.Random(request.sampling.seed).shuffle(rotated)
        steps = []
        while rotated:
            size = cuts.randint(0, 4)
            steps.append(rotated[:size])
            rotated = rotated[size:]
        return steps

    model = Model(id="m", context_length=4096, capabilities=frozenset({"completions", "chat"}))
    return ServedModel(model, tokenizer, renderer, ScriptedEngine(script))


def answers(prepare, encoder, join, model_of, request):
    """The body of an unstreamed run and the joined events of a streamed one."""

    async def collect(cuts: int):
        job = await prepare(model_of(random.Random(cuts)), request, "r")
        return job, [delta async for delta in run(job)]

    job, deltas = asyncio.run(collect(1))
    body = json.loads(encoder(request).body(fold(deltas), job.usage))
    streamed = encoder(request)
    job, deltas = asyncio.run(collect(2))
    text = b"".join(streamed.events(delta, job.usage) for delta in deltas) + streamed.end(job.usage)
    lines = [line for line in text.decode().split("\n") if line]
    assert lines[-1] == "data: [DONE]"
    return body, join([json.loads(line.removeprefix("data: ")) for line in lines[:-1]])


@pytest.fixture(scope="module")
def pieces(tokenizer) -> list[int]:
    """Tokens worth mixing: words, parts of characters, control tokens."""
    return [*tokenizer.encode(EMOJI, control=False), 0, 1, 2, *range(260, 290), *range(100, 140)]


options = st.fixed_dictionaries(
    {
        "echo": st.booleans(),
        "n": st.integers(1, 3),
        "stop": st.lists(
            st.sampled_from([" two", "o t", "日", "e", " 😀", "zzz", "ee\n", "<|im_end|>"]), max_size=3
        ),
        "logprobs": st.none() | st.integers(0, 3),
        "return_token_ids": st.booleans(),
        "max_tokens": st.integers(0, 30),
        "ignore_eos": st.booleans(),
        "prompts": st.lists(st.just("one two") | st.just([260, 261, 1]), min_size=1, max_size=2),
        "include_usage": st.just(True),
    }
)


@pytest.mark.covers("O-1", "O-3", "TC-6", "TC-7", "TC-8", "TC-9")
@settings(max_examples=150, deadline=None)
@given(data=st.data(), asked=options, seed=st.integers(0, 2**32))
def test_completions(tokenizer, pieces, data, asked, seed):
    tokens = data.draw(st.lists(st.sampled_from(pieces), max_size=24))
    asked["echo"] = asked["echo"] or asked["max_tokens"] == 0
    request = CompletionRequest(model="m", sampling=_seeded(seed), **asked)
    body, streamed = answers(
        prepare_completion,
        lambda request: CompletionEncoder(OPENAI, request, id="cmpl-1", created=1),
        join_completion,
        lambda cuts: served(tokenizer, None, tokens, cuts),
        request,
    )
    assert streamed["choices"] == body["choices"]
    assert streamed["usage"] == body["usage"]
    for choice in body["choices"]:
        entries = choice["logprobs"]
        assert (entries is None) == (asked["logprobs"] is None)
        if entries:
            assert len({len(entries[name]) for name in entries}) == 1
            assert entries["text_offset"] == sorted(entries["text_offset"])
            assert not entries["text_offset"] or entries["text_offset"][-1] <= len(choice["text"])


@pytest.mark.covers("O-2", "O-3")
@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    n=st.integers(1, 3),
    stop=st.lists(st.sampled_from([" two", "日", "e"]), max_size=2),
    logprobs=st.none() | st.integers(0, 3),
    return_token_ids=st.booleans(),
    max_tokens=st.integers(1, 30),
    seed=st.integers(0, 2**32),
)
def test_chat(tokenizer, renderer, pieces, data, n, stop, logprobs, return_token_ids, max_tokens, seed):
    tokens = data.draw(st.lists(st.sampled_from(pieces), max_size=24))
    request = ChatRequest(
        model="m",
        messages=[Message(role="user", content="Hi")],
        n=n,
        stop=stop,
        logprobs=logprobs,
        return_token_ids=return_token_ids,
        max_tokens=max_tokens,
        sampling=_seeded(seed),
        include_usage=True,
    )
    body, streamed = answers(
        prepare_chat,
        lambda request: ChatEncoder(OPENAI, request, id="chatcmpl-1", created=1),
        join_chat,
        lambda cuts: served(tokenizer, renderer, tokens, cuts),
        request,
    )
    assert streamed["usage"] == body["usage"]
    for whole, joined in zip(body["choices"], streamed["choices"], strict=True):
        assert joined["message"]["content"] == whole["message"]["content"]
        for key in ("finish_reason", "logprobs", "token_ids", "prompt_token_ids"):
            assert joined.get(key) == whole.get(key)


def _seeded(seed: int):
    from onward.core.generate import Sampling

    return Sampling(seed=seed)
