"""Counters of requests and tokens, gauges of engines, for Prometheus.

With several HTTP processes prometheus_client keeps values in files under
``PROMETHEUS_MULTIPROC_DIR``, which has to be set before this module is imported; a scrape then
sums over all processes, dead ones included. Labels hold the catalog's names and fixed words,
never what a caller wrote: their number is bounded.
"""

import os
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector

from onward.engines.protocol import EngineState, EngineStatus
from onward.http.record import Record

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
_FIRST = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
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
        self._children: dict[tuple[str, str, int], Counter] = {}

    def began(self) -> None:
        self._in_flight.inc()

    def ended(self, record: Record) -> None:
        """Count one finished request."""
        self._in_flight.dec()
        model = record.model or "none"
        key = (model, record.surface or "none", record.status)
        child = self._children.get(key)
        if child is None:
            status = "disconnected" if record.status == 0 else str(record.status)
            child = self._children[key] = self._requests.labels(model, key[1], status)
        child.inc()
        usage = record.usage
        if usage is None or record.first_piece is None:
            return
        self._tokens["prompt"].labels(model).inc(usage.prompt_tokens)
        self._tokens["completion"].labels(model).inc(usage.completion_tokens)
        self._tokens["cached"].labels(model).inc(usage.cached_tokens)
        self._first.labels(model).observe(record.first_piece - record.started)
        if record.last_piece is not None and usage.completion_tokens > 1:
            spread = record.last_piece - record.first_piece
            self._each.labels(model).observe(spread / (usage.completion_tokens - 1))

    def text(self) -> bytes:
        """The exposition format. Reads files where several processes count."""
        return generate_latest(self._scraped)
