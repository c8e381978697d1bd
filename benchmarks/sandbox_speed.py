"""How fast untrusted code runs: the embedded sandbox against a bare Python with no isolation.

    python benchmarks/sandbox_speed.py [--quick] [--json FILE] [--slots 2]

All contenders take turns, so that other load on the machine affects all of them. Rates of several
workers are measured in separate rounds. On a busy machine ratios are more reliable than
milliseconds.
"""

import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from multiprocessing.synchronize import Barrier
from statistics import median, quantiles
from typing import Any

from bare_forks import BareForks
from publish import arguments, publish, table
from timed_programs import CONTEST, TWO_LINES, calls

from veriloop.sandbox.executor import Call, Invocation, Program, Stdin
from veriloop.sandbox.interpreter import find
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.namespace.pool import NamespaceExecutor
from veriloop.sandbox.probe import SandboxUnavailableError, probe

LIMITS = Limits(cpu_s=5, wall_s=60)
SCRIPT = Program(source="print(sum(map(int, input().split())))")
BARE = "python -I -c pass"
CASES = 10
FASTER_ALONE = 2.5  # than a bare start, with one worker
FASTER_TOGETHER = 3.0  # with several
WORST_OVER_MEDIAN = 3.0
CASES_OVER_ONE = 3.0  # what ten cases of one program may cost, in single executions

Contender = Callable[[], None]


def bare(path: str) -> Contender:
    """A plain Python start, without a program and without isolation."""

    def once() -> None:
        subprocess.run([path, "-I", "-c", "pass"], check=True, stdin=subprocess.DEVNULL)

    return once


def script(executor: NamespaceExecutor) -> Contender:
    invocation = Stdin(data=b"1 2 3\n")

    def once() -> None:
        done = executor.run(SCRIPT, invocation, LIMITS)
        assert done.stdout == b"6\n", done

    return once


def several(executor: NamespaceExecutor, source: str, cases: int) -> Contender:
    """One program called on `cases` inputs."""
    program = Program(source=source)
    invocations: list[Invocation] = [Call(function="solve", args=args) for args in calls(cases)]

    def once() -> None:
        done = executor.run_all(program, invocations, LIMITS)
        assert [execution.ended for execution in done] == ["ok"] * cases, done

    return once


def forked(forks: BareForks, source: str) -> Contender:
    """The same with no isolation: one fork of a bare Python for each case."""

    def once() -> None:
        values = forks.call(source, calls(CASES))
        assert len(values) == CASES and all(values), values

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


def apart(tier: int, workers: int, runs: int) -> float:
    """Runs per second of `workers` processes, each with an executor of one slot, as verifiers."""
    spawning = multiprocessing.get_context("spawn")
    barrier = spawning.Barrier(workers + 1)
    processes = [
        spawning.Process(target=_alone, args=(tier, runs, barrier)) for _ in range(workers)
    ]
    for process in processes:
        process.start()
    barrier.wait()
    began = time.perf_counter()
    barrier.wait()
    took = time.perf_counter() - began
    for process in processes:
        process.join()
    return workers * runs / took


def _alone(tier: int, runs: int, barrier: Barrier) -> None:
    """One of those processes; it starts and ends its runs together with the others."""
    with NamespaceExecutor(slots=1, tier=tier) as executor:
        once = script(executor)
        once()
        barrier.wait()
        for _ in range(runs):
            once()
        barrier.wait()


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
    """All rows, the load of the machine before and after, and the ratios."""
    load = [os.getloadavg()[0]]
    with ExitStack() as stack:
        contenders: dict[str, Contender] = {BARE: bare(find().path)}
        tiers: dict[int, NamespaceExecutor] = {}
        for tier in (1, 2):
            try:
                tiers[tier] = stack.enter_context(NamespaceExecutor(slots=workers, tier=tier))
            except SandboxUnavailableError:
                continue
            contenders[f"tier {tier}, script"] = script(tiers[tier])
        best = tiers[min(tiers)]
        forks = stack.enter_context(BareForks(find().path, workers))
        for name, source in (("two lines", TWO_LINES), ("50 lines", CONTEST)):
            for count in (1, CASES):
                contenders[f"{count} of {name}"] = several(best, source, count)
            contenders[f"{CASES} bare forks, {name}"] = forked(forks, source)
        rows = [row(*item) for item in interleaved(contenders, rounds).items()]
        tier = min(tiers)
        names = [BARE, f"tier {tier}, script"]
        rates = {
            name: [together(contenders[name], n, rounds) for n in (1, workers)] for name in names
        }
    rates["the same, a process per worker"] = [apart(tier, n, rounds) for n in (1, workers)]
    load.append(os.getloadavg()[0])
    by_name = {entry["name"]: entry for entry in rows}
    bare_rates, *ours = rates.values()
    judged = by_name[names[1]]
    return {
        "rows": rows,
        "workers": workers,
        "rates": rates,
        "load": load,
        "times_faster_alone": by_name[BARE]["p50_ms"] / judged["p50_ms"],
        "times_faster_together": min(rate[1] for rate in ours) / bare_rates[1],
        "worst_over_median": judged["p99_ms"] / judged["p50_ms"],
        "ten_cases_over_one": ten_over_one(by_name, "50 lines"),
        "ten_small_cases_over_one": ten_over_one(by_name, "two lines"),
        "ten_bare_forks_over_one": forks_over_one(by_name, "50 lines"),
        "ten_small_bare_forks_over_one": forks_over_one(by_name, "two lines"),
    }


def ten_over_one(rows: dict[str, dict[str, Any]], program: str) -> float:
    return rows[f"{CASES} of {program}"]["p50_ms"] / rows[f"1 of {program}"]["p50_ms"]


def forks_over_one(rows: dict[str, dict[str, Any]], program: str) -> float:
    """The same ratio if the ten cases have no isolation and the single one has."""
    forks = rows[f"{CASES} bare forks, {program}"]
    return forks["p50_ms"] / rows[f"1 of {program}"]["p50_ms"]


def bars(results: dict[str, Any]) -> list[tuple[str, float, float, bool]]:
    """(what, measured, wanted, whether it is met)."""
    least = [
        ("times as fast as a bare start", "times_faster_alone", FASTER_ALONE),
        (f"the same with {results['workers']} workers", "times_faster_together", FASTER_TOGETHER),
    ]
    most = [
        ("p99 over p50", "worst_over_median", WORST_OVER_MEDIAN),
        (f"{CASES} cases over one, 50 lines", "ten_cases_over_one", CASES_OVER_ONE),
        (f"{CASES} cases over one, two lines", "ten_small_cases_over_one", CASES_OVER_ONE),
    ]
    at_least = [(what, results[key], bar, results[key] >= bar) for what, key, bar in least]
    return at_least + [(what, results[key], bar, results[key] <= bar) for what, key, bar in most]


def main() -> int:
    options = arguments(
        __doc__ or "", slots={"type": int, "default": 2, "help": "workers of the parallel rounds"}
    )
    if not probe().tier:
        print(probe())
        return 1
    results = measure(10 if options.quick else 300, options.slots)
    header = ["contender", "runs", "per s", "p50 ms", "p99 ms", "min ms"]
    rows = [list(row.values()) for row in results["rows"]]
    lines = [str(probe()), "", table(header, [[r[0], str(r[1]), *r[2:]] for r in rows]), ""]
    parallel = [[name, *values] for name, values in results["rates"].items()]
    lines.append(table(["per second, by workers", "1", str(options.slots)], parallel))
    outcomes = bars(results)
    bar_rows = [[what, value, bar, "yes" if met else "NO"] for what, value, bar, met in outcomes]
    lines += ["", table(["bar", "measured", "wanted", "met"], bar_rows)]
    floors = [results["ten_bare_forks_over_one"], results["ten_small_bare_forks_over_one"]]
    lines.append(
        f"{CASES} cases over one with no isolation of the ten: "
        f"50 lines {floors[0]:.2f}, two lines {floors[1]:.2f}"
    )
    lines.append(f"load average {results['load'][0]:.1f} to {results['load'][1]:.1f}")
    missed = [
        f"{what}: {value:.2f}, wanted {bar:g}" for what, value, bar, met in outcomes if not met
    ]
    failed = [] if options.quick else missed
    return publish(options, "\n".join(lines), results, failed=failed)


if __name__ == "__main__":
    sys.exit(main())
