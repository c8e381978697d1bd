"""Overhead of the worker pool, and its state after a hundred hangs.

    python benchmarks/pool_overhead.py [--quick] [--json FILE]

Overhead is the wall time of an item beyond its judging, and its CPU time in this process. A busy
machine adds to the first; the second is the cost of the pool itself.
"""

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from publish import arguments, publish, table

from veriloop.data.problem import Problem
from veriloop.verifiers.pool import VerifierPool

SIZES = (1, 8, 64, 512)  # items of a batch
GOAL_S = 100e-6  # CPU seconds of this process for an item of a batch of 8 and more
HANGS, LIMIT_S = 100, 0.05
PLUGIN = """
import time
from veriloop.verifiers.registry import verifier
from veriloop.verifiers.verdict import Verdict

@verifier("sleeper", reference={}, accepts="")
def check(problem, response):
    time.sleep(600 if response.startswith("hang") else 0)
    return Verdict(score=1.0)
"""


def tasks(size: int, batch: int) -> list[tuple[Problem, str]]:
    """Number checks of one group, no two alike."""
    problem = Problem(id=f"{batch}", prompt="", verifier="number", reference={"value": "12"})
    return [(problem, f"<think>{n}</think> <answer>12</answer>") for n in range(size)]


def overhead(pool: VerifierPool, size: int, items: int) -> dict[str, Any]:
    """Microseconds per item of batches of `size`, one batch after the other."""
    batches = [tasks(size, n) for n in range(max(3, items // size))]
    for batch in batches[:2]:
        pool.judge_all(batch)
    judging, began, cpu = 0.0, time.perf_counter(), time.process_time()
    for batch in batches[2:]:
        judging += sum(verdict.exec_s for verdict in pool.judge_all(batch))
    count = size * (len(batches) - 2)
    wall, used = time.perf_counter() - began, time.process_time() - cpu
    return {
        "size": size,
        "items": count,
        "cpu_us": 1e6 * used / count,
        "clock_us": 1e6 * (wall - judging) / count,
        "judging_us": 1e6 * judging / count,
    }


def hangs(count: int, workers: int) -> dict[str, Any]:
    """Kill `count` hanging items, then judge normally."""
    with tempfile.TemporaryDirectory() as folder:
        plugin = Path(folder) / "sleeper.py"
        plugin.write_text(PLUGIN)
        with VerifierPool(workers, LIMIT_S, plugins=[str(plugin)]) as pool:
            pool.warm(["sleeper"])
            problem = Problem(id="h", prompt="", verifier="sleeper", reference={})
            began = time.perf_counter()
            verdicts = pool.judge_all([(problem, f"hang {n}") for n in range(count)])
            seconds = time.perf_counter() - began
            pool.limit_s = 10.0
            after = pool.judge_all([(problem, f"fine {n}") for n in range(2 * workers)])
            return {
                "hangs": count,
                "errors": sum(verdict.score is None for verdict in verdicts),
                "seconds_each": seconds / count,
                "restarts": pool.restarts,
                "whole": all(verdict.score == 1.0 for verdict in after),
            }


def main() -> int:
    options = arguments(
        __doc__ or "", workers={"type": int, "default": 1, "help": "processes that judge"}
    )
    load = [os.getloadavg()[0]]
    with VerifierPool(options.workers) as pool:
        pool.warm(["number"])
        rows = [overhead(pool, size, 400 if options.quick else 8000) for size in SIZES]
    killed = hangs(4 if options.quick else HANGS, options.workers)
    load.append(os.getloadavg()[0])
    header = ["items in a batch", "CPU us an item", "clock us an item", "judging us"]
    shown = [[str(r["size"]), r["cpu_us"], r["clock_us"], r["judging_us"]] for r in rows]
    lines = [table(header, shown), ""]
    lines.append(
        f"{killed['errors']} of {killed['hangs']} hangs killed, {killed['seconds_each']:.2f} s "
        f"each with a limit of {LIMIT_S} s; the pool is {'' if killed['whole'] else 'not '}whole"
    )
    lines.append(f"load average {load[0]:.1f} to {load[1]:.1f}")
    failed = []
    if not options.quick and max(r["cpu_us"] for r in rows if r["size"] >= 8) > 1e6 * GOAL_S:
        failed.append("the pool costs more than 0.1 ms for an item of a batch of 8")
    if killed["errors"] != killed["hangs"] or not killed["whole"]:
        failed.append("the pool is not whole after its hangs")
    results = {"rows": rows, "hangs": killed, "workers": options.workers, "load": load}
    return publish(options, "\n".join(lines), results, failed=failed)


if __name__ == "__main__":
    sys.exit(main())
