"""Counters of requests and tokens, gauges of engines, for Prometheus.

With several HTTP processes prometheus_client keeps values in files under
``PROMETHEUS_MULTIPROC_DIR``, which has to be set before this module is imported; a scrape then
sums over all processes, dead ones included. Labels hold the catalog's names and fixed words,
never what a caller wrote: their number is bounded.
"""

import asyncio
import logging
import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector

from onward.engines.protocol import EngineState, EngineStatus
from onward.http.record import Record

logger = logging.getLogger("onward")
CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
_FIRST = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_HAND_ON_S = 0.1
_EACH = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5)


class _Engines:
    """Engine gauges, read when scraped: every process sees the same engines, so nothing is summed."""

    def __init__(self, engines: Callable[[], Mapping[str, EngineStatus]]) -> None:
        self._engines = engines

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        gauges = {
            "up": GaugeMetricFamily(
                "onward_engine_up", "1 when the engine can answer.", labels=["deployment"]
            ),
            "slots": GaugeMetricFamily("onward_engine_slots", "Sequences at once.", labels=["deployment"]),
            "running": GaugeMetricFamily(
                "onward_engine_running", "Sequences running.", labels=["deployment"]
            ),
            "waiting": GaugeMetricFamily("onward_engine_waiting", "Requests queued.", labels=["deployment"]),
            "cached": GaugeMetricFamily(
                "onward_engine_cached_prefixes", "Prefixes whose keys are kept.", labels=["deployment"]
            ),
            "restarts": GaugeMetricFamily(
                "onward_engine_restarts", "Times the engine was started again.", labels=["deployment"]
            ),
        }
        for name, status in self._engines().items():
            gauges["up"].add_metric([name], float(status.state is EngineState.READY))
            gauges["slots"].add_metric([name], status.slots)
            gauges["running"].add_metric([name], status.running)
            gauges["waiting"].add_metric([name], status.waiting)
            gauges["cached"].add_metric([name], status.cached_prefixes)
            gauges["restarts"].add_metric([name], status.restarts)
        return gauges.values()


class _Times:
    """Observations of a histogram that were not handed on yet, by its buckets."""

    __slots__ = ("counts", "histogram", "sum")

    def __init__(self, histogram: Histogram, bounds: tuple[float, ...]) -> None:
        self.histogram = histogram
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def hand_on(self) -> None:
        """The library takes observations one by one only: so into its buckets, as its `observe` does."""
        histogram = self.histogram
        for number, count in enumerate(self.counts):
            if count:
                histogram._buckets[number].inc(count)  # noqa: SLF001
                self.counts[number] = 0
        if self.sum:
            histogram._sum.inc(self.sum)  # noqa: SLF001
            self.sum = 0.0


class _Tally:
    """What the requests of one model and surface add to the counters, until it is handed on."""

    __slots__ = ("answered", "cached", "completion", "each", "first", "model", "prompt", "surface")

    def __init__(self, model: str, surface: str) -> None:
        self.model = model
        self.surface = surface
        self.answered: dict[int, int] = {}
        """By status."""
        self.prompt = self.completion = self.cached = 0
        self.first: _Times | None = None
        self.each: _Times | None = None


class Metrics:
    """Everything that is counted. `engines` gives the status of each deployment by its name."""

    def __init__(self, engines: Callable[[], Mapping[str, EngineStatus]]) -> None:
        own = CollectorRegistry()
        self._scraped = own
        folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
        if folder:
            self._scraped = CollectorRegistry()
            MultiProcessCollector(self._scraped, folder)
        self._scraped.register(_Engines(engines))  # pyright: ignore[reportArgumentType] - a collector by shape
        self._requests = Counter(
            "onward_requests_total", "Requests answered.", ["model", "surface", "status"], registry=own
        )
        self._tokens = {
            kind: Counter(f"onward_{kind}_tokens_total", about, ["model"], registry=own)
            for kind, about in (
                ("prompt", "Prompt tokens of all requests."),
                ("completion", "Tokens sampled, seen or not."),
                ("cached", "Prompt tokens whose keys were reused."),
            )
        }
        self._in_flight = Gauge(
            "onward_requests_in_flight", "Requests being answered.", registry=own, multiprocess_mode="livesum"
        )
        self._first = Histogram(
            "onward_time_to_first_token_seconds",
            "From the start of a request to its first piece.",
            ["model"],
            registry=own,
            buckets=_FIRST,
        )
        self._each = Histogram(
            "onward_time_per_output_token_seconds",
            "Mean time of a request's tokens after its first.",
            ["model"],
            registry=own,
            buckets=_EACH,
        )
        self._resting = Gauge(
            "onward_deployment_resting",
            "HTTP processes in which it rests after failures, until a request to it succeeds.",
            ["deployment"],
            registry=own,
            multiprocess_mode="livesum",
        )
        self._resting_replicas = Gauge(
            "onward_replica_resting",
            "HTTP processes in which one of several addresses of a provider rests, by its place.",
            ["provider", "replica"],
            registry=own,
            multiprocess_mode="livesum",
        )
        self._tallies: dict[tuple[str | None, str], _Tally] = {}
        """By the model and surface of a record."""
        self._running = 0
        self._changed = False

    def began(self) -> None:
        self._running += 1
        if not self._changed:
            self._soon()

    def ended(self, record: Record) -> None:
        """Count one finished request. Sums are kept here and handed on ten times a second: a counter of the
        library takes a lock and a look-up for each step.
        """
        self._running -= 1
        if not self._changed:
            self._soon()
        tally = self._tallies.get((record.model, record.surface)) or self._tally(record)
        answered, status = tally.answered, record.status
        answered[status] = answered.get(status, 0) + 1
        usage, first, last = record.usage, record.first_piece, record.last_piece
        if usage is None or first is None:
            return
        completion = usage.completion_tokens
        tally.prompt += usage.prompt_tokens
        tally.completion += completion
        tally.cached += usage.cached_tokens
        times = tally.first or self._times(tally)
        took = first - record.started
        times.counts[bisect_left(_FIRST, took)] += 1
        times.sum += took
        each = tally.each
        if each is not None and last is not None and last > first and completion > 1:
            took = (last - first) / (completion - 1)
            each.counts[bisect_left(_EACH, took)] += 1
            each.sum += took

    def _tally(self, record: Record) -> _Tally:
        tally = _Tally(record.model or "none", record.surface or "none")
        self._tallies[record.model, record.surface] = tally
        return tally

    def _times(self, tally: _Tally) -> _Times:
        """Of its first pieces; those of the others are made with them."""
        tally.each = _Times(self._each.labels(tally.model), _EACH)
        tally.first = _Times(self._first.labels(tally.model), _FIRST)
        return tally.first

    def rests(self, deployment: str, seconds: float | None) -> None:
        """A deployment rests for so long, None: it rests no more. The log is told too: it is rare."""
        self._resting.labels(deployment).set(seconds is not None)
        if seconds is None:
            logger.info("deployment=%s answers again", deployment)
        else:
            logger.warning("deployment=%s rests for %g s", deployment, seconds)

    def replica_rests(self, provider: str, replica: str, seconds: float | None) -> None:
        """The same of one of several addresses of a provider."""
        self._resting_replicas.labels(provider, replica).set(seconds is not None)

    def _soon(self) -> None:
        self._changed = True
        asyncio.get_running_loop().call_later(_HAND_ON_S, self.hand_on)

    def hand_on(self) -> None:
        """Give the library what was counted since the last time, so that every process can be read."""
        self._changed = False
        self._in_flight.set(self._running)
        for tally in self._tallies.values():
            model, answered = tally.model, tally.answered
            if not answered:
                continue
            tally.answered = {}
            for status, count in answered.items():
                shown = "disconnected" if status == 0 else str(status)
                self._requests.labels(model, tally.surface, shown).inc(count)
            for kind, tokens in (
                ("prompt", tally.prompt),
                ("completion", tally.completion),
                ("cached", tally.cached),
            ):
                if tokens or tally.first is not None:
                    self._tokens[kind].labels(model).inc(tokens)
            tally.prompt = tally.completion = tally.cached = 0
            for times in (tally.first, tally.each):
                if times is not None:
                    times.hand_on()

    def text(self) -> bytes:
        """The exposition format. Reads files where several processes count."""
        return generate_latest(self._scraped)
