"""What comes is handed on where it comes in: the same bytes, and the same ends, as of reading."""

import asyncio
import time

import pytest

from onward.core.failure import FailureKind
from tests.mock_provider import MockProvider
from tests.providers.raw import RawHost, ask, body_of, fails, settled
from tests.providers.test_answers import EARLY, SPLIT, WHOLE, cut


async def handed(answer, wants: int = 1000) -> tuple[list[bytes], bool]:
    """What is handed on until `wants` bytes were, and whether that was why it ended."""
    pieces: list[bytes] = []

    def take(data: bytes) -> bool:
        assert data
        pieces.append(data)
        return sum(map(len, pieces)) < wants

    return pieces, await answer.hand_on(take)


@pytest.mark.parametrize("split", SPLIT)
@pytest.mark.parametrize("case", WHOLE)
async def test_what_is_handed_on_is_what_would_be_read(host: RawHost, client, case, split):
    data, body, reused = WHOLE[case]
    host.answer = cut(data, SPLIT[split])
    provider = client(await host.start())
    answer = await ask(provider)
    pieces, refused = await handed(answer, 2)
    rest, over = await handed(answer)
    assert b"".join(pieces + rest) == body
    assert (refused, over, answer.ended) == (bool(body), False, True)
    assert await answer.read() == b""
    answer.close()
    await settled(provider, opened=int(reused))


@pytest.mark.parametrize("case", EARLY)
async def test_what_came_of_a_body_that_ends_early_is_handed_on(host: RawHost, client, case):
    host.answer = cut(EARLY[case], 1)
    host.then = "close"
    answer = await ask(client(await host.start()))
    pieces: list[bytes] = []
    await fails(answer.hand_on(lambda data: pieces.append(data) is None))
    assert b"".join(pieces) == b"hello"
    await fails(answer.read())


async def test_a_fault_of_who_takes_is_raised_where_it_waits(mock: MockProvider, client):
    """The connection is not broken by it."""
    provider = client(mock.base_url)
    answer = await ask(provider, "[[hold=1]]", stream=True)
    await answer.read()

    def take(data: bytes) -> bool:
        raise ZeroDivisionError

    taking = asyncio.ensure_future(answer.hand_on(take))
    await asyncio.sleep(0)
    mock.let_go()
    with pytest.raises(ZeroDivisionError):
        await taking
    await body_of(answer)
    assert await answer.read() == b""
    answer.close()
    assert provider.status().busy == 0


async def test_cancelling_who_takes_loses_nothing(mock: MockProvider, client):
    answer = await ask(client(mock.base_url), "[[hold=1]]", stream=True)
    pieces = [await answer.read()]
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(answer.hand_on(lambda _: True), 0.01)
    mock.let_go()
    rest, _ = await handed(answer, 1_000_000)
    whole = b"".join(pieces + rest)
    assert whole.count(b"data: ") == 7
    assert whole.endswith(b"data: [DONE]\n\n")


@pytest.mark.complaint("G28")
async def test_what_does_not_count_is_no_first_piece(mock: MockProvider, client):
    """Whoever takes it says what counts, also of what was there before. It is not silence that ends this."""
    began = time.monotonic()
    answer = await ask(client(mock.base_url, first_byte_timeout_s=0.3), "[[hums=0]]", stream=True)
    await asyncio.sleep(0.1)
    failure = await fails(answer.hand_on(lambda _: True, lambda: False), FailureKind.UPSTREAM_TIMEOUT)
    assert 0.2 < time.monotonic() - began < 5
    assert failure.message == "The provider of this model took too long to answer. Try again later."
    await mock.comes(lambda: mock.requests[0].gone)


async def test_what_does_not_count_breaks_a_silence_for_so_long(mock: MockProvider, client):
    """As long as a first piece may take: longer than silence may."""
    provider = client(mock.base_url, first_byte_timeout_s=0.6, idle_timeout_s=0.2)
    answer = await ask(provider, "[[hums=2]]", stream=True)
    pieces: list[bytes] = []
    asked = 0

    def heard() -> bool:
        nonlocal asked
        asked += 1
        return asked == 1

    began = time.monotonic()
    await fails(answer.hand_on(lambda data: pieces.append(data) is None, heard), FailureKind.UPSTREAM_TIMEOUT)
    assert 0.5 < time.monotonic() - began < 5
    whole = b"".join(pieces)
    assert whole.count(b"data: ") == 2
    assert whole.count(b": keep-alive") > 5


async def test_all_that_is_read_counts_where_nobody_tells(mock: MockProvider, client):
    answer = await ask(
        client(mock.base_url, first_byte_timeout_s=0.1, idle_timeout_s=0.1), "[[hums=0]]", stream=True
    )
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(answer.hand_on(lambda _: True), 0.5)
    answer.close()
