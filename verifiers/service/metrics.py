"""Prometheus metrics: verdicts, times, refusals, the queue, and replaced workers."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from veriloop.verifiers.registry import Task
from veriloop.verifiers.verdict import Verdict

_JUDGING = (0.0001, 0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 30.0)  # seconds
_WAITING = (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0)


class Metrics:
    """Metrics of one service, in a separate registry. Thread-safe."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._verdicts = Counter(
            "veriloop_verdicts",
            "Verdicts reached, second attempts and probes of labels included",
            ["verifier", "status"],
            registry=self.registry,
        )
        self._judging = Histogram(
            "veriloop_judging_seconds",
            "Seconds of judging one response",
            ["verifier"],
            buckets=_JUDGING,
            registry=self.registry,
        )
        self._waiting = Histogram(
            "veriloop_waiting_seconds",
            "Seconds one response waited for a worker",
            buckets=_WAITING,
            registry=self.registry,
        )
        self._requests = Histogram(
            "veriloop_request_seconds",
            "Seconds until a request was answered",
            ["path", "code"],
            buckets=_WAITING,
            registry=self.registry,
        )

    def watch(self, depth: Callable[[], float], restarts: Callable[[], float]) -> None:
        """Read the queue and the pool at every scrape."""
        queue = Gauge("veriloop_queue_items", "Items waiting or judged", registry=self.registry)
        queue.set_function(depth)
        replaced = Gauge(
            "veriloop_pool_restarts", "Workers replaced since the start", registry=self.registry
        )
        replaced.set_function(restarts)

    def verdict(self, task: Task, verdict: Verdict) -> None:
        """Count one verdict and its times."""
        name = task[0].verifier
        self._verdicts.labels(name, verdict.status).inc()
        self._judging.labels(name).observe(verdict.exec_s)
        self._waiting.observe(verdict.queue_s)

    def request(self, path: str, code: int, seconds: float) -> None:
        """Count one response; `path` is a route of the service, or "other"."""
        self._requests.labels(path, str(code)).observe(seconds)

    def text(self) -> bytes:
        """Prometheus' text format."""
        return generate_latest(self.registry)
