"""What a process tells its operator: a line for each request, and messages, on stderr.

Lines are handed to a thread in batches: a terminal or a pipe that nobody reads never stops the
event loop. When too much waits, lines are dropped and their number is told.
"""

import itertools
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import msgspec

from onward.http.record import Record

_BATCH_S = 0.05
_WAITING_LINES = 20_000
# One call makes a line of each.
_LINE: Final = '%s.%03dZ %d %s request_id="%s"%s duration_ms=%.2f%s'
_USED: Final = " prompt_tokens=%d completion_tokens=%d cached_tokens=%d"
_encode = msgspec.json.Encoder().encode


class LogWriter:
    """Writes lines to a file descriptor from a thread; never blocks its callers."""

    def __init__(self, descriptor: int = 2) -> None:
        self._descriptor = descriptor
        self._lines: deque[bytes] = deque()
        self._dropped = itertools.count()
        self._told = 0
        self._due = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def write(self, line: bytes) -> None:
        """Write one line, without its newline, soon."""
        lines = self._lines
        if len(lines) >= _WAITING_LINES:
            next(self._dropped)
            return
        lines.append(line)
        if len(lines) == 1:  # with more the thread is due, or has not come to its last one
            self._due.set()

    def close(self, within_s: float = 1.0) -> None:
        """Write what waits, for at most `within_s` seconds."""
        self._closed = True
        self._due.set()
        self._thread.join(within_s)

    def _run(self) -> None:
        waiting = self._lines
        while True:
            self._due.wait()
            self._due.clear()
            if not self._closed:
                time.sleep(_BATCH_S)
            lines: list[bytes] = []
            while waiting:
                lines.append(waiting.popleft())
                if len(lines) == _WAITING_LINES:
                    self._write_all(b"\n".join(lines) + b"\n")
                    lines.clear()
            dropped = self._count_dropped()
            if dropped:
                lines.append(b"onward: %d log lines were dropped: stderr is not read fast enough" % dropped)
            if lines:
                self._write_all(b"\n".join(lines) + b"\n")
            if self._closed:
                return

    def _count_dropped(self) -> int:
        """How many since the last time. Looking takes a number too: one more is told of."""
        taken = next(self._dropped)
        dropped = taken - self._told
        self._told = taken + 1
        return dropped

    def _write_all(self, data: bytes) -> None:
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError:
            return  # nobody listens any more; requests are answered all the same


class RequestLog:
    """Formats records: one JSON object or one line of text for each request."""

    def __init__(
        self, writer: LogWriter, *, text: bool = False, clock: Callable[[], float] = time.time
    ) -> None:
        self._writer = writer
        self._format = _text_line if text else _json_line
        self._clock = clock

    def write(self, record: Record, ended: float) -> None:
        """Log one finished request; `ended` is monotonic, like the record's times."""
        self._writer.write(self._format(record, self._clock(), ended))


def _fields(record: Record, at: float, ended: float) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "at": _stamp(at),
        "request_id": record.request_id,
        "client_request_id": record.label,
        "method": record.method,
        "path": record.path[:200],
        "status": record.status,
        "duration_ms": _milliseconds(record.started, ended),
        "key": record.key,
        "model": record.model,
        "stream": record.stream or None,
        "user": record.user[:200] if record.user else None,
        "ttft_ms": _milliseconds(record.started, record.first_piece),
        "finish": record.finish or None,
        "failure": record.failure.value if record.failure else None,
        "disconnected": record.disconnected or None,
        "repeats": record.repeats,
    }
    if record.usage is not None:
        fields |= {
            "prompt_tokens": record.usage.prompt_tokens,
            "completion_tokens": record.usage.completion_tokens,
            "cached_tokens": record.usage.cached_tokens,
        }
    return {name: value for name, value in fields.items() if value is not None}


def _stamp(at: float) -> str:
    """A Unix time as every line begins with it."""
    second = int(at)
    return f"{_second(second)}.{int((at - second) * 1000):03d}Z"


@lru_cache(maxsize=4)
def _second(at: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))


def _json_line(record: Record, at: float, ended: float) -> bytes:
    return _encode(_fields(record, at, ended))


def _text_line(record: Record, at: float, ended: float) -> bytes:
    """The same fields as in JSON, in the same order. Written for speed: it is done for every request."""
    started, first, usage, finish = record.started, record.first_piece, record.usage, record.finish
    second = int(at)
    line = _LINE % (
        _second(second),
        (at - second) * 1000,
        record.status,
        _asked(record.method, record.path[:200]),
        record.request_id,
        "" if record.label is None else f" client_request_id={_quote(record.label)}",
        (ended - started) * 1000,
        _named(record.key, record.model),
    )
    if record.stream:
        line += " stream=true"
    if record.user:
        line += f" user={_quote(record.user[:200])}"
    if first is not None:
        line += f" ttft_ms={(first - started) * 1000:.2f}"
    if finish:
        line += _finished(finish[0]) if len(finish) == 1 else f" finish={_encode(finish).decode()}"
    if record.failure is not None:
        line += f" failure={_quote(record.failure.value)}"
    if record.disconnected:
        line += " disconnected=true"
    if record.repeats is not None:
        line += f" repeats={_quote(record.repeats)}"
    if usage is not None:
        line += _USED % (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens)
    return line.encode()


# What comes again and again: paths, names of models and keys, reasons to finish.


@lru_cache(maxsize=512)
def _asked(method: str, path: str) -> str:
    return f"{method} {_quote(path)[1:-1]}"


@lru_cache(maxsize=512)
def _named(key: str | None, model: str | None) -> str:
    fields = (("key", key), ("model", model))
    return "".join([f" {name}={_quote(value)}" for name, value in fields if value is not None])


@lru_cache(maxsize=64)
def _finished(reason: str) -> str:
    return f" finish={_encode([reason]).decode()}"


def _quote(text: str) -> str:
    """A JSON string."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return _encode(text).decode()


def _milliseconds(start: float, end: float | None) -> float | None:
    return None if end is None else round((end - start) * 1000, 2)


class _TextFormatter(logging.Formatter):
    """Messages with the time as the lines of requests write it."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802
        return _stamp(record.created)


class MessageHandler(logging.Handler):
    """Messages of `logging` through the same writer, as JSON or as text."""

    def __init__(self, writer: LogWriter, *, text: bool = True) -> None:
        super().__init__(logging.INFO)
        self._writer = writer
        self._text = text
        self.setFormatter(_TextFormatter("%(asctime)s %(levelname)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if self._text:
                self._writer.write(self.format(record).encode("utf-8", "backslashreplace"))
                return
            fields = {
                "at": _stamp(record.created),
                "level": record.levelname.lower(),
                "message": record.getMessage(),
            }
            if record.exc_info:
                fields["traceback"] = logging.Formatter().formatException(record.exc_info)
            self._writer.write(_encode(fields))
        except Exception:  # noqa: BLE001 - logging must not break what it tells of
            self.handleError(record)


def configure(*, text: bool, descriptor: int = 2) -> LogWriter:
    """Send every message of this process to a writer of its own, and give it back."""
    writer = LogWriter(descriptor)
    root = logging.getLogger()
    root.handlers[:] = [MessageHandler(writer, text=text)]
    root.setLevel(logging.INFO)
    for noisy in ("asyncio", "httpx", "httpcore"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    return writer
