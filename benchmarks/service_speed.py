"""How fast the reward service judges over loopback, and how fast it refuses excess load.

    python benchmarks/service_speed.py [--quick] [--json FILE]

Batches of 8 number checks over persistent connections: at full speed, then at half of that rate.
Then a full queue, and the time until the 429. Service, workers and client share the cores of this
machine; other load affects every figure.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any
from urllib.parse import urlsplit

from publish import ROOT, arguments, publish, table

BATCH = 8
CONNECTIONS = 16
GOAL_PER_S, GOAL_P99_MS, GOAL_REFUSAL_MS = 3000.0, 25.0, 50.0
SLOW = """
import time
from veriloop.verifiers.registry import verifier
from veriloop.verifiers.verdict import Verdict

@verifier("slow", reference={}, accepts="")
def check(problem, response):
    time.sleep(0.2)
    return Verdict(score=1.0)
"""


@contextmanager
def serving(*flags: str) -> Iterator[str]:
    """Start a service in a separate process; yields its address when it is ready."""
    words = [sys.executable, "-m", "veriloop.stages.cli", "serve", "--port", "0", *flags]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().partition(": ")[0]
        try:
            asyncio.run(until_ready(url))
            yield url
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


async def until_ready(url: str) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        client = await Client.open(url)
        status, _ = await client.ask(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        if status == 200:
            return
        await asyncio.sleep(0.1)
    raise TimeoutError(f"{url} did not become ready")


class Client:
    """A minimal client with one connection, so that the client is not the bottleneck."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, url: str) -> "Client":
        parts = urlsplit(url)
        return cls(*await asyncio.open_connection(parts.hostname, parts.port))

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return int(head[9:12]), await self._reader.readexactly(length)


def request(verifier: str, number: int) -> bytes:
    """A batch of unique responses, half of them right."""
    items = [
        {
            "verifier": verifier,
            "reference": {"value": str(number)} if verifier == "number" else {},
            "response": f"<think>{number}.{n} it is</think> <answer>{number + n % 2}</answer>",
        }
        for n in range(BATCH)
    ]
    body = json.dumps({"items": items}).encode()
    head = "POST /v1/verify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def load(url: str, requests: list[bytes], per_s: float = 0.0) -> dict[str, Any]:
    """Send all, at `per_s` requests per second or as fast as the answers arrive.

    Times of paced requests start when they were due, so they include waiting for a connection.
    """
    waiting, took = list(enumerate(requests))[::-1], []
    began = time.perf_counter()

    async def work() -> None:
        client = await Client.open(url)
        while waiting:
            number, item = waiting.pop()
            due = began + number / per_s if per_s else time.perf_counter()
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            status, body = await client.ask(item)
            took.append(time.perf_counter() - due)
            assert status == 200 and body.count(b'"score": 1.0') == BATCH // 2, body[:200]

    await asyncio.gather(*(work() for _ in range(CONNECTIONS)))
    seconds = time.perf_counter() - began
    return {"per_s": BATCH * len(requests) / seconds, "requests": len(requests), **spread(took)}


async def overload(url: str, requests: list[bytes]) -> dict[str, Any]:
    """Fill the queue and keep asking until that many were refused; times of the refusals alone."""
    took: list[float] = []

    async def work(part: list[bytes]) -> None:
        client = await Client.open(url)
        for item in part * len(requests):
            if len(took) >= len(requests):
                return
            began = time.perf_counter()
            status, _ = await client.ask(item)
            if status == 429:
                took.append(time.perf_counter() - began)

    await asyncio.gather(*(work(requests[n::CONNECTIONS]) for n in range(CONNECTIONS)))
    return {"refused": len(took), **spread(took)}


def spread(seconds: list[float]) -> dict[str, float]:
    ms = sorted(1000 * s for s in seconds)
    return {"p50_ms": median(ms), "p99_ms": quantiles(ms, n=100)[98], "max_ms": ms[-1]}


def measure(count: int, workers: int) -> dict[str, Any]:
    loads = [os.getloadavg()[0]]
    with serving("--verifiers", "number", "--workers", str(workers)) as url:
        numbered = iter(range(10**9))
        batches = [[request("number", next(numbered)) for _ in range(count)] for _ in range(3)]
        asyncio.run(load(url, batches[0][: count // 4]))
        full = asyncio.run(load(url, batches[1]))
        half = asyncio.run(load(url, batches[2], full["per_s"] / BATCH / 2))
    with tempfile.TemporaryDirectory() as folder:
        plugin = Path(folder) / "slow.py"
        plugin.write_text(SLOW)
        slow = ["--plugin", str(plugin), "--verifiers", "slow", "--bounds.queue-items", "16"]
        with serving(*slow) as url:
            refused = asyncio.run(overload(url, [request("slow", n) for n in range(count)]))
    loads.append(os.getloadavg()[0])
    return {"full": full, "half": half, "overload": refused, "workers": workers, "load": loads}


def main() -> int:
    options = arguments(
        __doc__ or "", workers={"type": int, "default": 1, "help": "processes that judge"}
    )
    results = measure(40 if options.quick else 2000, options.workers)
    full, half, refused = results["full"], results["half"], results["overload"]
    rows = [
        ["as fast as it can", full["per_s"], full["p50_ms"], full["p99_ms"], full["max_ms"]],
        ["half of that", half["per_s"], half["p50_ms"], half["p99_ms"], half["max_ms"]],
        ["429", "", refused["p50_ms"], refused["p99_ms"], refused["max_ms"]],
    ]
    text = table(["load", "verdicts per s", "p50 ms", "p99 ms", "max ms"], rows)
    text += f"\nload average {results['load'][0]:.1f} to {results['load'][1]:.1f}"
    failed = []
    if not options.quick:
        if full["per_s"] < GOAL_PER_S:
            failed.append(f"fewer than {GOAL_PER_S:.0f} verdicts a second over loopback")
        if half["p99_ms"] > GOAL_P99_MS:
            failed.append(f"more than {GOAL_P99_MS:.0f} ms at the 99th percentile of half load")
        if refused["p99_ms"] > GOAL_REFUSAL_MS:
            failed.append(f"refusals later than {GOAL_REFUSAL_MS:.0f} ms")
    return publish(options, text, results, failed=failed)


if __name__ == "__main__":
    sys.exit(main())
