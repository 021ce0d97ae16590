"""What comes back: framing, its ends, and what is no answer."""

import asyncio
import gzip

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onward.core.failure import FailureKind
from onward.providers.bounds import Bounds
from tests.mock_provider import MockProvider
from tests.providers.raw import JSON, OK, RawHost, ask, body_of, completion, fails, settled

LENGTH = OK + b"content-length: 5\r\n\r\nhello"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"
INTERIM = (
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\ncontent-encoding: gzip\r\n\r\n"
)

WHOLE = {
    "length": (LENGTH, b"hello", True),
    "empty": (OK + b"content-length: 0\r\n\r\n", b"", True),
    "chunked": (CHUNKED + b"3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n", b"hello", True),
    "chunk-extensions": (CHUNKED + b'5;a=b;c="d"\r\nhello\r\n0;e\r\n\r\n', b"hello", True),
    "trailers": (CHUNKED + b"5\r\nhello\r\n0\r\nx-late: 1\r\n\r\n", b"hello", True),
    "chunked-twice": (OK + b"Transfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", b"hello", True),
    "interim": (INTERIM + LENGTH, b"hello", True),
    "no-content": (b"HTTP/1.1 204 No Content\r\n\r\n", b"", True),
    "close": (OK + b"connection: close\r\ncontent-length: 5\r\n\r\nhello", b"hello", False),
    "old": (b"HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\nhello", b"hello", False),
    "extra": (LENGTH + b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nbad", b"hello", False),
    "extra-garbage": (LENGTH + b"x", b"hello", False),
    "extra-chunked": (CHUNKED + b"5\r\nhello\r\n0\r\n\r\n5\r\nworld\r\n", b"hello", False),
    "no-content-but-some": (b"HTTP/1.1 204 No Content\r\n\r\nabc", b"", False),
    "identity": (OK + b"content-encoding: identity\r\ncontent-length: 5\r\n\r\nhello", b"hello", True),
    "empty-field": (OK + b"x-a:\r\nx-b: \r\ncontent-length: 5\r\n\r\nhello", b"hello", True),
    "no-reason": (b"HTTP/1.1 200\r\ncontent-length: 5\r\n\r\nhello", b"hello", True),
}
CLOSED = {
    "until-close": OK + b"\r\nhello",
    "old-until-close": b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nhello",
    "length-then-close": LENGTH,
}
EARLY = {
    "length": OK + b"content-length: 50\r\n\r\nhello",
    "chunk": CHUNKED + b"50\r\nhello",
    "between-chunks": CHUNKED + b"5\r\nhello\r\n",
    "no-last-chunk-end": CHUNKED + b"5\r\nhello\r\n0\r\n",
}
BROKEN = {
    "nothing": b"",
    "half-header": OK + b"content-le",
    "ssh": b"SSH-2.0-OpenSSH_9.2\r\n",
    "http2": b"\0\0\x12\x04\0\0\0\0\0",
    "bare-newlines": b"HTTP/1.1 200 OK\ncontent-length: 0\n\n",
    "two-lengths": OK + b"content-length: 5\r\ncontent-length: 6\r\n\r\nhello",
    "length-and-chunked": OK + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n",
    "length-list": OK + b"content-length: 5, 5\r\n\r\nhello",
    "negative": OK + b"content-length: -5\r\n\r\n",
    "endless-length": OK + b"content-length: 99999999999999999999999\r\n\r\n",
    "gzip-then-chunked": OK + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked-then-gzip": OK + b"transfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "switching": b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\nabc",
    "status-99": b"HTTP/1.1 099 What\r\ncontent-length: 0\r\n\r\n",
    "status-600": b"HTTP/1.1 600 What\r\ncontent-length: 0\r\n\r\n",
    "folded": OK + b"x-a: b\r\n folded\r\ncontent-length: 0\r\n\r\n",
    "space-before-colon": OK + b"content-length : 0\r\n\r\n",
    "nul": OK + b"x-a: \0\r\ncontent-length: 0\r\n\r\n",
    "many-fields": OK + b"".join(b"x-%d: 1\r\n" % n for n in range(200)) + b"content-length: 0\r\n\r\n",
    "long-field": OK + b"x-a: " + b"b" * 70_000 + b"\r\ncontent-length: 0\r\n\r\n",
    "long-name": OK + b"b" * 70_000 + b": 1\r\ncontent-length: 0\r\n\r\n",
    "endless-field": OK + b"x-a: " + b"b" * 300_000,
    "endless-interim": b"HTTP/1.1 103 Early Hints\r\nx-a: bcdefgh\r\n\r\n" * 5000,
}
SPLIT = {"whole": 0, "bytes": 1}


def cut(data: bytes, step: int) -> list[bytes]:
    """In packets of `step` bytes; 0: in one."""
    return [data[n : n + step] for n in range(0, len(data), step)] if step else [data]


@pytest.mark.parametrize("split", SPLIT)
@pytest.mark.parametrize("case", WHOLE)
async def test_whole_answers(host: RawHost, client, case, split):
    data, body, reused = WHOLE[case]
    host.answer = cut(data, SPLIT[split])
    provider = client(await host.start())
    for _ in range(2):
        answer = await ask(provider)
        assert await body_of(answer) == body
        assert await answer.read() == b""
        answer.close()
        if not reused:
            await host.until(lambda: host.open == 0)
    assert len(host.requests) == 2
    assert host.connections == (1 if reused else 2)


@pytest.mark.parametrize("split", SPLIT)
@pytest.mark.parametrize("case", CLOSED)
async def test_bodies_that_end_with_the_connection(host: RawHost, client, case, split):
    host.answer = cut(CLOSED[case], SPLIT[split])
    host.then = "close"
    provider = client(await host.start())
    for _ in range(2):
        assert await body_of(await ask(provider)) == b"hello"
        await host.until(lambda: host.open == 0)
    assert host.connections == 2


@pytest.mark.parametrize("split", SPLIT)
@pytest.mark.parametrize("case", EARLY)
async def test_a_body_that_ends_early_gives_what_came_and_then_fails(host: RawHost, client, case, split):
    host.answer = cut(EARLY[case], SPLIT[split])
    host.then = "close"
    provider = client(await host.start())
    answer = await ask(provider)
    came = b""
    while len(came) < 5:
        came += await answer.read()
    assert came == b"hello"
    await fails(answer.read())
    await fails(answer.read())
    answer.close()
    answer = await ask(provider)
    await fails(answer.read_all(1000))
    await settled(provider)


@pytest.mark.parametrize("case", BROKEN)
async def test_what_is_no_answer_fails_at_once(host: RawHost, client, case):
    host.answer = [BROKEN[case]]
    host.then = "close" if case in {"nothing", "half-header"} else "keep"
    provider = client(await host.start())
    failure = await fails(ask(provider))
    assert failure.message == "The provider of this model gave a broken answer. Try again."
    await host.until(lambda: host.open == 0)
    assert len(host.requests) == 1
    await settled(provider)


@pytest.mark.parametrize(
    "body",
    [
        b"5\r\nhello\r\nxyz\r\n",
        b"5\r\nhelloo\r\n0\r\n\r\n",
        b"5\nhello\n0\n\n",
        b"FFFFFFFFFFFFFFFFFFFF\r\nhello",
        b"5;" + b"a" * 300_000,
        b"0\r\n" + b"x-late: 1\r\n" * 30_000,
    ],
    ids=["size", "too-long", "newlines", "overflow", "endless-extension", "endless-trailers"],
)
async def test_chunks_that_are_none(host: RawHost, client, body):
    host.answer = [CHUNKED, body]
    answer = await ask(client(await host.start()))
    await fails(body_of(answer))
    await host.until(lambda: host.open == 0)


async def test_framing_does_not_add_up(host: RawHost, client):
    """What stands between two pieces is bounded, not all that ever stood between pieces."""
    host.answer = [CHUNKED, *[b"5\r\n", b"hello\r\n"] * 50, b"0\r\n\r\n"]
    provider = client(await host.start())
    provider._client._bounds = Bounds(header_bytes=120)
    assert await body_of(await ask(provider)) == b"hello" * 50


async def test_headers_are_by_name_in_lower_case_and_the_last_counts(host: RawHost, client):
    host.answer = [OK + b"X-Request-Id: a\r\nRetry-After: 1\r\nRetry-After: 2\r\ncontent-length: 0\r\n\r\n"]
    answer = await ask(client(await host.start()))
    assert answer.headers == {b"x-request-id": b"a", b"retry-after": b"2", b"content-length": b"0"}


async def test_nothing_of_an_answer_shows_in_the_next(host: RawHost, client):
    answers = [
        OK + b"x-first: 1\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx-late: 1\r\n\r\n",
        OK + b"content-length: 1\r\n\r\nb",
    ]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for data in answers:
            await host.request(reader)
            writer.write(data)
        await reader.read()

    host.serve = serve
    provider = client(await host.start())
    first = await ask(provider)
    second = await ask(provider)
    assert second.headers == {b"content-length": b"1"}
    assert (await body_of(second), await body_of(first)) == (b"b", b"a")
    assert host.connections == 1


@pytest.mark.parametrize("encoding", [b"gzip", b"br", b"identity, gzip"])
async def test_a_compressed_body_is_not_read(host: RawHost, client, encoding):
    packed = gzip.compress(b'{"choices": []}')
    host.answer = [
        OK + b"content-encoding: %b\r\ncontent-length: %d\r\n\r\n%b" % (encoding, len(packed), packed)
    ]
    answer = await ask(client(await host.start()))
    assert answer.status == 200
    await fails(answer.read())
    await host.until(lambda: host.open == 0)


async def test_the_status_of_a_compressed_refusal_is_known(host: RawHost, client):
    head = b"HTTP/1.1 429 Slow Down\r\nretry-after: 3\r\ncontent-encoding: gzip\r\n"
    host.answer = [head + b"content-length: 3\r\n\r\nabc"]
    answer = await ask(client(await host.start()))
    assert (answer.status, answer.headers[b"retry-after"]) == (429, b"3")
    await fails(answer.read_all(100))


async def test_read_all_has_a_limit(host: RawHost, client):
    host.answer = [LENGTH]
    provider = client(await host.start())
    assert await (await ask(provider)).read_all(5) == b"hello"
    failure = await fails((await ask(provider)).read_all(4))
    assert "too long" in failure.message


async def test_an_endless_body_is_not_held(mock: MockProvider, client):
    provider = client(mock.base_url)
    answer = await ask(provider, "[[huge=40000000]]")
    await fails(answer.read_all(1_000_000))
    await mock.comes(lambda: mock.open == 0)


async def test_all_that_has_come_is_there_without_waiting(host: RawHost, client):
    host.answer = [LENGTH]
    answer = await ask(client(await host.start()))
    for expected in (b"hello", b""):
        with pytest.raises(StopIteration) as ended:
            answer.read().send(None)
        assert ended.value.value == expected


async def test_a_read_that_is_cancelled_loses_nothing(mock: MockProvider, client):
    provider = client(mock.base_url)
    answer = await ask(provider, "[[hold=1]]", stream=True)
    first = await answer.read()
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(answer.read(), 0.01)
    mock.let_go()
    whole = first + await body_of(answer)
    assert whole.count(b"data: ") == 7
    assert whole.endswith(b"data: [DONE]\n\n")
    assert provider.status().busy == 0


async def test_one_reader(mock: MockProvider, client):
    answer = await ask(client(mock.base_url), "[[silent]]", stream=True)
    reading = asyncio.ensure_future(answer.read())
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="one reader"):
        await answer.read()
    answer.close()
    await fails(reading)


@pytest.mark.parametrize("prompt", ["[[drop]]", "[[reset]]"])
async def test_no_answer_at_all(mock: MockProvider, client, prompt):
    """A request that was written is never written again."""
    provider = client(mock.base_url)
    await body_of(await ask(provider))
    await fails(ask(provider, prompt))
    assert len(mock.requests) == 2
    assert mock.connections == 1


@pytest.mark.parametrize("order", ["[[cut=2]]", "[[cut=2]] [[reset]]"])
@pytest.mark.parametrize("stream", [True, False])
async def test_cut_answers(mock: MockProvider, client, order, stream):
    answer = await ask(client(mock.base_url), order, stream=stream)
    await fails(body_of(answer))


@pytest.mark.parametrize("length", [-10, 10])
async def test_lies_about_the_length(mock: MockProvider, client, length):
    provider = client(mock.base_url)
    answer = await ask(provider, f"[[length={length}]] [[close_after]]")
    if length > 0:
        await fails(answer.read_all(10_000))
    else:
        assert len(await answer.read_all(10_000)) == int(answer.headers[b"content-length"])
    await mock.comes(lambda: mock.open == 0)
    await settled(provider)


@pytest.mark.parametrize("stream", [True, False])
async def test_one_byte_per_packet(mock: MockProvider, client, stream):
    provider = client(mock.base_url)
    slow = await body_of(await ask(provider, "[[drip]] [[interim]] [[tokens=2]]", stream=stream))
    fast = await body_of(await ask(provider, "[[interim]] [[tokens=2]]  .", stream=stream))
    assert slow == fast
    assert mock.connections == 1


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_cut_gives_the_same_answers(data):
    """However the bytes of two answers are cut into packets, they are the same answers."""
    cases = data.draw(
        st.lists(st.sampled_from(["length", "chunked", "interim", "trailers"]), min_size=2, max_size=2)
    )
    wire = [WHOLE[case][0] for case in cases]
    cuts = [data.draw(st.lists(st.integers(1, 60), min_size=1, max_size=8)) for _ in wire]

    async def run() -> list[bytes]:
        from onward.providers.openai import OpenAiProvider

        async with RawHost() as host:
            answers = iter(zip(wire, cuts, strict=True))

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                for whole, sizes in answers:
                    await host.request(reader)
                    rest = whole
                    for size in sizes:
                        writer.write(rest[:size])
                        rest = rest[size:]
                        await asyncio.sleep(0)
                    writer.write(rest)
                await reader.read()

            host.serve = serve
            provider = OpenAiProvider(name="up", base_url=await host.start())
            bodies = [await body_of(await provider.send("/completions", completion(), JSON)) for _ in wire]
            assert host.connections == 1
            await provider.close()
            return bodies

    assert asyncio.run(run()) == [b"hello", b"hello"]


async def test_kinds_are_what_the_contract_says(client):
    await fails(ask(client("http://127.0.0.1:1/v1")), FailureKind.UPSTREAM_UNAVAILABLE)
