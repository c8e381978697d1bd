"""How fast untrusted code runs: the embedded sandbox against a bare Python with no isolation.

    python benchmarks/sandbox_speed.py [--quick] [--json FILE] [--slots 2]

All contenders take turns, so that whatever else the machine does falls on each alike. Rates of
several workers come from their own rounds. Read ratios rather than milliseconds on a busy machine.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from statistics import median, quantiles
from typing import Any

from publish import arguments, publish, table

from sandbox.executor import Call, Given, Program, Stdin
from sandbox.limits import Limits
from sandbox.namespace.interpreter import find
from sandbox.namespace.pool import NamespaceExecutor
from sandbox.probe import SandboxUnavailableError, probe

LIMITS = Limits(cpu_s=5, wall_s=60)
SCRIPT = Program(source="print(sum(map(int, input().split())))")
SOLUTION = Program(
    source="def mixsum(xs):\n    return sum((i + 1) * x * x for i, x in enumerate(xs)) % 1000003\n"
)
CASES = 10
GOAL_RATIO = 3.0  # what ten cases of one program may cost, in single executions

Contender = Callable[[], None]


def bare(path: str) -> Contender:
    """A whole Python start, with nothing to run and nothing around it."""

    def once() -> None:
        subprocess.run([path, "-I", "-c", "pass"], check=True, stdin=subprocess.DEVNULL)

    return once


def script(executor: NamespaceExecutor) -> Contender:
    given = Stdin(data=b"1 2 3\n")

    def once() -> None:
        done = executor.run(SCRIPT, given, LIMITS)
        assert done.stdout == b"6\n", done

    return once


def several(executor: NamespaceExecutor, cases: int) -> Contender:
    """One program called on `cases` inputs."""
    given: list[Given] = [Call(function="mixsum", args=[[i, 2, 3]]) for i in range(cases)]

    def once() -> None:
        done = executor.run_all(SOLUTION, given, LIMITS)
        assert [one.value for one in done] == [i * i + 35 for i in range(cases)], done

    return once


def interleaved(contenders: dict[str, Contender], rounds: int) -> dict[str, list[float]]:
    """Seconds of each run of each contender, one after the other in every round."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for contender in contenders.values():
        contender()  # the first start warms caches and slots
    for _ in range(rounds):
        for name, contender in contenders.items():
            began = time.perf_counter()
            contender()
            seconds[name].append(time.perf_counter() - began)
    return seconds


def together(contender: Contender, workers: int, runs: int) -> float:
    """Runs per second of `workers` threads that share the contender."""

    def work() -> None:
        for _ in range(runs):
            contender()

    threads = [threading.Thread(target=work) for _ in range(workers)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return workers * runs / (time.perf_counter() - began)


def row(name: str, seconds: list[float]) -> dict[str, Any]:
    """Rate and percentiles of one contender, in milliseconds."""
    milliseconds = sorted(1000 * s for s in seconds)
    return {
        "name": name,
        "runs": len(seconds),
        "per_second": len(seconds) / sum(seconds),
        "p50_ms": median(milliseconds),
        "p99_ms": quantiles(milliseconds, n=100, method="inclusive")[98],
        "min_ms": milliseconds[0],
    }


def measure(rounds: int, workers: int) -> dict[str, Any]:
    """All rows, the load of the machine before and after, and what follows."""
    load = [os.getloadavg()[0]]
    with ExitStack() as stack:
        contenders: dict[str, Contender] = {"python -I -c pass": bare(find().path)}
        tiers: dict[int, NamespaceExecutor] = {}
        for tier in (1, 2):
            try:
                tiers[tier] = stack.enter_context(NamespaceExecutor(slots=workers, tier=tier))
            except SandboxUnavailableError:
                continue
            contenders[f"tier {tier}, script"] = script(tiers[tier])
        best = tiers[min(tiers)]
        contenders["one case"] = several(best, 1)
        contenders[f"{CASES} cases"] = several(best, CASES)
        rows = [row(*item) for item in interleaved(contenders, rounds).items()]
        names = list(contenders)[:2]
        rates = {
            name: [together(contenders[name], n, rounds) for n in (1, workers)] for name in names
        }
    load.append(os.getloadavg()[0])
    p50 = {one["name"]: one["p50_ms"] for one in rows}
    return {
        "rows": rows,
        "workers": workers,
        "rates": rates,
        "load": load,
        "times_faster_than_bare": p50[names[0]] / p50[names[1]],
        "ten_cases_over_one": p50[f"{CASES} cases"] / p50["one case"],
    }


def main() -> int:
    options = arguments(
        __doc__ or "", slots={"type": int, "default": 2, "help": "workers of the parallel rounds"}
    )
    if not probe().tier:
        print(probe())
        return 1
    results = measure(10 if options.quick else 300, options.slots)
    header = ["contender", "runs", "per s", "p50 ms", "p99 ms", "min ms"]
    rows = [list(one.values()) for one in results["rows"]]
    lines = [str(probe()), "", table(header, [[r[0], str(r[1]), *r[2:]] for r in rows]), ""]
    rates = results["rates"].items()
    parallel = [[name, *values] for name, values in rates]
    lines.append(table(["per second, by workers", "1", str(options.slots)], parallel))
    lines.append(f"\n{results['times_faster_than_bare']:.2f} x as fast as a bare start")
    lines.append(f"{CASES} cases cost {results['ten_cases_over_one']:.2f} x one case")
    lines.append(f"load average {results['load'][0]:.1f} to {results['load'][1]:.1f}")
    failed = []
    if results["times_faster_than_bare"] <= 1 and not options.quick:
        failed.append("the sandbox is slower than a bare start")
    return publish(options, "\n".join(lines), results, failed=failed)


if __name__ == "__main__":
    sys.exit(main())
