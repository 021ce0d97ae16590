"""D01 to D05: log probabilities, echoed or not."""

import pytest
from tests.api import ARRAYS, Api

CAT = "The cat sat on the mat"


@pytest.mark.fault("D01")
@pytest.mark.covers("O-1", "TC-9")
async def test_prompt_scoring_is_there(api: Api):
    """Echo with logprobs covers each prompt token and the generated one."""
    ids = await api.tokenize(CAT)
    text = await api.complete(prompt=CAT, max_tokens=1, temperature=0, logprobs=1, echo=True)
    wrapped = await api.complete(prompt=[ids], max_tokens=1, temperature=0, logprobs=1, echo=True)
    choice = text["choices"][0]
    assert choice["text"].startswith(CAT)
    entries = choice["logprobs"]
    assert {len(entries[name]) for name in ARRAYS} == {len(ids) + 1}
    assert entries["token_logprobs"][0] is None
    assert entries["top_logprobs"][0] is None
    assert all(value <= 0 for value in entries["token_logprobs"][1:])
    assert len(set(entries["token_logprobs"][1:])) > 1
    assert wrapped["choices"][0]["logprobs"] == entries


@pytest.mark.fault("D01")
async def test_scoring_alone_samples_nothing(api: Api):
    """Echo with max_tokens 0 scores the prompt as with one token more."""
    scored = await api.complete(prompt=CAT, max_tokens=0, logprobs=3, echo=True)
    longer = await api.complete(prompt=CAT, max_tokens=1, temperature=0, logprobs=3, echo=True)
    choice = scored["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == (CAT, "length")
    assert scored["usage"]["completion_tokens"] == 0
    for name in ARRAYS:
        assert choice["logprobs"][name] == longer["choices"][0]["logprobs"][name][:-1]


@pytest.mark.fault("D02")
@pytest.mark.covers("O-2")
async def test_each_surface_has_its_own_shape_of_logprobs(api: Api):
    """Completions answer four arrays, chat a list of entries, neither the other's keys."""
    completion = (await api.complete(prompt=CAT, max_tokens=3, logprobs=2))["choices"][0]["logprobs"]
    assert set(completion) == set(ARRAYS)
    chat = await api.chat(
        messages=[{"role": "user", "content": "Hi"}], max_tokens=3, logprobs=True, top_logprobs=2
    )
    entries = chat["choices"][0]["logprobs"]
    assert set(entries) == {"content", "refusal"}
    assert len(entries["content"]) == chat["usage"]["completion_tokens"]
    for entry in entries["content"]:
        assert set(entry) == {"token", "logprob", "bytes", "top_logprobs"}
        assert 2 <= len(entry["top_logprobs"]) <= 3


@pytest.mark.fault("D03")
@pytest.mark.parametrize("stream", [False, True])
async def test_echo_of_token_ids(api: Api, stream: bool):
    """Echoed IDs spell the original text, piece by piece."""
    text = "line one\nline two\n\n  indented"
    ids = await api.tokenize(text)
    ask = api.stream_complete if stream else api.complete
    answer = await ask(prompt=ids, echo=True, logprobs=1, max_tokens=2, temperature=0)
    choice = answer["choices"][0]
    assert choice["text"].startswith(text)
    assert "".join(choice["logprobs"]["tokens"]) == choice["text"]
    assert all(piece and len(piece) < 12 for piece in choice["logprobs"]["tokens"][: len(ids)])


@pytest.mark.fault("D04")
@pytest.mark.parametrize("count", [0, 1, 5, 20])
async def test_number_of_alternatives(api: Api, count: int):
    """K alternatives and the generated token, with the very same float."""
    answer = await api.complete(prompt=CAT, max_tokens=6, seed=4, logprobs=count)
    entries = answer["choices"][0]["logprobs"]
    for token, logprob, top in zip(
        entries["tokens"], entries["token_logprobs"], entries["top_logprobs"], strict=True
    ):
        assert top[token] == logprob
        assert max(1, count) <= len(top) <= count + 1


@pytest.mark.fault("D04")
async def test_alternatives_off_and_out_of_range(api: Api):
    """Null is off; 21 and -1 are refused; top_logprobs needs logprobs."""
    assert (await api.complete(prompt=CAT, max_tokens=1, logprobs=None))["choices"][0]["logprobs"] is None
    for bad in (21, -1):
        response = await api.post("completions", {"prompt": CAT, "logprobs": bad})
        assert (response.status_code, response.json()["error"]["param"]) == (400, "logprobs")
    messages = [{"role": "user", "content": "Hi"}]
    for body in ({"logprobs": True, "top_logprobs": 21}, {"top_logprobs": 5}):
        response = await api.post("chat/completions", {"messages": messages, **body})
        assert (response.status_code, response.json()["error"]["param"]) == (400, "top_logprobs")
    for count in (0, 20):
        chat = await api.chat(messages=messages, max_tokens=2, logprobs=True, top_logprobs=count)
        assert all(
            len(entry["top_logprobs"]) in {count, count + min(count, 1)}
            for entry in chat["choices"][0]["logprobs"]["content"]
        )


@pytest.mark.fault("D05")
@pytest.mark.parametrize("stop", [None, ["\n"], [" the"]])
async def test_logprobs_survive_streaming(api: Api, stop: list[str] | None):
    """The stream's arrays joined are the unstreamed ones, and it has a finish reason."""
    body = {"prompt": CAT, "max_tokens": 24, "temperature": 0, "logprobs": 2, "stop": stop}
    whole = await api.complete(**body)
    assert (await api.stream_complete(**body))["choices"] == whole["choices"]
