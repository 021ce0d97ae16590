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

    __slots__ = ("_bounds", "_counts", "_histogram", "_sum")

    def __init__(self, histogram: Histogram, bounds: tuple[float, ...]) -> None:
        self._histogram = histogram
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def hand_on(self) -> None:
        """The library takes observations one by one only: so into its buckets, as its `observe` does."""
        histogram = self._histogram
        for number, count in enumerate(self._counts):
            if count:
                histogram._buckets[number].inc(count)  # noqa: SLF001
                self._counts[number] = 0
        if self._sum:
            histogram._sum.inc(self._sum)  # noqa: SLF001
            self._sum = 0.0


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
        self._answered: dict[tuple[str, str, int], int] = {}
        self._used: dict[str, list[int]] = {}
        self._times: dict[str, tuple[_Times, _Times]] = {}
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
        model = record.model or "none"
        key = (model, record.surface or "none", record.status)
        self._answered[key] = self._answered.get(key, 0) + 1
        usage, first, last = record.usage, record.first_piece, record.last_piece
        if usage is None or first is None:
            return
        used = self._used.get(model)
        if used is None:
            used = self._used[model] = [0, 0, 0]
        used[0] += usage.prompt_tokens
        used[1] += usage.completion_tokens
        used[2] += usage.cached_tokens
        times = self._times.get(model)
        if times is None:
            first_times, each_times = self._first.labels(model), self._each.labels(model)
            times = self._times[model] = (_Times(first_times, _FIRST), _Times(each_times, _EACH))
        times[0].add(first - record.started)
        if last is not None and last > first and usage.completion_tokens > 1:
            times[1].add((last - first) / (usage.completion_tokens - 1))

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
        answered, self._answered = self._answered, {}
        for (model, surface, status), count in answered.items():
            shown = "disconnected" if status == 0 else str(status)
            self._requests.labels(model, surface, shown).inc(count)
        used, self._used = self._used, {}
        for model, counts in used.items():
            for kind, count in zip(("prompt", "completion", "cached"), counts, strict=True):
                self._tokens[kind].labels(model).inc(count)
        for times in self._times.values():
            for one in times:
                one.hand_on()

    def text(self) -> bytes:
        """The exposition format. Reads files where several processes count."""
        return generate_latest(self._scraped)
