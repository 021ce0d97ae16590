"""Every failure of a provider, at every API that asks providers: what a caller sees and what is charged.

`python -m tests.http.failover_table` writes `docs/failover.md` anew.
"""

import asyncio
import contextlib
import json
import ssl
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import trustme

from onward.admission.ledger import Entry, State
from onward.admission.store import EntryQuery
from onward.dialects import DIALECTS
from onward.dialects.schema import HeaderValue
from onward.wiring import config as settings
from tests.conftest import free_port
from tests.http.gateway import Gateway, data_of, gateway
from tests.mock_answers import Behaviour
from tests.mock_provider import MockProvider

PAGE = Path(__file__).parent.parent.parent / "docs" / "failover.md"
SHORT_S = 0.15
"""The bounds on time of the providers that fail."""
ALONE, BOTH = "alone", "both"
ASKED = [name for name, dialect in DIALECTS.items() if "completions" in dialect.passed]
"""The APIs that ask providers."""


@dataclass(frozen=True)
class Way:
    """A route of an API, and what a provider speaks behind it."""

    title: str
    dialect: str
    surface: str = "completions"
    protocol: str = "openai"
    opening: int = 0
    """Events of the provider before its first piece."""

    @property
    def path(self) -> str:
        return f"/{self.dialect}{DIALECTS[self.dialect].surfaces[self.surface].path}"

    @property
    def body(self) -> dict[str, Any]:
        if self.surface == "messages":
            return {"messages": [{"role": "user", "content": "two words"}], "max_tokens": 5}
        return {"prompt": "two words", "max_tokens": 5}


_ANTHROPIC = next(name for name, dialect in DIALECTS.items() if "messages" in dialect.surfaces)
WAYS = (
    *(Way(f"Completions of `{name}`", name) for name in ASKED),
    Way(
        "Messages, at a provider that speaks chat completions",
        _ANTHROPIC,
        surface="messages",
        opening=1,
    ),
    Way(
        "Messages, at a provider that speaks them",
        _ANTHROPIC,
        surface="messages",
        protocol="anthropic",
        opening=2,
    ),
)


@dataclass(frozen=True)
class Fails:
    """A way to fail. `at`: another address than the mock's own, or other bounds on time."""

    name: str
    does: Behaviour = field(default_factory=Behaviour)
    at: str = "mock"

    def behind(self, opening: int) -> Behaviour:
        """The same, where so many events stand before the first piece."""
        does = self.does
        counts = {name: getattr(does, name) for name in ("cut", "stall", "error_event")}
        return replace(does, **{name: count + opening for name, count in counts.items() if count})


def _status(status: int, **more: Any) -> Fails:
    name = f"{status} with `Retry-After: {more['retry_after']}`" if "retry_after" in more else str(status)
    return Fails(name, Behaviour(status=status, **more))


FAILURES = (
    Fails("nobody listens", at="refused"),
    Fails("no connection in time", at="unanswered"),
    Fails("a certificate that is not trusted", at="untrusted"),
    Fails("closes instead of an answer", Behaviour(drop=True)),
    Fails("resets instead of an answer", Behaviour(reset=True)),
    Fails("no header in time", Behaviour(never=True), at="slow"),
    Fails("a header, then silence", Behaviour(silent=True), at="slow"),
    Fails("nothing but comments", Behaviour(hums=0), at="slow"),
    *map(_status, (204, 302, 400, 401, 402, 403, 404, 407, 408, 413, 422, 429)),
    _status(429, retry_after="7"),
    *map(_status, (500, 502, 503)),
    _status(503, retry_after="7"),
    *map(_status, (504, 529)),
    Fails("200 with a page of HTML", Behaviour(html=True)),
    Fails("a compressed body", Behaviour(encoding="gzip")),
    Fails("ends before its first event", Behaviour(cut=0)),
    Fails("an error as its first event", Behaviour(error_event=0)),
    Fails("an event of 2 MB", Behaviour(huge=2_000_000)),
    Fails("ends after two pieces", Behaviour(cut=2)),
    Fails("resets after two pieces", Behaviour(cut=2, reset=True)),
    Fails("silence after two pieces", Behaviour(stall=2), at="silent"),
    Fails("an error after two pieces", Behaviour(error_event=2)),
    Fails("its last event is broken JSON", Behaviour(broken_json=True)),
    Fails("no event that ends the stream", Behaviour(no_done=True)),
    Fails("no usage", Behaviour(usage="never")),
)


@dataclass
class Seen:
    """What came of a request."""

    way: Way
    stream: bool
    standby: bool
    answer: httpx.Response
    entry: Entry
    pieces: int
    error: dict[str, Any] | None

    @property
    def whole(self) -> bool:
        """Whether the caller has a whole answer."""
        return self.answer.status_code == 200 and self.error is None

    @property
    def code(self) -> str:
        """What an API calls the failure."""
        assert self.error is not None
        return self.error["code"] if "code" in self.error else self.error["type"]

    def cell(self) -> str:
        """In the page's words."""
        if self.whole:
            told = "answer" if len(self.entry.attempts) == 1 else "answer of the next"
        elif self.answer.status_code == 200:
            told = f"{self.pieces} pieces, `{self.code}`"
        else:
            told = f"{self.answer.status_code} `{self.code}`"
            wait = self.answer.headers.get("retry-after", "1")
            told += f", wait {wait} s" if wait != "1" else ""
        if not self.entry.charged:
            return told
        about = "~" if self.entry.estimated else ""
        return f"{told}: {about}{self.entry.usage.completion_tokens}"


@contextlib.contextmanager
def _addresses(failing: MockProvider) -> Iterator[dict[str, str]]:
    """Where providers that fail can be."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    with MockProvider(tls=context) as untrusted:
        yield {
            "mock": failing.base_url,
            "slow": failing.base_url,
            "silent": failing.base_url,
            "refused": f"http://127.0.0.1:{free_port()}/v1",
            "unanswered": failing.base_url.replace("http:", "https:"),
            "untrusted": untrusted.base_url,
        }


@contextlib.asynccontextmanager
async def _running(folder: Path) -> AsyncIterator[tuple[Gateway, MockProvider, MockProvider]]:
    """A gateway with models for each address: by one that fails alone, and with another behind it."""
    with MockProvider() as failing, MockProvider() as good, _addresses(failing) as addresses:
        models: dict[str, list[Any]] = {}
        for name, url in addresses.items():
            for protocol in ("openai", "anthropic"):
                one = settings.Provider(
                    name=f"{name}-{protocol}",
                    protocol=protocol,
                    base_url=url,
                    connect_timeout_s=SHORT_S if name == "unanswered" else 20,
                    first_byte_timeout_s=SHORT_S if name == "slow" else 20,
                    idle_timeout_s=SHORT_S if name == "silent" else 20,
                )
                well = settings.Provider(name=f"well-{protocol}", protocol=protocol, base_url=good.base_url)
                models[f"{ALONE}-{name}-{protocol}"] = [one]
                models[f"{BOTH}-{name}-{protocol}"] = [one, well]
        async with gateway(
            folder,
            models=models,
            tenant={"balance": "1000"},
            mounts={name: f"/{name}" for name in ASKED},
            config={"routing": settings.Routing(breaker_failures=0, retry_after_most_s=0)},
        ) as running:
            yield running, failing, good


async def _ask(running: Gateway, fails: Fails, way: Way, *, stream: bool, standby: bool) -> Seen:
    label = f"{WAYS.index(way)}-{FAILURES.index(fails)}-{stream:d}{standby:d}"
    answer = await running.post(
        way.path,
        {**way.body, "model": f"{BOTH if standby else ALONE}-{fails.at}-{way.protocol}", "stream": stream},
        headers={"x-request-id": label},
    )
    pieces, error = 0, None
    if answer.headers["content-type"].startswith("text/event-stream"):
        for event in data_of(answer.text):
            if isinstance(event, dict):
                error = event.get("error", error)
                pieces += event.get("type") == "content_block_delta"
                pieces += any(choice["text"] for choice in event.get("choices", ()))
        assert (error is None) == ("data: [DONE]" in answer.text or "event: message_stop" in answer.text)
    else:
        error = answer.json().get("error")
    return Seen(way, stream, standby, answer, await _entry(running, label), pieces, error)


async def _entry(running: Gateway, label: str) -> Entry:
    async with asyncio.timeout(10):
        while True:
            page = await running.store.entries(EntryQuery(request_id=label))
            if page.entries and page.entries[0].state is not State.HELD:
                [entry] = page.entries
                return entry
            await asyncio.sleep(0.005)


async def all_seen(folder: Path) -> dict[str, list[Seen]]:
    """By failure: at every API, whole and streamed, alone and with another behind it."""
    found: dict[str, list[Seen]] = {}
    async with _running(folder) as (running, failing, good):
        for fails in FAILURES:
            found[fails.name] = []
            before = len(good.requests)
            for opening in sorted({way.opening for way in WAYS}):
                failing.always(fails.behind(opening))
                found[fails.name] += await asyncio.gather(
                    *[
                        _ask(running, fails, way, stream=stream, standby=standby)
                        for way in WAYS
                        if way.opening == opening
                        for standby in (False, True)
                        for stream in (False, True)
                    ]
                )
            moved = sum(len(seen.entry.attempts) - 1 for seen in found[fails.name])
            assert len(good.requests) - before == moved, "the other one is asked once for each second try"
        await running.idle()
    return found


def class_header(dialect: str) -> str | None:
    """The header in which an API tells who answered."""
    return next(
        (one.name for one in DIALECTS[dialect].headers if one.value is HeaderValue.PROVIDER_CLASS), None
    )


def page(found: dict[str, list[Seen]]) -> str:
    """The page of it all."""
    parts = [INTRODUCTION]
    for way in WAYS:
        rows: dict[tuple[str, ...], list[str]] = {}
        for name, every in found.items():
            cells = tuple(seen.cell() for seen in every if seen.way is way)
            rows.setdefault(cells, []).append(name)
        parts.append(
            f"## {way.title}\n\n| the provider | alone, whole | alone, streamed | with another, whole "
            "| with another, streamed |\n| --- | --- | --- | --- | --- |"
        )
        parts += [f"| {'; '.join(names)} | {' | '.join(cells)} |" for cells, names in rows.items()]
        parts.append("")
    return "\n".join(parts).rstrip() + "\n"


INTRODUCTION = """\
# Failover

What becomes of a request when the provider of its model fails, and who pays for what.

- Deployments are tried in the order of the config. The next one is tried after a failure before the first
  piece of output, within the time of the request (`server.request_timeout_s`); what a caller has a piece of
  is never begun anew. A whole answer counts as nothing until it is there.
- What a provider holds against the request (400, 413, 422) is final where the API says so: the next one would
  say the same. `tokens` asks the next one after any failure.
- A deployment rests after failures of its own in a row, and where its provider names a `Retry-After` with 429
  or 5xx: it is tried last then. When its time is over one request finds out whether it has recovered.
  Failures by the request's own fault, and callers that leave, do not count. Settings: `[routing]` in
  [configuration.md](configuration.md).
- An engine of ours that is not up is tried last as well.
- Where a provider has several addresses (`base_urls`), the one with the fewest requests is asked. One that
  cannot be connected to is replaced by the next within the same try; one that fails, or asks to wait,
  rests by itself.
- Each HTTP process decides by what it has seen itself. No health check is ever sent: requests find out.
- `onward models explain MODEL` says where a request would go now, and why.
- An API that tells who answered says `primary` for the first deployment of the config, else `fallback`.
- Every try is in the ledger with its own outcome; one that is passed over is none.

The tables are made by a test from what really came back: an answer of five tokens, whole and streamed, from
a provider that fails so, alone and with another one behind it that is well. Behind a colon stand the tokens of
output that were charged, with `~` where they are an estimate; without a colon nothing was charged. "2 pieces" is what
the caller had before the event with the error.
"""


def main() -> None:
    """Write the page."""
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(all_seen(Path(folder)))
    PAGE.write_text(page(found), encoding="utf-8")
    print(json.dumps({"rows": len(found)}))


if __name__ == "__main__":
    main()
