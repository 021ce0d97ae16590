"""D10 to D14, D22: what comes out, streamed and not."""

import asyncio

import pytest
from tests.api import Api

STORY = {"prompt": "Once upon a time, in a small village,", "max_tokens": 40, "temperature": 0}


@pytest.mark.fault("D10")
@pytest.mark.covers("TC-6")
@pytest.mark.parametrize("case", ["early", "border", "inside", "two"])
async def test_stops_anywhere_in_the_text(api: Api, case: str):
    """A stop matches the text, wherever token borders lie."""
    free = await api.complete(**STORY, logprobs=0)
    text = free["choices"][0]["text"]
    tokens, offsets = (free["choices"][0]["logprobs"][name] for name in ("tokens", "text_offset"))
    long = next(at for at in range(3, len(tokens)) if len(tokens[at]) > 4)
    stop = {
        "early": text[5:8],
        "border": text[offsets[long] - 1 : offsets[long] + 2],
        "inside": tokens[long][1:4],
        "two": tokens[long] + tokens[long + 1],
    }[case]
    expected = text[: text.index(stop)]
    whole = await api.complete(**STORY, stop=stop, logprobs=0, return_token_ids=True)
    streamed = await api.stream_complete(
        **STORY, stop=[stop], logprobs=0, return_token_ids=True, stream_options={"include_usage": True}
    )
    choice = whole["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == (expected, "stop")
    assert streamed["choices"] == whole["choices"]
    assert streamed["usage"] == whole["usage"]
    covering = next(
        at for at in range(len(tokens)) if len("".join(tokens[: at + 1])) >= text.index(stop) + len(stop)
    )
    assert whole["usage"]["completion_tokens"] == covering + 1 == len(choice["token_ids"])


@pytest.mark.fault("D10")
@pytest.mark.covers("TC-6")
async def test_stops_by_token_id(api: Api):
    """A stop ID ends the output; it is in token_ids and not in the text."""
    free = await api.complete(**STORY, return_token_ids=True)
    ids = free["choices"][0]["token_ids"]
    at = next(i for i in range(4, len(ids)) if ids[i] not in ids[:i])
    for ask in (api.complete, api.stream_complete):
        choice = (await ask(**STORY, stop=[ids[at]], return_token_ids=True))["choices"][0]
        assert choice["token_ids"] == ids[: at + 1]
        assert choice["finish_reason"] == "stop"
        assert free["choices"][0]["text"].startswith(choice["text"])


@pytest.mark.fault("D11")
@pytest.mark.parametrize(
    "prompt", ["😀😀😀😀😀😀", "日本語日本語日本語", "naïve café " * 5, "The capital of France is"]
)
async def test_multibyte_text(api: Api, prompt: str):
    """Streamed text equals unstreamed text, and no character is broken before the end."""
    body = {"prompt": prompt, "max_tokens": 16, "temperature": 0}
    whole = (await api.complete(**body))["choices"][0]
    pieces = [event["choices"][0]["text"] async for event in api.events("completions", **body)]
    assert "".join(pieces) == whole["text"]
    assert all("\ufffd" not in piece for piece in pieces[:-1])
    if prompt.startswith("The"):
        assert whole["text"].startswith(" ")


@pytest.mark.fault("D12")
@pytest.mark.covers("TC-11")
async def test_finish_reasons(api: Api):
    """One finish reason for each choice, the same in both modes, also at the very last token."""
    free = await api.complete(**STORY, logprobs=0)
    text = free["choices"][0]["text"]
    tokens = free["choices"][0]["logprobs"]["tokens"]
    last = "".join(tokens[:5])[-2:]
    assert text.index(last) == len("".join(tokens[:5])) - 2
    cases = [
        ({"max_tokens": 3}, "length"),
        ({"stop": text[9:12]}, "stop"),
        ({"max_tokens": 5, "stop": last}, "stop"),
    ]
    for change, reason in cases:
        for ask in (api.complete, api.stream_complete):
            assert (await ask(**STORY | change))["choices"][0]["finish_reason"] == reason
    messages = [{"role": "user", "content": "Say hello."}]
    ended = await api.chat(messages=messages, temperature=0, max_tokens=300)
    exact = ended["usage"]["completion_tokens"]
    for ask in (api.chat, api.stream_chat):
        assert (await ask(messages=messages, temperature=0, max_tokens=exact))["choices"][0][
            "finish_reason"
        ] == "stop"
        assert (await ask(messages=messages, temperature=0, max_tokens=exact - 1))["choices"][0][
            "finish_reason"
        ] == "length"


@pytest.mark.fault("D13")
@pytest.mark.covers("TC-7", "O-1")
async def test_usage_in_streams(api: Api):
    """Usage comes only when asked for, in an event of its own before [DONE]."""
    body = {"prompt": ["A A A A", "1 2 3 4"], "n": 2, "max_tokens": 3, "temperature": 0}
    whole = await api.complete(**body)
    prompts = [len(await api.tokenize(prompt)) for prompt in body["prompt"]]
    assert whole["usage"]["prompt_tokens"] == sum(prompts)
    for options in (None, {}, {"include_usage": False}, {"include_usage": None}):
        events = [event async for event in api.events("completions", **body, stream_options=options)]
        assert all(event["choices"] for event in events)
    events = [
        event async for event in api.events("completions", **body, stream_options={"include_usage": True})
    ]
    assert events[-1]["choices"] == []
    counts = ("prompt_tokens", "completion_tokens", "total_tokens")
    assert [events[-1]["usage"][name] for name in counts] == [whole["usage"][name] for name in counts]
    assert all(event["usage"] is None for event in events[:-1])
    options = {"include_usage": True, "continuous_usage_stats": True}
    events = [event async for event in api.events("completions", **body, stream_options=options)]
    assert all(event["usage"]["prompt_tokens"] == sum(prompts) for event in events)


@pytest.mark.fault("D14")
@pytest.mark.covers("O-1")
async def test_indices_of_choices(api: Api):
    """Prompt by prompt, then by n; each choice whole and its own."""
    prompts = ["A A A A", "1 2 3 4", "x y x y"]
    body = {"prompt": prompts, "n": 2, "seed": 5, "max_tokens": 5}
    for ask in (api.complete, api.stream_complete):
        greedy = await ask(**body | {"temperature": 0})
        assert [choice["index"] for choice in greedy["choices"]] == list(range(6))
        for index, choice in enumerate(greedy["choices"]):
            alone = await api.complete(prompt=prompts[index // 2], max_tokens=5, temperature=0)
            assert choice["text"] == alone["choices"][0]["text"]
    assert (await api.complete(**body))["choices"] == (await api.stream_complete(**body))["choices"]


@pytest.mark.fault("D22")
@pytest.mark.covers("TC-5")
async def test_the_same_seed_gives_the_same_ids(api: Api):
    """Alone, beside others, and with the prompt cached."""
    body = {
        "prompt": "Once upon a time " * 20,
        "seed": 1234,
        "max_tokens": 24,
        "return_token_ids": True,
        "logprobs": 1,
    }
    first = (await api.complete(**body))["choices"][0]
    others = [asyncio.create_task(api.complete(prompt=f"Story {i}:", max_tokens=60)) for i in range(3)]
    beside = (await api.complete(**body))["choices"][0]
    await asyncio.gather(*others)
    cached = await api.complete(**body)
    assert cached["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    assert first == beside == cached["choices"][0]


@pytest.mark.fault("D22")
async def test_no_seed_differs_and_n_differs(api: Api):
    body = {"prompt": "Once upon a time", "max_tokens": 16}
    assert len({(await api.complete(**body))["choices"][0]["text"] for _ in range(5)}) > 1
    triple = await api.complete(**body, seed=1, n=3)
    assert len({choice["text"] for choice in triple["choices"]}) > 1
    assert (await api.complete(**body, seed=1, n=3))["choices"] == triple["choices"]
    for seed in (0, -1, 2**31, 2**63 - 1, -(2**63)):
        twice = [(await api.complete(**body, seed=seed))["choices"] for _ in range(2)]
        assert twice[0] == twice[1]
    response = await api.post("completions", {**body, "seed": 2**63})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "seed")
