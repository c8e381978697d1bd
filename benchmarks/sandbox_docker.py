"""How fast untrusted code runs inside warm containers, against the embedded sandbox.

    python benchmarks/sandbox_docker.py [--quick] [--json FILE]

One worker each. All contenders take turns, so that other load on the machine affects all of them.
Needs an image with the current sandbox: `veriloop sandbox build-image`.
"""

import os
import sys
import time
from contextlib import ExitStack
from statistics import median, quantiles
from typing import Any

from publish import arguments, publish, table

from veriloop.sandbox.docker.pool import DockerExecutor
from veriloop.sandbox.executor import Executor, Invocation, Program, Stdin
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.namespace.pool import NamespaceExecutor
from veriloop.sandbox.probe import SandboxUnavailableError

GOAL = 0.6  # of the embedded sandbox's rate
CASES = 10
LIMITS = Limits(cpu_s=5, wall_s=60)
SUM = Program(source="print(sum(map(int, input().split())))")
HEADER = ["contender", "runs", "per s", "p50 ms", "p99 ms", "min ms"]


def seconds(box: Executor, cases: int) -> float:
    """Seconds of one program on so many inputs."""
    invocations: list[Invocation] = [Stdin(data=b"%d 2 3\n" % i) for i in range(cases)]
    began = time.perf_counter()
    done = box.run_all(SUM, invocations, LIMITS)
    took = time.perf_counter() - began
    assert [execution.stdout for execution in done] == [b"%d\n" % (i + 5) for i in range(cases)], (
        done
    )
    return took


def row(name: str, took: list[float]) -> dict[str, Any]:
    """Rate and percentiles of one contender, in milliseconds."""
    milliseconds = sorted(1000 * s for s in took)
    return {
        "name": name,
        "runs": len(took),
        "per_second": len(took) / sum(took),
        "p50_ms": median(milliseconds),
        "p99_ms": quantiles(milliseconds, n=100, method="inclusive")[98],
        "min_ms": milliseconds[0],
    }


def measure(rounds: int) -> dict[str, Any]:
    """Rows of both, the start time of a container, and the ratios of the rates."""
    load = [os.getloadavg()[0]]
    with ExitStack() as stack:
        boxes: dict[str, Executor] = {
            "embedded": stack.enter_context(NamespaceExecutor(slots=1)),
        }
        began = time.perf_counter()
        boxes["docker"] = stack.enter_context(DockerExecutor(slots=1, tier=boxes["embedded"].tier))
        ready_s = time.perf_counter() - began
        turns = [(name, cases) for cases in (1, CASES) for name in boxes]
        for name, cases in turns:
            seconds(boxes[name], cases)  # the first run warms caches and makes room
        took: dict[tuple[str, int], list[float]] = {turn: [] for turn in turns}
        for number in range(rounds):
            for name, cases in turns if number % CASES == 0 else turns[: len(boxes)]:
                took[name, cases].append(seconds(boxes[name], cases))
    rows = [row(f"{name}, {cases} to a program", took[name, cases]) for name, cases in turns]
    rates = [entry["per_second"] for entry in rows]
    return {
        "rows": rows,
        "container_ready_s": ready_s,
        "load": [*load, os.getloadavg()[0]],
        "rate_over_embedded": rates[1] / rates[0],
        "rate_over_embedded_ten_cases": rates[3] / rates[2],
    }


def main() -> int:
    options = arguments(__doc__ or "")
    try:
        results = measure(20 if options.quick else 400)
    except SandboxUnavailableError as refusal:
        print(refusal)
        return 1
    rows = [list(row.values()) for row in results["rows"]]
    ratio, of_ten = results["rate_over_embedded"], results["rate_over_embedded_ten_cases"]
    lines = [
        table(HEADER, [[r[0], str(r[1]), *r[2:]] for r in rows]),
        f"\nwarm containers run at {ratio:.2f} x the embedded sandbox's rate (at least {GOAL}), "
        f"with {CASES} cases to a program at {of_ten:.2f} x",
        f"a container is ready after {results['container_ready_s']:.2f} s",
        f"load average {results['load'][0]:.1f} to {results['load'][1]:.1f}",
    ]
    failed = []
    if ratio < GOAL and not options.quick:
        failed.append(f"warm containers run at {ratio:.2f} x the embedded rate, below {GOAL}")
    return publish(options, "\n".join(lines), results, failed=failed)


if __name__ == "__main__":
    sys.exit(main())
