"""What the application may not send: an answer that its reader would take for another one."""

import pytest

from onward.http.cycle import Cycle
from onward.http.head import Head

LENGTH = [(b"content-length", b"2")]


class Open:
    """A connection whose caller reads at once."""

    write_paused = False
    loop = None
    date = b"date: now\r\n"

    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    def answered(self, cycle: Cycle) -> None:
        """The answer has ended."""


@pytest.fixture
def connection() -> Open:
    return Open()


@pytest.fixture
def cycle(connection: Open) -> Cycle:
    head = Head("POST", b"/", "1.1", [], keep_alive=True)
    return Cycle(None, connection, head, None, b"")


@pytest.mark.parametrize("value", [b"a\r\nx: b", b"a\nb", b"a\rb", b"a\0b"])
def test_a_header_with_a_line_break_is_not_sent(cycle: Cycle, connection: Open, value: bytes):
    with pytest.raises(RuntimeError, match="line break"):
        cycle.begin(200, [(b"x-a", value)])
    assert connection.written == b""


@pytest.mark.parametrize("body", [b"a", b"abc"])
def test_a_body_is_as_long_as_its_header_says(cycle: Cycle, connection: Open, body: bytes):
    cycle.begin(200, list(LENGTH))
    with pytest.raises(RuntimeError, match="content-length"):
        cycle.send(body, last=True)
    assert not cycle.complete


def test_an_answer_has_one_header_before_its_body_and_one_end(cycle: Cycle, connection: Open):
    with pytest.raises(RuntimeError, match="stands between"):
        cycle.send(b"ab", last=True)
    cycle.begin(200, list(LENGTH))
    with pytest.raises(RuntimeError, match="begins once"):
        cycle.begin(200, list(LENGTH))
    cycle.send(b"ab", last=True)
    with pytest.raises(RuntimeError, match="stands between"):
        cycle.send(b"", last=True)
    assert connection.written == b"HTTP/1.1 200 OK\r\ndate: now\r\ncontent-length: 2\r\n\r\nab"


def test_a_body_without_a_length_comes_in_chunks(cycle: Cycle, connection: Open):
    cycle.begin(200, [])
    cycle.send(b"ab", last=False)
    cycle.send(b"", last=True)
    assert connection.written.endswith(b"transfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n")
