"""Figures for Prometheus. Labels are routes and status codes, never anything that a client wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ropewalk.serve.generation.request import State

FIRST = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)  # seconds
BETWEEN = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
GAUGES = {
    "running": "Requests whose answers are written",
    "waiting": "Requests in the queue",
    "cache_bytes": "Bytes of cached keys and values in use",
    "cache_limit": "Bytes of cached keys and values at most",
    "sessions": "Sessions in memory",
}
COUNTERS = {
    "prompt_tokens": "Tokens of prompts",
    "cached_tokens": "Tokens of prompts whose keys were cached",
    "completion_tokens": "Tokens of answers",
    "steps": "Passes of the model",
}


class Metrics:
    """The server's figures, and those of its engine once there is one."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "ropewalk_requests", "Requests by route and status", ["route", "status"], registry=self.registry
        )
        self.in_flight = Gauge("ropewalk_requests_in_flight", "Requests not yet answered", registry=self.registry)
        self.first_token = Histogram(
            "ropewalk_time_to_first_token_seconds", "Until the first delta", buckets=FIRST, registry=self.registry
        )
        self.between_tokens = Histogram(
            "ropewalk_inter_token_seconds", "Between two tokens", buckets=BETWEEN, registry=self.registry
        )

    def count(self, in_flight: Callable[[], float]) -> None:
        """How many requests the server is answering, read when it is asked for."""
        self.in_flight.set_function(in_flight)

    def watch(self, state: Callable[[], State]) -> None:
        """From now on with the engine's figures."""
        self.registry.register(_EngineFigures(state))

    def text(self) -> bytes:
        """All figures as Prometheus reads them."""
        return generate_latest(self.registry)


class _EngineFigures(Collector):
    """The engine's state, read when it is asked for."""

    def __init__(self, state: Callable[[], State]) -> None:
        self._state = state

    def collect(self) -> Iterator[Metric]:
        """Called at every reading."""
        state = self._state()
        for name, meaning in GAUGES.items():
            yield GaugeMetricFamily(f"ropewalk_{name}", meaning, value=getattr(state, name))
        for name, meaning in COUNTERS.items():
            yield CounterMetricFamily(f"ropewalk_{name}", meaning, value=getattr(state, name))
