"""The reward service under mixed and hostile load: answers, delay of /healthz, memory.

    python benchmarks/service_load.py [--quick] [--json FILE] [--seconds 60] [--clients 4]

Every request must be answered. Exits with 1 if one is not, if the 99th percentile of /healthz is
above 1 s, or if the service grows by more than 256 MiB.
"""

import collections
import json
import subprocess
import sys
import threading
import time

import httpx2
import psutil
from publish import arguments, publish

ITEM = {"verifier": "number", "reference": {"value": "1"}, "response": "<answer>1</answer>"}
BODIES = (
    json.dumps({"items": [ITEM] * 64}).encode(),
    json.dumps({"items": [{**ITEM, "prompt": "x" * (8 << 20)}]}).encode(),
    b'{"items": [' + b"[]," * (4 << 20) + b"[]]}",  # many tiny values
    b'{"items": [' + b"0," * 200_000 + b"0]}",  # many mistakes
    b'{"items": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",  # deep
    b" " * (17 << 20),  # too large
    json.dumps({"items": [{**ITEM, "facts": {"n": list(range(250_000))}}]}).encode(),  # many values
    b'{"items": [' + b'"a",' * (3 << 20) + b'"a"]}',  # many strings
    b'{"items": ["' + (b"1" * 299 + b"a") * 50_000 + b'"]}',  # many long numbers, almost
)
ALLOWED = {200, 413, 422, 429, 503}


def attack(url: str, end: float, counts: collections.Counter[str]) -> None:
    """Send the bodies in turn until `end`; count statuses, and failures by their type."""
    with httpx2.Client(base_url=url, timeout=120, trust_env=False) as client:
        headers = {"Content-Type": "application/json"}
        while time.monotonic() < end:
            for body in BODIES:
                try:
                    response = client.post("/v1/verify", content=body, headers=headers)
                    counts[str(response.status_code)] += 1
                except httpx2.HTTPError as failure:
                    counts[type(failure).__name__] += 1


def probe(url: str, end: float) -> list[float]:
    """Seconds of each request to /healthz, every 50 ms until `end`."""
    waits: list[float] = []
    while time.monotonic() < end:
        began = time.monotonic()
        httpx2.get(f"{url}/healthz", timeout=120, trust_env=False).raise_for_status()
        waits.append(time.monotonic() - began)
        time.sleep(0.05)
    return sorted(waits)


def wait_ready(url: str) -> None:
    """Raises TimeoutError after a minute."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            if httpx2.get(f"{url}/readyz", trust_env=False).status_code == 200:
                return
        except httpx2.HTTPError:
            pass
        time.sleep(0.1)
    raise TimeoutError(f"{url} is not ready")


def main() -> int:
    options = arguments(
        __doc__ or "",
        seconds={"type": float, "default": 60.0, "help": "of load"},
        clients={"type": int, "default": 4, "help": "threads that send hostile bodies"},
    )
    seconds = 2.0 if options.quick else options.seconds
    command = [sys.executable, "-m", "veriloop.stages.cli", "serve", "--port", "0"]
    command += ["--verifiers", "number"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        url = service.stdout.readline().partition(": ")[0]
        wait_ready(url)
        memory = psutil.Process(service.pid).memory_info
        before, end = memory().rss, time.monotonic() + seconds
        counts: collections.Counter[str] = collections.Counter()
        load = (url, end, counts)
        threads = [threading.Thread(target=attack, args=load) for _ in range(options.clients)]
        for thread in threads:
            thread.start()
        waits = probe(url, end)
        for thread in threads:
            thread.join()
        grown = (memory().rss - before) / (1 << 20)
        service.terminate()
    p99 = waits[int(0.99 * len(waits))]
    text = f"answers {dict(counts)}; /healthz p99 {p99:.3f} s; memory +{grown:.0f} MiB"
    unanswered = sum(n for status, n in counts.items() if not status.isdigit())
    unexpected = [s for s in counts if s.isdigit() and int(s) not in ALLOWED]
    failed = [f"{unanswered} requests without an answer"] if unanswered else []
    failed += [f"status {status}" for status in unexpected]
    failed += [f"p99 of /healthz: {p99:.2f} s, not 1 s"] if p99 > 1.0 else []
    failed += [f"memory: +{grown:.0f} MiB, not 256"] if grown > 256 else []
    results = {"answers": dict(counts), "healthz_p99_s": p99, "grown_mib": grown}
    return publish(options, text, results, failed=failed)


if __name__ == "__main__":
    raise SystemExit(main())
