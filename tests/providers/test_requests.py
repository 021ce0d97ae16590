"""What is sent: the bytes of a request, each of them once."""

import pytest

from onward import __version__
from onward.providers.anthropic import AnthropicProvider
from onward.providers.openai import OpenAiProvider
from onward.providers.protocol import Protocols
from tests.mock_provider import MockProvider
from tests.providers.raw import JSON, KEY, OK, RawHost, ask, body_of, fails, whole

EMPTY = [OK + b"content-length: 0\r\n\r\n"]


async def test_a_request_byte_for_byte(host: RawHost, client):
    host.answer = EMPTY
    provider = client(await host.start())
    answer = await provider.send("/completions", b'{"prompt": "\xc3\xa9"}', [*JSON, (b"x-more", b"1")])
    assert await body_of(answer) == b""
    assert host.requests == [
        b"POST /v1/completions HTTP/1.1\r\n"
        + f"host: 127.0.0.1:{host.port}\r\n".encode()
        + b"accept-encoding: identity\r\n"
        + f"user-agent: onward/{__version__}\r\n".encode()
        + f"authorization: Bearer {KEY}\r\n".encode()
        + b"content-type: application/json\r\nx-more: 1\r\ncontent-length: 16\r\n\r\n"
        + b'{"prompt": "\xc3\xa9"}'
    ]


@pytest.mark.parametrize("key", [None, ""])
async def test_without_a_key_there_is_no_such_header(host: RawHost, client, key):
    host.answer = EMPTY
    await ask(client(await host.start(), api_key=key))
    assert b"authorization" not in host.requests[0].lower()


async def test_the_path_of_the_address_comes_first(host: RawHost, client):
    host.answer = EMPTY
    await host.start()
    await ask(client(f"http://localhost:{host.port}/some/where//"))
    assert host.requests[0].startswith(b"POST /some/where/completions HTTP/1.1\r\nhost: localhost:")


@pytest.mark.parametrize("size", [0, 1, 64 * 1024, 64 * 1024 + 1, 10 * 1024 * 1024])
async def test_bodies_of_any_size(host: RawHost, client, size):
    host.answer = EMPTY
    provider = client(await host.start())
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    for _ in range(2):
        await body_of(await provider.send("/completions", body, JSON))
    assert [request.partition(b"\r\n\r\n")[2] for request in host.requests] == [body, body]
    assert host.connections == 1


@pytest.mark.parametrize(
    "headers",
    [
        [(b"x-a", b"1\r\nx-b: 2")],
        [(b"x-a", b"1\nx-b: 2")],
        [(b"x-a\r\nx-b", b"1")],
        [(b"x-a", b"1\r")],
        [(b"x-a", b"\0")],
        [(b"content-length", b"3")],
        [(b"transfer-encoding", b"chunked")],
        [(b"Expect", b"100-continue")],
        [(b"accept-encoding", b"gzip")],
        [(b"Authorization", b"Bearer other")],
        [(b"host", b"elsewhere")],
    ],
)
async def test_headers_cannot_change_the_request(mock: MockProvider, client, headers):
    provider = client(mock.base_url)
    with pytest.raises(ValueError, match="header"):
        await provider.send("/completions", b"{}", headers)
    assert mock.connections == 0


@pytest.mark.parametrize("path", ["completions", "/a b", "/a\r\nx: y", "/\u00e4", ""])
async def test_paths_cannot_change_the_request(mock: MockProvider, client, path):
    with pytest.raises(ValueError, match="path"):
        await client(mock.base_url).send(path, b"{}", JSON)
    assert mock.connections == 0


@pytest.mark.parametrize("key", ["sk-a\r\nx: y", "sk-a\n", "sk-a\0", "sk-\u20ac"])
def test_a_key_that_cannot_be_sent_is_refused_unseen(key):
    with pytest.raises(ValueError, match="key") as refused:
        OpenAiProvider(name="up", base_url="http://127.0.0.1/v1", api_key=key)
    assert "sk-" not in str(refused.value)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_redirects_are_answers_as_they_are(host: RawHost, client, status):
    line = f"HTTP/1.1 {status} Moved\r\n".encode()
    host.answer = [line + b"location: http://127.0.0.1:1/elsewhere\r\ncontent-length: 0\r\n\r\n"]
    answer = await ask(client(await host.start()))
    assert answer.status == status
    assert await body_of(answer) == b""
    assert len(host.requests) == 1


async def test_answers_of_any_status_are_answers(mock: MockProvider, client):
    provider = client(mock.base_url)
    for status in (400, 401, 404, 429, 500, 503, 599):
        answer = await ask(provider, f"[[status={status}]] [[retry_after=7]]")
        assert (answer.status, answer.headers[b"retry-after"]) == (status, b"7")
        assert b'"error"' in await body_of(answer)
    assert mock.connections == 1


async def test_the_mock_sees_the_key(mock: MockProvider, client):
    mock.key = KEY
    assert (await ask(client(mock.base_url))).status == 200
    assert (await ask(client(mock.base_url, api_key="other"))).status == 401


async def test_no_log_holds_the_key(mock: MockProvider, client, caplog):
    caplog.set_level(0)
    provider = client(mock.base_url)
    for prompt in ("[[drop]]", "[[reset]]", "[[cut=3]]"):
        await fails(whole(provider, prompt))
    assert (await ask(provider, "[[status=401]]")).status == 401
    assert "provider=up" in caplog.text
    assert KEY not in caplog.text


@pytest.mark.parametrize("version", [None, b"2029-01-01"])
async def test_a_request_to_an_anthropic_provider_byte_for_byte(host: RawHost, version: bytes | None):
    host.answer = EMPTY
    provider = AnthropicProvider(name="a", base_url=await host.start(), api_key=KEY)
    assert (provider.protocol, provider.surfaces) == (Protocols.ANTHROPIC, {"messages"})
    own = [] if version is None else [(b"anthropic-version", version), (b"anthropic-beta", b"some-2026")]
    assert await body_of(await provider.send("/messages", b"{}", [*JSON, *own])) == b""
    named = b"anthropic-version: 2023-06-01\r\n" if version is None else b""
    given = b"".join(b"%b: %b\r\n" % header for header in own)
    assert host.requests == [
        b"POST /v1/messages HTTP/1.1\r\n"
        + f"host: 127.0.0.1:{host.port}\r\n".encode()
        + b"accept-encoding: identity\r\n"
        + f"user-agent: onward/{__version__}\r\n".encode()
        + f"x-api-key: {KEY}\r\n".encode()
        + named
        + b"content-type: application/json\r\n"
        + given
        + b"content-length: 2\r\n\r\n{}"
    ]
    with pytest.raises(ValueError, match="header"):
        await provider.send("/messages", b"{}", [(b"x-api-key", b"sk-other")])
    assert provider.conceal(f"the key {KEY}") == "the key …"
    await provider.close()
    assert provider.status().open == 0


async def test_a_failure_is_a_sentence(client):
    failure = await fails(ask(client("http://127.0.0.1:1/v1")))
    assert failure.message == "The provider of this model cannot be reached. Try again later."
