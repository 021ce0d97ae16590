"""What a process tells its operator: a line for each request, and messages, on stderr.

Lines are handed to a thread in batches: a terminal or a pipe that nobody reads never stops the
event loop. When too much waits, lines are dropped and their number is told.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec

from onward.http.record import Record

_BATCH_S = 0.05
_WAITING_LINES = 20_000
_encode = msgspec.json.Encoder().encode


class LogWriter:
    """Writes lines to a file descriptor from a thread; never blocks its callers."""

    def __init__(self, descriptor: int = 2) -> None:
        self._descriptor = descriptor
        self._lines: list[bytes] = []
        self._dropped = 0
        self._lock = threading.Lock()
        self._due = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def write(self, line: bytes) -> None:
        """Write one line, without its newline, soon."""
        with self._lock:
            if len(self._lines) >= _WAITING_LINES:
                self._dropped += 1
                return
            self._lines.append(line)
            first = len(self._lines) == 1
        if first:
            self._due.set()

    def close(self, within_s: float = 1.0) -> None:
        """Write what waits, for at most `within_s` seconds."""
        self._closed = True
        self._due.set()
        self._thread.join(within_s)

    def _run(self) -> None:
        while True:
            self._due.wait()
            self._due.clear()
            if not self._closed:
                time.sleep(_BATCH_S)
            with self._lock:
                lines, self._lines = self._lines, []
                dropped, self._dropped = self._dropped, 0
            if dropped:
                lines.append(b"onward: %d log lines were dropped: stderr is not read fast enough" % dropped)
            if lines:
                self._write_all(b"\n".join(lines) + b"\n")
            if self._closed:
                return

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
    started, first, quote = record.started, record.first_piece, _quoted
    line = (
        f"{_stamp(at)} {record.status} {record.method} {quote(record.path[:200])[1:-1]}"
        f" request_id={quote(record.request_id)}"
    )
    if record.label is not None:
        line += f" client_request_id={quote(record.label)}"
    line += f" duration_ms={round((ended - started) * 1000, 2)}"
    if record.key is not None:
        line += f" key={quote(record.key)}"
    if record.model is not None:
        line += f" model={quote(record.model)}"
    if record.stream:
        line += " stream=true"
    if record.user:
        line += f" user={quote(record.user[:200])}"
    if first is not None:
        line += f" ttft_ms={round((first - started) * 1000, 2)}"
    if record.finish:
        line += f" finish={_encode(record.finish).decode()}"
    if record.failure is not None:
        line += f" failure={quote(record.failure.value)}"
    if record.disconnected:
        line += " disconnected=true"
    if record.repeats is not None:
        line += f" repeats={quote(record.repeats)}"
    usage = record.usage
    if usage is not None:
        line += (
            f" prompt_tokens={usage.prompt_tokens} completion_tokens={usage.completion_tokens}"
            f" cached_tokens={usage.cached_tokens}"
        )
    return line.encode()


def _quoted(text: str) -> str:
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
