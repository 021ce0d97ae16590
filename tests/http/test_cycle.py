"""What the application may not send: an answer that its reader would take for another one."""

import asyncio

import pytest

from onward.http.cycle import Cycle

LENGTH = [(b"content-length", b"2")]


class Open:
    """A transport and its flow, where nobody reads slowly."""

    write_paused = False

    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data


@pytest.fixture
def cycle() -> Cycle:
    transport = Open()
    return Cycle(
        scope={"method": "POST", "http_version": "1.1"},
        transport=transport,
        flow=transport,
        logger=None,
        access_logger=None,
        access_log=False,
        default_headers=[(b"date", b"now")],
        message_event=asyncio.Event(),
        expect_100_continue=False,
        keep_alive=True,
        on_response=lambda: None,
    )


async def start(cycle: Cycle, headers: list[tuple[bytes, bytes]]) -> None:
    await cycle.send({"type": "http.response.start", "status": 200, "headers": headers})


async def piece(cycle: Cycle, body: bytes, *, more: bool = False) -> None:
    await cycle.send({"type": "http.response.body", "body": body, "more_body": more})


@pytest.mark.parametrize("value", [b"a\r\nx: b", b"a\nb", b"a\rb", b"a\0b"])
async def test_a_header_with_a_line_break_is_not_sent(cycle: Cycle, value: bytes):
    with pytest.raises(RuntimeError, match="line break"):
        await start(cycle, [(b"x-a", value)])
    assert cycle.transport.written == b""


@pytest.mark.parametrize("body", [b"a", b"abc"])
async def test_a_body_is_as_long_as_its_header_says(cycle: Cycle, body: bytes):
    await start(cycle, list(LENGTH))
    with pytest.raises(RuntimeError, match="content-length"):
        await piece(cycle, body)
    assert not cycle.response_complete


async def test_an_answer_has_one_header_before_its_body_and_one_end(cycle: Cycle):
    with pytest.raises(RuntimeError, match="stands between"):
        await piece(cycle, b"ab")
    await start(cycle, list(LENGTH))
    with pytest.raises(RuntimeError, match="begins once"):
        await start(cycle, list(LENGTH))
    await piece(cycle, b"ab")
    with pytest.raises(RuntimeError, match="stands between"):
        await piece(cycle, b"")
    assert cycle.transport.written == b"HTTP/1.1 200 OK\r\ndate: now\r\ncontent-length: 2\r\n\r\nab"


async def test_a_body_without_a_length_comes_in_chunks(cycle: Cycle):
    await start(cycle, [])
    await piece(cycle, b"ab", more=True)
    await piece(cycle, b"")
    assert cycle.transport.written.endswith(b"transfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n")
