"""What the clients of the soak do, and what they accept as an answer."""

import asyncio
import json
import random
import time
from collections import Counter
from contextlib import aclosing
from urllib.parse import urlsplit

import httpx

MODEL = "smollm2-135m-instruct"
DEADLINE_S = 90.0
"""No request may take longer: all of them ask for little."""
LOST = frozenset({500, 502, 503})
"""What a request may get while the engine is dead. Nothing else."""
TEXTS = ("Once upon a time", "The capital of France is", "def add(a, b):", "🙂 Grüße,", "1, 2, 3,")
WRONG = (
    ("/completions", {"prompt": ""}),
    ("/completions", {"prompt": []}),
    ("/completions", {"prompt": [[]]}),
    ("/completions", {"prompt": [10**9]}),
    ("/completions", {"prompt": "x", "max_tokens": -1}),
    ("/completions", {"prompt": "x", "temperature": "hot"}),
    ("/completions", {"prompt": "x", "logprobs": 10**6}),
    ("/completions", {"prompt": "x", "n": 0}),
    ("/completions", {"prompt": "x", "stop": ["a"] * 1000}),
    ("/completions", {"prompt": "x " * 20_000}),
    ("/completions", {"prompt": "x", "model": "no-such-model"}),
    ("/chat/completions", {"messages": []}),
    ("/chat/completions", {"messages": [{"role": "nobody", "content": "x"}]}),
    ("/chat/completions", {"messages": "x"}),
    ("/tokenize", {"prompt": 3}),
    ("/detokenize", {"tokens": [-1]}),
    ("/no/such/route", {}),
)
POST = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
GARBAGE = (
    b"GET / HTTP/1.1\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    POST + b"Content-Length: 5\r\n\r\n{",
    POST + b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{{",
    POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
)


class FaultError(Exception):
    """The server did what it must not."""


class LostError(Exception):
    """A request ended because the engine was killed, as it should."""


class Clients:
    """Clients that share one record of what happened."""

    def __init__(self, base_url: str, seed: int, counts: Counter[str], faults: list[str]) -> None:
        self.base_url = base_url
        self.seed = seed
        self.counts = counts
        self.faults = faults
        self.known: dict[int, str] = {}
        """The text of each seeded request, as it was the first time."""
        place = urlsplit(base_url)
        self.place = (place.hostname, place.port)

    async def learn(self) -> None:
        """Note what seeded requests answer when nothing else runs, and do each wrong thing once."""
        async with httpx.AsyncClient(timeout=DEADLINE_S) as client:
            for path, body in WRONG:
                await self.refused(client, path, body)
            for seed in range(len(TEXTS)):
                self.known[seed] = await self.fold(client, "/completions", seeded(seed))

    async def run(self, count: int, seconds: float) -> None:
        """Let `count` clients loose for so long."""
        end = time.monotonic() + seconds
        await asyncio.gather(*(self.client(random.Random(f"{self.seed}/{n}"), end) for n in range(count)))

    async def client(self, chance: random.Random, end: float) -> None:
        acts = {
            self.whole: 4,
            self.streamed: 4,
            self.same_again: 3,
            self.hang_up_in_stream: 3,
            self.hang_up_in_silence: 2,
            self.wrong: 3,
            self.garbage: 2,
        }
        async with httpx.AsyncClient(timeout=DEADLINE_S) as client:
            while time.monotonic() < end and len(self.faults) < 20:
                act = chance.choices(list(acts), list(acts.values()))[0]
                name = act.__name__.replace("_", " ")
                try:
                    async with asyncio.timeout(DEADLINE_S):
                        await act(client, chance)
                    self.counts[name] += 1
                except LostError:
                    self.counts["lost to a kill"] += 1
                    await asyncio.sleep(0.2)
                except TimeoutError:
                    self.faults.append(f"{name}: hung for {DEADLINE_S:.0f} s")
                except (FaultError, httpx.TransportError, OSError, KeyError, ValueError, TypeError) as error:
                    self.faults.append(f"{name}: {type(error).__name__}: {str(error)[:500]}")

    async def whole(self, client: httpx.AsyncClient, chance: random.Random) -> None:
        """An unstreamed request, with whatever options."""
        path, body = request(chance)
        answer = await client.post(self.base_url + path, json=body)
        parsed = checked(answer, 200)
        choices = parsed["choices"]
        expect(len(choices) == body.get("n", 1), "n choices", parsed)
        expect([one["index"] for one in choices] == list(range(len(choices))), "indexes", parsed)
        for one in choices:
            expect(one["finish_reason"] in {"stop", "length"}, "a finish reason", parsed)
        counted(parsed["usage"])

    async def streamed(self, client: httpx.AsyncClient, chance: random.Random) -> None:
        """The same as a stream."""
        path, body = request(chance)
        await self.fold(client, path, body | {"stream_options": {"include_usage": True}})

    async def same_again(self, client: httpx.AsyncClient, chance: random.Random) -> None:
        """A seeded request answers what it did when it was alone."""
        seed = chance.choice(list(self.known))
        text = await self.fold(client, "/completions", seeded(seed))
        expect(text == self.known[seed], f"{self.known[seed]!r} again for seed {seed}", text)

    async def hang_up_in_stream(self, client: httpx.AsyncClient, chance: random.Random) -> None:
        """Leave after a few events."""
        path, body = request(chance)
        left = chance.randrange(4)
        async with client.stream(
            "POST", self.base_url + path, json=body | {"stream": True, "max_tokens": 200}
        ) as answer:
            if answer.status_code != 200:
                await answer.aread()
                checked(answer, 200)
            async with aclosing(answer.aiter_lines()) as lines:
                async for _ in lines:
                    left -= 1
                    if left < 0:
                        return

    async def hang_up_in_silence(self, client: httpx.AsyncClient, chance: random.Random) -> None:
        """Leave an unstreamed request before it is answered."""
        path, body = request(chance)
        try:
            async with asyncio.timeout(chance.uniform(0, 0.3)):
                await client.post(self.base_url + path, json=body | {"max_tokens": 200})
        except TimeoutError:
            pass

    async def wrong(self, client: httpx.AsyncClient, chance: random.Random) -> None:
        """A request that must be refused with a reason."""
        await self.refused(client, *chance.choice(WRONG))

    async def refused(self, client: httpx.AsyncClient, path: str, body: dict) -> None:
        answer = await client.post(self.base_url + path, json={"model": MODEL} | body)
        expect(400 <= answer.status_code < 500 or answer.status_code == 503, "a refusal", answer.text)
        checked(answer, answer.status_code)

    async def garbage(self, _: httpx.AsyncClient, chance: random.Random) -> None:
        """Bytes that are no request, or half of one, and then nothing."""
        reader, writer = await asyncio.open_connection(*self.place)
        try:
            writer.write(chance.choice(GARBAGE))
            async with asyncio.timeout(chance.uniform(0, 0.5)):
                await reader.read(1000)
        except (TimeoutError, ConnectionError):
            pass
        finally:
            writer.close()

    async def fold(self, client: httpx.AsyncClient, path: str, body: dict) -> str:
        """The text of the first choice of a stream that must end well."""
        texts, finishes, ended = [], 0, False
        async with client.stream("POST", self.base_url + path, json=body | {"stream": True}) as answer:
            if answer.status_code != 200:
                await answer.aread()
                checked(answer, 200)
            async for line in answer.aiter_lines():
                expect(not ended or not line, "nothing after [DONE]", line)
                if line == "data: [DONE]":
                    ended = True
                elif line.startswith("data: "):
                    event = json.loads(line[6:])
                    if "error" in event:
                        expect(isinstance(event["error"]["message"], str), "a message", event)
                        raise LostError
                    for choice in event["choices"]:
                        if choice["index"] == 0:
                            texts.append(
                                choice["text"] if "text" in choice else choice["delta"].get("content") or ""
                            )
                        finishes += choice["finish_reason"] is not None
                    if event.get("usage"):
                        counted(event["usage"])
                else:
                    expect(not line or line.startswith(":"), "an event", line)
        expect(ended, "[DONE]", texts)
        expect(finishes == body.get("n", 1), "one finish reason for each choice", finishes)
        return "".join(texts)


def seeded(seed: int) -> dict:
    """A request whose answer depends on nothing else."""
    return {"model": MODEL, "prompt": TEXTS[seed], "seed": seed, "temperature": 1.0, "max_tokens": 12}


def request(chance: random.Random) -> tuple[str, dict]:
    """A good request of some sort."""
    text = chance.choice(TEXTS)
    body = {"model": MODEL, "max_tokens": chance.randrange(1, 24)}
    options = {
        "temperature": chance.choice([0, 0.7, 2]),
        "n": 2,
        "stop": ["\n", "the"],
        "top_p": 0.9,
        "seed": chance.randrange(1 << 40),
        "frequency_penalty": 0.5,
        "logit_bias": {"11": -100},
        "return_token_ids": True,
    }
    body |= {name: value for name, value in options.items() if chance.random() < 0.25}
    if chance.random() < 0.4:
        turns = [{"role": "user", "content": f"{text} {chance.random()}"}]
        return "/chat/completions", body | {"messages": turns}
    body["prompt"] = chance.choice([text, text * chance.randrange(1, 60), [504, 3575, 282, 4649, 314]])
    if chance.random() < 0.3:
        body["logprobs"] = 3
    if chance.random() < 0.2:
        body["echo"] = True
    return "/completions", body


def checked(answer: httpx.Response, status: int) -> dict:
    """The JSON of an answer with this status, or `LostError`; everything else is a `FaultError`."""
    parsed = answer.json()
    if answer.status_code >= 400:
        error = parsed["error"]
        expect(isinstance(error["message"], str) and error["message"], "a message", parsed)
        expect({"type", "param", "code"} <= set(error), "type, param and code", parsed)
        if answer.status_code in {429, 503}:
            expect(answer.headers["retry-after"].isdigit(), "Retry-After", dict(answer.headers))
    expect("x-request-id" in answer.headers, "x-request-id", dict(answer.headers))
    if answer.status_code in LOST and status == 200:
        raise LostError
    expect(answer.status_code == status, f"status {status}", f"{answer.status_code} {answer.text[:300]}")
    return parsed


def counted(usage: dict) -> None:
    """Usage adds up."""
    expect(
        usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"],
        "usage that adds up",
        usage,
    )


def expect(good: object, what: str, found: object) -> None:
    """Raises `FaultError` unless `good`."""
    if not good:
        raise FaultError(f"expected {what}, found {found}")
