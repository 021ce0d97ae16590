"""What a proxied request costs inside the process: both ends of every connection are made up.

    python bench/gateway/inside.py [--on] [--stream] [--named] [--rounds 5] [--requests 4000] [--profile]

The edge, the gate, the ledger and the provider's client are those that serve; only the sockets are not
there, so that no system call, no other process and no scheduler is in the figure: it is steady enough to
see a microsecond. What the system itself takes shows `run.py`.
"""

import argparse
import asyncio
import cProfile
import hashlib
import json
import os
import pstats
import socket
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import uvloop

from onward.http.log import LogWriter
from onward.providers import pool
from onward.providers.connection import Connection
from onward.stores.limits import MemoryLimits
from onward.stores.sqlite.store import SqliteStore
from onward.wiring import config as settings
from onward.wiring.http_side import HttpSide
from onward.wiring.plan import Plan

HERE = Path(__file__).parent
sys.path.append(str(HERE))

from run import BODY, MODEL, MONEY, ONWARD, SECRET  # noqa: E402

EVENTS = 100
SOCKETS = socket.socketpair()
HEAD = (
    "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:9000\r\nUser-Agent: inside/1\r\n"
    "Accept: */*\r\nContent-Type: application/json\r\nAuthorization: Bearer {secret}\r\n"
    "{named}Content-Length: {length}\r\n\r\n"
)
REPLY = {
    "id": "chatcmpl-mock00000000000000000001",
    "object": "chat.completion",
    "created": 1700000000,
    "model": "mock-model-of-the-provider",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello from the mock upstream, a fixed reply."},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 25, "completion_tokens": 100, "total_tokens": 125},
    "system_fingerprint": "fp_mock",
}


class Ends(asyncio.Transport):
    """A transport without a socket behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False
        self.protocol: Any = None
        self.loop = asyncio.get_running_loop()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return SOCKETS[0] if name == "socket" else default

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.loop.call_soon(self.protocol.connection_lost, None)

    abort = close

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        """Nothing comes that was not asked for."""

    def resume_reading(self) -> None:
        """Likewise."""

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.close()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))


class Upstream(Ends):
    """A provider that answers at once."""

    answer: tuple[bytes, ...] = ()

    def write(self, data: bytes) -> None:  # noqa: ARG002
        self.loop.call_soon(self._come, 0)

    def _come(self, number: int) -> None:
        """One piece with each step of the loop, as reads bring them."""
        if number + 1 < len(self.answer):
            self.loop.call_soon(self._come, number + 1)
        self.protocol.data_received(self.answer[number])


class Caller(Ends):
    """A client that asks again as soon as it is answered."""

    def __init__(self, load: "Load") -> None:
        super().__init__()
        self.load = load

    def write(self, data: bytes) -> None:
        self.load.wrote(self, data)


class Load:
    """So many requests, some of them at once."""

    def __init__(self, request: bytes, *, stream: bool) -> None:
        """`request`: with ``@`` where it is to have a number of its own."""
        self.request, self.named = request, b"@" in request
        self.number = 0
        self.end = b"0\r\n\r\n" if stream else b"}"
        self.left = self.running = 0
        self.bad = b""
        self.loop = asyncio.get_running_loop()
        self.over: asyncio.Future[None] = self.loop.create_future()

    def wrote(self, caller: Caller, data: bytes) -> None:
        if data.startswith(b"HTTP/1.1") and not data.startswith(b"HTTP/1.1 200"):
            self.bad = data
        if not data.endswith(self.end):
            return
        self.running -= 1
        if self.left:
            self.ask(caller)
        elif not self.running and not self.over.done():
            self.over.set_result(None)

    def ask(self, caller: Caller) -> None:
        self.left -= 1
        self.running += 1
        request = self.request
        if self.named:
            self.number += 1
            request = request.replace(b"@", b"%08d" % self.number, 1)
        self.loop.call_soon(caller.protocol.data_received, request)

    async def run(self, callers: list[Caller], count: int) -> None:
        self.left = count
        self.over = self.loop.create_future()
        for caller in callers:
            self.ask(caller)
        await self.over
        if self.bad:
            raise SystemExit(self.bad.decode())


async def _connect(_: Any, make: Any, __: Any) -> Connection:
    connection = make()
    transport = Upstream()
    transport.protocol = connection
    connection.connection_made(transport)
    return connection


def answer(*, stream: bool, burst: int) -> tuple[bytes, ...]:
    """What the provider sends, in the pieces in which it comes."""
    if not stream:
        body = json.dumps(REPLY, separators=(",", ":")).encode()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        return (head + body,)
    pieces = [b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"]
    for number in range(EVENTS + 2):
        event = {name: REPLY[name] for name in ("id", "created", "model")} | {
            "object": "chat.completion.chunk"
        }
        finish = "stop" if number == EVENTS - 1 else None
        event["choices"] = [
            {"index": 0, "delta": {"content": f" t={number:020}"}, "logprobs": None, "finish_reason": finish}
        ]
        if number == EVENTS:
            event |= {"choices": [], "usage": REPLY["usage"]}
        data = b"data: %b\n\n" % (
            b"[DONE]" if number > EVENTS else json.dumps(event, separators=(",", ":")).encode()
        )
        pieces.append(b"%x\r\n%b\r\n" % (len(data), data))
    pieces[-1] += b"0\r\n\r\n"
    head, *pieces = pieces
    pieces[0] = head + pieces[0]
    return tuple(b"".join(pieces[start : start + burst]) for start in range(0, len(pieces), burst))


async def measure(options: argparse.Namespace, folder: Path) -> None:
    pool.connect = _connect
    Upstream.answer = answer(stream=options.stream, burst=options.burst)
    config_file = folder / "onward.toml"
    money = MONEY.format(digest=hashlib.sha256(SECRET.encode()).hexdigest()) if options.on else ""
    store_file = folder / "onward.db"
    config_file.write_text(
        ONWARD.format(
            port=9000,
            workers=1,
            store=f"sqlite:{store_file}" if options.on else "none",
            limits="memory",
            durability="process",
            upstream=9001,
            model=MODEL,
            money=money,
        )
    )
    config = settings.load(config_file)
    store = await SqliteStore.open(store_file) if options.on else None
    if store is not None:
        await store.credit("acme", 10**15, note="of this benchmark", at_ms=0)
    plan = Plan(config=config, model_files={}, sockets={}, lease="bench")
    writer = LogWriter(os.open(os.devnull, os.O_WRONLY))
    side = HttpSide(plan, writer, store, MemoryLimits(time.monotonic), over=nothing, reload=None)
    await side.start([])
    server = side._server  # noqa: SLF001
    body = json.dumps(BODY | ({"stream": True} if options.stream else {})).encode()
    named = "Idempotency-Key: order-@\r\n" if options.named else ""
    head = HEAD.format(secret=SECRET, named=named, length=len(body)).encode()
    load = Load(head + body, stream=options.stream)
    callers = [Caller(load) for _ in range(options.connections)]
    for caller in callers:
        caller.protocol = server.connection()
        caller.protocol.connection_made(caller)
    await load.run(callers, 1000)
    if options.profile:
        profile = cProfile.Profile()
        profile.enable()
        await load.run(callers, options.requests)
        profile.disable()
        stats = pstats.Stats(profile)
        stats.sort_stats("tottime").print_stats(70)
    elif options.calls:
        await count_calls(load, callers, options.requests)
    else:
        took = []
        for _ in range(options.rounds):
            before = time.process_time()
            await load.run(callers, options.requests)
            took.append((time.process_time() - before) / options.requests * 1e6)
        print(f"{min(took):.1f} us at best, {statistics.median(took):.1f} in the middle")
    hurry = asyncio.Event()
    hurry.set()
    await side.stop(hurry)
    if store is not None:
        await store.close()


async def nothing(_: int) -> None:
    """Nobody waits for the end of a plan."""


async def count_calls(load: Load, callers: list[Caller], count: int) -> None:
    calls: Counter[str] = Counter()

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            code = frame.f_code
            calls[f"{code.co_filename.rpartition('/onward/')[2]} {code.co_qualname}"] += 1

    sys.setprofile(note)
    await load.run(callers, count)
    sys.setprofile(None)
    for name, number in calls.most_common(200):
        if number >= count / 2:
            print(f"{number / count:7.2f} {name}")
    print(f"{sum(calls.values()) / count:7.2f} all")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--on", action="store_true", help="a key, limits, money, a ledger")
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--burst", type=int, default=50, help="events of a stream that one read brings")
    parser.add_argument("--named", action="store_true", help="an Idempotency-Key of its own for each")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--calls", action="store_true", help="Python functions called, for each request")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        uvloop.run(measure(options, Path(folder)))


if __name__ == "__main__":
    main()
