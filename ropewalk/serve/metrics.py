"""Figures for Prometheus. Labels are routes and status codes, never anything that a client wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ropewalk.serve.generation.request import EngineState

FIRST = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)  # seconds
BETWEEN = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
COUNTERS = ("prompt_tokens", "completion_tokens", "steps")  # of the engine; the others are gauges


class Metrics(Collector):
    """The server's figures, and those of its engine once there is one."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self.requests = Counter(
            "ropewalk_requests", "Requests by route and status", ["route", "status"], registry=registry
        )
        self.in_flight = Gauge("ropewalk_requests_in_flight", "Requests not yet answered", registry=registry)
        self.first_token = Histogram(
            "ropewalk_time_to_first_token_seconds", "Until the first token", buckets=FIRST, registry=registry
        )
        self.between_tokens = Histogram(
            "ropewalk_inter_token_seconds", "Between two tokens", buckets=BETWEEN, registry=registry
        )

    def watch(self, state: Callable[[], EngineState]) -> None:
        """From now on with the engine's figures."""
        self._state = state
        self.registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """The engine's figures, read when they are asked for."""
        for name, value in self._state()._asdict().items():
            family = CounterMetricFamily if name in COUNTERS else GaugeMetricFamily
            yield family(f"ropewalk_{name}", f"{name} of the engine".replace("_", " "), value=value)
