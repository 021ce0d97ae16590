"""Completions of the `tinker` dialect over HTTP, with the real model: TC-1 to TC-12."""

import pytest

from tests.api import Api
from tests.dialects.conftest import CONTEXT, REPO
from tests.dialects.test_tinker import UNLISTED
from tests.dialects.tinker_refusals import PNG, image, tokens

FRANCE = "The capital of France is"
COUNT = "one two three one two three one two three one two three"
CHECKPOINT = "tinker://run-1/sampler_weights/step-9"


async def refused(tinker: Api, status: int, **body) -> dict:
    response = await tinker.post("completions", {"prompt": FRANCE, "max_tokens": 4, **body})
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


def choice(answer: dict) -> dict:
    assert len(answer["choices"]) == 1
    return answer["choices"][0]


@pytest.mark.covers("TC-1", "TC-11")
@pytest.mark.parametrize("model", [REPO, f"{REPO}:peft:262144", "small"])
async def test_a_base_model_answers_under_the_name_that_was_asked_for(tinker, model):
    answer = await tinker.complete(model=model, prompt=FRANCE, max_tokens=4, temperature=0)
    assert answer["model"] == model
    assert "Paris" in choice(answer)["text"]


@pytest.mark.covers("TC-1")
@pytest.mark.parametrize(
    "model",
    ["org/Unknown", "org/Unknown:peft:8", CHECKPOINT, f"{REPO};{CHECKPOINT}", f"org/Unknown;{CHECKPOINT}"],
)
async def test_an_unknown_model_or_checkpoint_is_404(tinker, model):
    for options in ({}, {"stream": True}):
        error = await refused(tinker, 404, model=model, **options)
        assert (error["code"], error["param"]) == ("model_not_found", "model")


@pytest.mark.covers("TC-2", "TC-3")
async def test_one_prompt_in_any_form_is_the_same_prompt(tinker):
    ask = {"max_tokens": 6, "temperature": 0, "return_token_ids": True}
    text = choice(await tinker.complete(prompt=FRANCE, **ask))
    ids = text["prompt_token_ids"]
    for prompt in ([FRANCE], ids, [ids]):
        assert choice(await tinker.complete(prompt=prompt, **ask)) == text
    chunks = [tokens(*ids[:2]), tokens(), tokens(*ids[2:])]
    in_parts = choice(await tinker.complete(prompt_chunks=chunks, **ask))
    assert in_parts == {key: value for key, value in text.items() if key != "prompt_token_ids"}


@pytest.mark.covers("TC-3")
async def test_ids_are_used_as_they_are(tinker, tokenizer):
    """Not the tokenizer's own way to write the text, and it stays like that."""
    letters = [token for letter in "Hello Hello" for token in tokenizer.encode(letter, control=False)]
    assert letters != tokenizer.encode_prompt("Hello Hello")
    answer = await tinker.complete(prompt=letters, max_tokens=1, return_token_ids=True)
    assert choice(answer)["prompt_token_ids"] == letters
    assert answer["usage"]["prompt_tokens"] == len(letters)
    turn = await tinker.complete(prompt="<|im_start|>user", max_tokens=1, return_token_ids=True)
    assert choice(turn)["prompt_token_ids"][0] == tokenizer.control_id("<|im_start|>")


@pytest.mark.covers("TC-3")
@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prompt": [1, 49152]}, "prompt[1]"),
        ({"prompt": [[5, 2**31 - 1]]}, "prompt[0][1]"),
        ({"prompt": [-1]}, "prompt[0]"),
        ({"prompt": [True]}, "prompt[0]"),
        ({"prompt": None, "prompt_chunks": [tokens(5), tokens(5, 49152)]}, "prompt_chunks[1].tokens[1]"),
        ({"stop": [49152]}, "stop[0]"),
    ],
)
async def test_ids_that_the_model_has_not_are_refused(tinker, body, param):
    assert (await refused(tinker, 400, **body))["param"] == param


@pytest.mark.covers("TC-4")
@pytest.mark.parametrize("limit", [{}, {"max_tokens": 100_000}], ids=["unset", "beyond the context"])
@pytest.mark.parametrize("stream", [False, True])
async def test_generation_runs_to_the_end_of_the_context(tinker, tokenizer, limit, stream):
    ids = (tokenizer.encode_prompt(COUNT) * 60)[: CONTEXT - 12]
    ask = {"prompt": ids, "temperature": 0, **limit}
    usage = {"stream_options": {"include_usage": True}} if stream else {}
    answer = await (tinker.stream_complete if stream else tinker.complete)(**ask, **usage)
    assert choice(answer)["finish_reason"] == "length"
    assert answer["usage"]["total_tokens"] == CONTEXT


@pytest.mark.covers("TC-4")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_prompt_that_does_not_fit_is_told_both_lengths(tinker, stream):
    for form, param in (("prompt", "prompt"), ("prompt_chunks", "prompt_chunks")):
        ids = [5] * (CONTEXT + 1)
        value = ids if form == "prompt" else [tokens(*ids)]
        error = await refused(tinker, 400, **{"prompt": None, form: value}, stream=stream)
        assert (error["code"], error["param"]) == ("context_length_exceeded", param)
        assert str(CONTEXT + 1) in error["message"]
        assert f"{CONTEXT} tokens" in error["message"]


@pytest.mark.covers("TC-5")
async def test_sampling_is_what_was_asked_for(tinker):
    greedy = choice(await tinker.complete(prompt=COUNT, max_tokens=8, temperature=0))
    for one_left in ({"top_k": 1}, {"top_p": 1e-6}):
        assert choice(await tinker.complete(prompt=COUNT, max_tokens=8, **one_left)) == greedy
    ask = {"prompt": "Once upon a time", "max_tokens": 12}
    seeded = [choice(await tinker.complete(**ask, seed=seed)) for seed in (3, 3, 4)]
    assert seeded[0] == seeded[1] != seeded[2]
    free = {choice(await tinker.complete(**ask))["text"] for _ in range(3)}
    assert len(free) > 1
    for everything in ({"top_k": -1}, {"top_k": 0}, {"top_p": 1}):
        assert choice(await tinker.complete(**ask, seed=3, **everything)) == seeded[0]
    for hot in (2.5, 1e300):
        assert choice(await tinker.complete(**ask, temperature=hot))["text"]


@pytest.mark.covers("TC-6")
async def test_the_stop_is_not_in_the_output(tinker):
    ask = {"prompt": COUNT, "max_tokens": 12, "temperature": 0, "return_token_ids": True}
    free = choice(await tinker.complete(**ask))
    text = free["text"]
    spanning = text[2:9]  # inside words and over their borders
    for stop in (spanning, [spanning], [*(f"no such text {n}" for n in range(100)), spanning]):
        whole = choice(await tinker.complete(**ask, stop=stop))
        assert (whole["text"], whole["finish_reason"]) == (text[:2], "stop")
        assert choice(await tinker.stream_complete(**ask, stop=stop)) == whole
    end = free["token_ids"][3]
    whole = choice(await tinker.complete(**ask, stop=[end]))
    assert whole["finish_reason"] == "stop"
    assert whole["token_ids"] == free["token_ids"][: free["token_ids"].index(end) + 1]
    assert text.startswith(whole["text"])
    assert whole["text"] != text


@pytest.mark.covers("TC-7")
@pytest.mark.parametrize(
    ("options", "asked"),
    [({}, False), ({"stream_options": {}}, False), ({"stream_options": {"include_usage": True}}, True)],
)
async def test_usage_is_on_the_last_chunk_if_asked_for(tinker, options, asked):
    ask = {"prompt": FRANCE, "max_tokens": 4, "temperature": 0}
    events = [event async for event in tinker.events("completions", **ask, **options)]
    assert all(event.get("usage") is None for event in events[:-1])
    assert all(len(event["choices"]) == 1 for event in events[:-1])
    if asked:
        assert events[-1]["choices"] == []
        usage = dict(events[-1]["usage"])
        assert usage.pop("prompt_tokens_details")["cached_tokens"] <= usage["prompt_tokens"]
        assert usage == {"prompt_tokens": 5, "completion_tokens": 4, "total_tokens": 9}
    else:
        assert events[-1]["choices"][0]["finish_reason"] == "length"
        assert "usage" not in events[-1]


@pytest.mark.covers("TC-8")
async def test_token_ids_are_told_if_asked_for(tinker, tokenizer):
    ask = {"prompt": "日本語日本語日本語", "max_tokens": 12, "temperature": 0}
    plain = choice(await tinker.complete(**ask))
    assert set(plain) == {"index", "text", "finish_reason", "logprobs"}
    whole = choice(await tinker.complete(**ask, return_token_ids=True))
    assert whole["text"] == plain["text"]
    assert whole["prompt_token_ids"] == tokenizer.encode_prompt(ask["prompt"])
    assert len(whole["token_ids"]) == 12
    events = [event async for event in tinker.events("completions", **ask, return_token_ids=True)]
    pieces = [event["choices"][0] for event in events]
    assert ["prompt_token_ids" in piece for piece in pieces] == [True] + [False] * (len(pieces) - 1)
    assert pieces[0]["prompt_token_ids"] == whole["prompt_token_ids"]
    assert [token for piece in pieces for token in piece["token_ids"]] == whole["token_ids"]


@pytest.mark.covers("TC-8")
async def test_token_ids_are_the_next_prompt(tinker):
    first = choice(await tinker.complete(prompt=COUNT, max_tokens=6, temperature=0, return_token_ids=True))
    longer = choice(await tinker.complete(prompt=COUNT, max_tokens=12, temperature=0, return_token_ids=True))
    ids = first["prompt_token_ids"] + first["token_ids"]
    second = choice(await tinker.complete(prompt=ids, max_tokens=6, temperature=0, return_token_ids=True))
    assert second["prompt_token_ids"] == ids
    assert first["token_ids"] + second["token_ids"] == longer["token_ids"]


@pytest.mark.covers("TC-9")
@pytest.mark.parametrize("count", [0, 1, 20])
async def test_log_probabilities_have_so_many_alternatives(tinker, count):
    ask = {"prompt": FRANCE, "max_tokens": 5, "temperature": 1.5, "seed": 7, "logprobs": count}
    whole = choice(await tinker.complete(**ask))
    logprobs = whole["logprobs"]
    assert set(logprobs) == {"tokens", "token_logprobs", "top_logprobs", "text_offset"}
    assert "".join(logprobs["tokens"]) == whole["text"]
    for token, logprob, top in zip(
        logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True
    ):
        assert top[token] == logprob <= 0
        assert max(count, 1) <= len(top) <= count + 1
    offsets = [len("".join(logprobs["tokens"][:place])) for place in range(5)]
    assert logprobs["text_offset"] == offsets
    assert choice(await tinker.stream_complete(**ask)) == whole


@pytest.mark.covers("TC-10")
@pytest.mark.fault("D21")
async def test_a_model_that_takes_no_images_says_which_part_is_one(tinker):
    chunks = [tokens(5), image(PNG), tokens(6)]
    for stream in (False, True):
        error = await refused(tinker, 400, prompt=None, prompt_chunks=chunks, stream=stream)
        assert error["param"] == "prompt_chunks[1]"


@pytest.mark.covers("TC-11")
async def test_a_completion_has_the_documented_shape(tinker):
    answer = await tinker.complete(prompt=FRANCE, max_tokens=4, temperature=0)
    assert answer["id"].startswith("cmpl-")
    assert isinstance(answer["created"], int)
    cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert 0 <= cached <= 5
    assert answer == {
        "id": answer["id"],
        "object": "text_completion",
        "created": answer["created"],
        "model": REPO,
        "choices": [
            {
                "index": 0,
                "text": answer["choices"][0]["text"],
                "finish_reason": "length",
                "logprobs": None,
            }
        ],
        "usage": {
            "prompt_tokens": 5,
            "completion_tokens": 4,
            "total_tokens": 9,
            "prompt_tokens_details": {"cached_tokens": cached},
        },
    }


@pytest.mark.covers("TC-12")
async def test_fields_that_are_not_listed_change_nothing(tinker):
    ask = {"prompt": FRANCE, "max_tokens": 4, "temperature": 0}
    plain = choice(await tinker.complete(**ask))
    assert choice(await tinker.complete(**ask, **UNLISTED)) == plain
    assert choice(await tinker.stream_complete(**ask, **UNLISTED)) == plain
