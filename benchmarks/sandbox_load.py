"""Honest code on a busy machine: limits are on CPU time, so waiting for a core costs no reward.

    python benchmarks/sandbox_load.py [--quick] [--json FILE] [--loops 50]

Busy loops, each in a separate session so that the scheduler counts every one, compete with the
honest programs of the suite and with computations that need most of their CPU limit. The results
are compared with those of a limit on wall time alone for the same runs.
"""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from busy_loops import busy_loops
from publish import ROOT, arguments, publish, table

from veriloop.sandbox.executor import Program, Stdin
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.namespace.pool import NamespaceExecutor
from veriloop.sandbox.probe import probe
from veriloop.sandbox.result import Execution
from veriloop.sandbox.suite import Case, load
from veriloop.verifiers.code.reference import CodeReference
from veriloop.verifiers.code.tests import judge_program

SUITE = ROOT / "tests" / "sandbox" / "cases"
CPU_S = 2.0
SHARE = 0.8  # of its CPU limit that a heavy honest program needs
SLEEP_WALL_S = 2.0
LATE_S = 5.0  # within which a busy machine gets to end what slept too long
COMPUTE = f"""
import time
while time.process_time() < {SHARE * CPU_S}:
    sum(range(1000))
print("done")
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One program: its outcome and times."""

    name: str
    wanted: str
    ended: str
    cpu_s: float
    wall_s: float
    cpu_limit_s: float
    wall_limit_s: float  # the default one, of the wall clock

    @property
    def right(self) -> bool:
        return self.ended == self.wanted


class Timed:
    """An executor that remembers the slowest of its runs."""

    def __init__(self, box: NamespaceExecutor) -> None:
        self.box, self.backend, self.tier = box, box.backend, box.tier
        self.slowest = Execution(ended="ok")

    def run(self, *words: Any) -> Execution:
        return self._seen(self.box.run(*words))

    def run_all(self, *words: Any) -> list[Execution]:
        return [self._seen(ran) for ran in self.box.run_all(*words)]

    def close(self) -> None:
        """Does nothing: the owner closes the executor."""

    def _seen(self, ran: Execution) -> Execution:
        self.slowest = max(self.slowest, ran, key=lambda execution: execution.wall_s)
        return ran


def judged(box: NamespaceExecutor, case: Case) -> Ran:
    """An honest program of the suite, with the wall limit that follows from its CPU limit."""
    timed = Timed(box)
    limits = replace(case.limits, wall_s=None)
    flat = {name: getattr(limits, name) for name in limits.__slots__}
    reference = CodeReference.read(
        {"tests": case.tests[:1], "function": case.function, "limits": flat}
    )
    score = judge_program(timed, case.source, reference).score
    slowest = timed.slowest
    ended = "right" if score == 1 else slowest.ended if slowest.ended != "ok" else "refused"
    return _ran(case.file, "right", ended, slowest, limits)


def ended(box: NamespaceExecutor, name: str, wanted: str, source: str, limits: Limits) -> Ran:
    ran = box.run(Program(source=source), Stdin(), limits)
    return _ran(name, wanted, ran.ended, ran, limits)


def _ran(name: str, wanted: str, ended: str, ran: Execution, limits: Limits) -> Ran:
    return Ran(
        name=name,
        wanted=wanted,
        ended=ended,
        cpu_s=ran.cpu_s,
        wall_s=ran.wall_s,
        cpu_limit_s=limits.cpu_s,
        wall_limit_s=limits.wall,
    )


def measure(loops: int, heavy: int, slots: int) -> list[Ran]:
    """Run everything once, `slots` at a time, on a machine with that many busy loops."""
    honest = [entry for entry in load(SUITE)[1] if entry.language == "python"]
    plain = Limits(cpu_s=CPU_S)
    sleeper = Limits(cpu_s=CPU_S, wall_s=SLEEP_WALL_S)
    with (
        NamespaceExecutor(slots=slots) as box,
        busy_loops(loops),
        ThreadPoolExecutor(slots) as threads,
    ):
        todo = [threads.submit(judged, box, case) for case in honest if not case.run_beside]
        for name, wanted, source, limits in (
            *[(f"computes {SHARE:.0%} of its limit", "ok", COMPUTE, plain)] * heavy,
            ("computes without end", "cpu", "while True: pass", plain),
            ("sleeps", "wall", "import time; time.sleep(600)", sleeper),
            ("sleeps and computes a little", "wall", _NAPS, sleeper),
        ):
            todo.append(threads.submit(ended, box, name, wanted, source, limits))
        return [entry.result() for entry in todo]


_NAPS = """
import time
while True:
    time.sleep(0.01)
"""


def summary(ran: list[Ran]) -> dict[str, Any]:
    """The number of honest programs that each kind of limit would have refused."""
    honest = [run for run in ran if run.wanted in ("ok", "right")]
    return {
        "honest": len(honest),
        "refused": sum(not run.right for run in honest),
        "refused_by_wall_of_cpu_limit": sum(run.wall_s > run.cpu_limit_s for run in honest),
        "refused_by_default_wall": sum(run.wall_s > run.wall_limit_s for run in honest),
        "slowest_s": max(run.wall_s for run in honest),
    }


def missed(ran: list[Ran]) -> list[str]:
    """Wrong outcomes, and sleeping programs that ended too late."""
    failures = [
        f"{run.name}: {run.ended}, not {run.wanted}, after {run.cpu_s:.2f} s of CPU "
        f"and {run.wall_s:.1f} s ({run.cpu_limit_s:g} s of CPU were allowed)"
        for run in ran
        if not run.right
    ]
    late = [run for run in ran if run.wanted == "wall" and run.wall_s > SLEEP_WALL_S + LATE_S]
    return failures + [f"{run.name}: ended only after {run.wall_s:.1f} s" for run in late]


def main() -> int:
    options = arguments(
        __doc__ or "",
        loops={"type": int, "default": 50, "help": "busy loops beside the programs"},
        heavy={"type": int, "default": 2, "help": "computations near their limit"},
        slots={"type": int, "default": 2},
    )
    if not probe().tier:
        print(probe())
        return 1
    loops = 4 if options.quick else options.loops
    ran = measure(loops, options.heavy, options.slots)
    rows = [
        [run.name, run.wanted, run.ended, run.cpu_s, run.wall_s, run.wall_limit_s] for run in ran
    ]
    header = ["program", "wanted", "ended", "CPU s", "wall s", "default wall limit"]
    totals = summary(ran)
    text = (
        f"{table(header, rows)}\n\n{loops} busy loops, load average {os.getloadavg()[0]:.0f}: "
        f"{totals['refused']} of {totals['honest']} honest programs refused; on wall time alone "
        f"{totals['refused_by_wall_of_cpu_limit']} at the CPU limit's figure, "
        f"{totals['refused_by_default_wall']} at the default wall limit's"
    )
    results = {"loops": loops, **totals, "ran": [_flat(run) for run in ran]}
    return publish(options, text, results, failed=missed(ran))


def _flat(run: Ran) -> dict[str, Any]:
    return {name: getattr(run, name) for name in run.__slots__}


if __name__ == "__main__":
    sys.exit(main())
