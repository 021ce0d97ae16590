"""The mock provider does what it is told: other tests rest on that."""

import asyncio
import json

import httpx
import pytest

from tests.mock_answers import SECRET, Behaviour, completion_tokens, prompt_tokens
from tests.mock_provider import MockProvider


def say(text: str, **more: object) -> dict:
    return {"model": "m", "prompt": text, **more}


def chat(text: str, **more: object) -> dict:
    return {"model": "m", "messages": [{"role": "user", "content": text}], **more}


def post(mock: MockProvider, body: dict) -> httpx.Response:
    path = "/chat/completions" if "messages" in body else "/completions"
    return httpx.post(mock.base_url + path, json=body, timeout=10, verify=False)


def streamed(mock: MockProvider, body: dict) -> list[dict]:
    """The events of a stream, less `[DONE]`."""
    lines = post(mock, body | {"stream": True}).text.splitlines()
    data = [line.removeprefix("data:").strip() for line in lines if line.startswith("data:")]
    return [json.loads(one) for one in data if one != "[DONE]"]


@pytest.mark.parametrize(
    ("body", "prompt", "completion"),
    [
        (say("one two three"), 3, 5),
        (say("one", max_tokens=2), 1, 2),
        (say("one [[tokens=40]]", max_tokens=2), 2, 40),
        (say("one", n=3, max_tokens=2), 1, 6),
        (say("one", n=2, best_of=4, max_tokens=2), 1, 8),
        ({"prompt": ["a b", "c"], "n": 2}, 3, 20),
        ({"prompt": [1, 2, 3, 4]}, 4, 5),
        ({"prompt": [[1, 2], [3]]}, 3, 10),
        (chat("one two"), 5, 5),
        (chat("one", max_completion_tokens=1), 4, 1),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "text", "text": "a b"}]},
                    {"role": "assistant"},
                ]
            },
            8,
            5,
        ),
    ],
)
def test_what_is_billed_can_be_computed(mock: MockProvider, body, prompt, completion):
    assert (prompt_tokens(body), completion_tokens(body)) == (prompt, completion)
    usage = post(mock, body).json()["usage"]
    assert usage == {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    events = streamed(mock, body | {"stream_options": {"include_usage": True}})
    assert events[-1]["usage"] == usage
    assert events[-1]["choices"] == []
    assert all(event["usage"] is None for event in events[:-1])
    assert all("usage" not in event for event in streamed(mock, body))


@pytest.mark.parametrize(
    "body", [say("a", n=2), say("a [[reasoning=2]]"), chat("a [[reasoning=2]]", n=2), chat("a")]
)
def test_the_stream_and_the_whole_say_the_same(mock: MockProvider, body):
    texts: dict[tuple[int, str], str] = {}
    for event in streamed(mock, body):
        for choice in event["choices"]:
            for name, text in choice.get("delta", {"text": choice.get("text")}).items():
                texts[choice["index"], name] = texts.get((choice["index"], name), "") + text
    for choice in post(mock, body).json()["choices"]:
        whole = choice.get("message") or {"text": choice["text"]}
        assert {name: texts[choice["index"], name] for name in whole} == whole


def test_words_of_usage(mock: MockProvider):
    asked = {"stream_options": {"include_usage": True}}
    last = streamed(mock, chat("a [[usage_on_last]]", **asked))[-1]
    assert last["choices"][0]["finish_reason"] == "stop"
    assert last["usage"]["completion_tokens"] == 5
    assert all("usage" not in event for event in streamed(mock, chat("a [[usage=never]]", **asked))[-1:])
    assert "usage" not in post(mock, say("a [[usage=never]]")).json()
    assert streamed(mock, say("a [[usage=always]]"))[-1]["usage"]["prompt_tokens"] == 2
    assert all(event["usage"] is None for event in streamed(mock, say("a [[usage_null]]")))
    assert [event["usage"]["completion_tokens"] for event in streamed(mock, say("a [[usage_each]]"))] == [
        *range(6)
    ]
    cached = post(mock, say("a b c [[cached=2]] [[counts=900/70]]")).json()["usage"]
    assert cached["prompt_tokens_details"] == {"cached_tokens": 2}
    assert (cached["prompt_tokens"], cached["completion_tokens"]) == (900, 70)


def test_words_of_events(mock: MockProvider):
    def raw(text: str) -> str:
        return post(mock, say(text, stream=True)).content.decode()

    assert "data:{" in raw("[[no_space]]")
    crlf = raw("[[crlf]] [[comments]]")
    assert crlf.count("\r\n") == crlf.count("\n")
    assert crlf.startswith(": keep going\r\n\r\ndata: {")
    assert raw("[[named]]").startswith("event: message\nid: 0\ndata: {")
    assert "[DONE]" not in raw("[[no_done]]")
    assert raw("a").endswith("data: [DONE]\n\n")
    broken = raw("[[error_event=2]]")
    assert [line.startswith('data: {"error"') for line in broken.split("\n\n")[:-1]] == [False, False, True]
    assert SECRET in broken
    assert len(raw("[[huge=100000]]").split("\n\n")[0]) > 100_000
    with pytest.raises(json.JSONDecodeError):
        streamed(mock, say("[[broken_json]]"))
    with pytest.raises(json.JSONDecodeError):
        post(mock, say("[[broken_json]]")).json()


def test_words_of_content(mock: MockProvider):
    assert post(mock, say("a")).json()["model"] == "m-2026-01-01"
    assert post(mock, say("a [[echo_model]]")).json()["model"] == "m"
    calls = [event["choices"][0]["delta"].get("tool_calls") for event in streamed(mock, chat("a [[tools]]"))]
    assert [call[0]["index"] for call in calls if call] == [0, 1, 0, 1, 0, 1]
    assert len(post(mock, chat("a [[tools]]")).json()["choices"][0]["message"]["tool_calls"]) == 2
    scored = post(mock, say("a [[logprobs]]")).json()["choices"][0]["logprobs"]
    assert scored["tokens"] == [" w0", " w1", " w2", " w3", " w4"]
    assert streamed(mock, chat("a [[logprobs]]"))[1]["choices"][0]["logprobs"]["content"][0]["token"] == " w0"


def test_words_of_http(mock: MockProvider):
    refused = post(mock, say("[[status=503]] [[retry_after=7]]"))
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "7")
    assert SECRET in refused.text
    page = post(mock, say("[[html]] [[status=502]]"))
    assert (page.status_code, page.headers["content-type"], page.text[:6]) == (502, "text/html", "<html>")
    lying = post(mock, say("[[content_type=text/plain]]", stream=True))
    assert lying.headers["content-type"] == "text/plain"
    assert "transfer-encoding" not in post(mock, say("[[http10]]", stream=True)).headers
    assert post(mock, say("[[interim]]")).status_code == 200
    assert httpx.post(f"{mock.base_url}/embeddings", json={}, verify=False).status_code == 404
    mock.key = "sk-good"
    assert SECRET in post(mock, say("a")).text
    for order in ("[[cut=10]]", "[[reset]]", "[[drop]]", "[[length=5]] [[close_after]]"):
        mock.key = None
        with pytest.raises(httpx.TransportError):
            post(mock, say(order))


def test_what_is_said_outside_of_prompts(mock: MockProvider):
    mock.say(Behaviour(status=500), Behaviour(status=503))
    mock.always(Behaviour(status=429))
    assert [post(mock, say("a")).status_code for _ in range(4)] == [500, 503, 429, 429]
    assert post(mock, say("[[status=200]]")).status_code == 200


def test_a_word_that_is_none():
    with pytest.raises(KeyError, match="stauts"):
        Behaviour.parse("[[stauts=500]]")


def test_requests_are_kept_as_they_came(mock: MockProvider):
    post(mock, say("caf\u00e9"))
    (seen,) = mock.requests
    assert seen.raw.startswith(b"POST /v1/completions HTTP/1.1\r\n")
    assert seen.raw.endswith(seen.body)
    assert json.loads(seen.body)["prompt"] == "caf\u00e9"
    assert seen.header("content-type") == "application/json"
    mock.until(lambda: seen.answered)
    assert not seen.gone


async def test_who_leaves_is_noticed(mock: MockProvider):
    _, writer = await asyncio.open_connection("127.0.0.1", mock.port)
    writer.write(
        b"POST /v1/completions HTTP/1.1\r\ncontent-length: 25\r\n\r\n" + b'{"prompt":"a [[silent]]"}'
    )
    await mock.comes(lambda: len(mock.requests) == 1)
    assert not mock.requests[0].gone
    writer.close()
    await mock.comes(lambda: mock.requests[0].gone)


def messages(text: str, **more: object) -> dict:
    return {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": text}], **more}


def test_messages_whole(mock: MockProvider):
    body = messages("a [[reasoning=2]] [[redacted]] [[cached=1]] [[cache_creation=2]]", system="b c")
    answer = httpx.post(f"{mock.base_url}/messages", json=body, timeout=10, verify=False).json()
    assert [block["type"] for block in answer["content"]] == ["thinking", "redacted_thinking", "text"]
    assert answer["content"][2]["text"] == " w2 w3 w4"
    assert answer["stop_reason"] == "end_turn"
    counted = {"input_tokens": 7, "cache_creation_input_tokens": 2, "cache_read_input_tokens": 1}
    assert answer["usage"] == counted | {"output_tokens": 5}
    assert prompt_tokens(body) == 10


def test_messages_streamed(mock: MockProvider):
    body = messages("[[tools]] [[pings]]", stream=True)
    text = httpx.post(f"{mock.base_url}/messages", json=body, timeout=10, verify=False).text
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
    names = [line[7:] for line in text.splitlines() if line.startswith("event: ")]
    assert names == [event["type"] for event in events]
    assert [name for name in names if name != "ping"] == [
        "message_start",
        *["content_block_start", *["content_block_delta"] * 3, "content_block_stop"] * 2,
        "message_delta",
        "message_stop",
    ]


def test_messages_refused(mock: MockProvider):
    mock.key = "sk-right"
    url = f"{mock.base_url}/messages"
    assert httpx.post(url, json=messages("a"), verify=False).json()["error"]["type"] == "authentication_error"
    headers = {"x-api-key": "sk-right"}
    answer = httpx.post(url, json=messages("[[status=529]]"), headers=headers, verify=False)
    assert (answer.status_code, answer.json()["error"]["type"]) == (529, "overloaded_error")
