"""The log: never in the way, whole lines, both formats."""

import json
import logging
import os

import pytest

from onward.core.failure import FailureKind
from onward.core.usage import Usage
from onward.http.log import LogWriter, MessageHandler, RequestLog
from onward.http.record import Record

RECORD = Record(
    request_id="r1",
    label="theirs",
    method="POST",
    path='/v1/"odd\n path',
    started=10.0,
    status=200,
    model="m",
    usage=Usage(prompt_tokens=3, completion_tokens=2, cached_tokens=1),
    first_piece=10.5,
    finish=["stop"],
    failure=FailureKind.ENGINE_FAILED,
)


def written(text: bool) -> str:
    reader, writer_end = os.pipe()
    writer = LogWriter(writer_end)
    RequestLog(writer, text=text, clock=lambda: 0.25).write(RECORD, 11.0)
    writer.close()
    os.close(writer_end)
    with os.fdopen(reader) as lines:
        return lines.read()


def test_json():
    (line,) = written(text=False).splitlines()
    assert json.loads(line) == {
        "at": "1970-01-01T00:00:00.250Z",
        "request_id": "r1",
        "client_request_id": "theirs",
        "method": "POST",
        "path": '/v1/"odd\n path',
        "status": 200,
        "duration_ms": 1000.0,
        "model": "m",
        "ttft_ms": 500.0,
        "finish": ["stop"],
        "failure": "engine_failed",
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "cached_tokens": 1,
    }


@pytest.mark.parametrize("text", [True, False])
def test_messages_begin_with_the_same_time_as_requests(text: bool):
    reader, writer_end = os.pipe()
    writer = LogWriter(writer_end)
    record = logging.makeLogRecord(
        {"msg": "SIGTERM", "levelno": logging.INFO, "levelname": "INFO", "created": 0.25}
    )
    MessageHandler(writer, text=text).handle(record)
    writer.close()
    os.close(writer_end)
    with os.fdopen(reader) as lines:
        line = lines.read()
    if text:
        assert line == "1970-01-01T00:00:00.250Z INFO SIGTERM\n"
    else:
        assert json.loads(line) == {"at": "1970-01-01T00:00:00.250Z", "level": "info", "message": "SIGTERM"}


def test_text_is_one_line():
    line = written(text=True)
    assert line.count("\n") == 1
    assert line.startswith('1970-01-01T00:00:00.250Z 200 POST /v1/\\"odd\\n path request_id="r1" ')
    assert "completion_tokens=2" in line


def test_a_reader_that_reads_nothing_blocks_nobody():
    reader, writer_end = os.pipe()
    writer = LogWriter(writer_end)
    line = b"x" * 1000
    for _ in range(60_000):
        writer.write(line)
    os.set_blocking(reader, True)
    collected = b""
    with os.fdopen(reader, "rb", buffering=0) as lines:
        while b"were dropped" not in collected[-2000:]:
            collected += lines.read(1 << 20)
    assert collected.count(b"\n") < 60_000
    writer.close()
    os.close(writer_end)


def test_a_closed_reader_does_no_harm():
    reader, writer_end = os.pipe()
    writer = LogWriter(writer_end)
    os.close(reader)
    writer.write(b"lost")
    writer.close()
    os.close(writer_end)


def test_messages_keep_their_traceback_in_one_line():
    reader, writer_end = os.pipe()
    writer = LogWriter(writer_end)
    handler = MessageHandler(writer, text=False)
    error = ValueError("a reason")
    record = logging.LogRecord(
        "onward", logging.ERROR, __file__, 1, "it %s", ("broke",), (ValueError, error, None)
    )
    handler.handle(record)
    writer.close()
    os.close(writer_end)
    with os.fdopen(reader) as lines:
        (line,) = lines.read().splitlines()
    shown = json.loads(line)
    assert shown["message"] == "it broke"
    assert "ValueError: a reason" in shown["traceback"]
