"""Thousands of runs in one executor: nothing leaks, and no run sees a mark of an earlier one.

    python benchmarks/sandbox_soak.py [--quick] [--json FILE] [--runs 5000] [--slots 2]

One run in five is hostile. Every run has its own mark; some programs search for the marks of others
in all they can reach, and at the end the memory of the zygotes is searched.
"""

import itertools
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from footprint import descendants, footprint, scan
from publish import ROOT, arguments, publish, table
from sandbox_suite import NEEDS_FILES

from veriloop.sandbox.canaries import canaries
from veriloop.sandbox.executor import Call, Invocation, Program, Stdin
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.namespace import linux
from veriloop.sandbox.namespace.pool import NamespaceExecutor
from veriloop.sandbox.probe import probe
from veriloop.sandbox.suite import Case, load

SUITE = ROOT / "tests" / "sandbox" / "cases"
LOOKING = (Path(__file__).parent / "marked_program.py").read_text()
LIMITS = Limits(cpu_s=5, wall_s=60, memory_mb=256)
HOSTILE_WALL_S = 0.4  # enough to do harm; what never ends is not to fill the time
WARM_UP = 1000  # runs: every attack once, as the largest results set the size of the heap
ALLOWED = {"own_kb": 16 << 10, "slots_kb": 8 << 10}  # growth; of everything else there is none
QUICK = ALLOWED | {"own_kb": 64 << 10}  # its warm-up does not meet the largest results

Job = Callable[[NamespaceExecutor, str], None]


@dataclass(slots=True)
class Record:
    """The results of all runs."""

    ended: Counter[str] = field(default_factory=Counter[str])
    marks: Counter[str] = field(default_factory=Counter[str])
    wrong: list[str] = field(default_factory=list[str])
    runs: int = 0

    def check(self, right: bool, what: str) -> None:
        if not right:
            self.wrong.append(what[:300])


def looking(record: Record) -> Job:
    """Search for the marks of other runs, then plant this run's mark."""

    def run(box: NamespaceExecutor, mark: str) -> None:
        done = box.run(Program(source=LOOKING), Stdin(data=f"{mark}\n".encode()), LIMITS)
        record.ended[done.ended] += 1
        record.check(done.ended == "ok", f"looking: {done.why or done.stderr!r}")
        if done.ended == "ok" and done.stdout != b"[]\n":
            record.marks[done.stdout.decode().strip()] += 1

    return run


def calling(record: Record) -> Job:
    """A generated solution with several cases."""

    def run(box: NamespaceExecutor, mark: str) -> None:
        factor = int(mark[-3:])
        source = f"MARK = {mark!r}\ndef scaled(xs):\n    return [x * {factor} for x in xs]\n"
        invocations: list[Invocation] = [
            Call(function="scaled", args=[[case, -1]]) for case in range(4)
        ]
        done = box.run_all(Program(source=source), invocations, LIMITS)
        record.ended.update(execution.ended for execution in done)
        wanted = [[case * factor, -factor] for case in range(4)]
        record.check([execution.value for execution in done] == wanted, f"calling: {done}")

    return run


def honest(record: Record, case: Case) -> Job:
    """An honest program of the suite on its first input."""

    def run(box: NamespaceExecutor, mark: str) -> None:
        test = case.tests[0]
        program = Program(source=f"{case.source}\n# {mark}\n")
        limits = replace(case.limits, wall_s=60)
        if case.kind == "stdin":
            done = box.run(program, Stdin(data=test["stdin"].encode()), limits)
            right = done.stdout.split() == test["expected_stdout"].encode().split()
        else:
            done = box.run(program, Call(function=case.function, args=test["args"]), limits)
            right = done.ended == "ok"
        record.ended[done.ended] += 1
        record.check(right, f"{case.file}: {done.ended} {done.why}")

    return run


def hostile(record: Record, case: Case) -> Job:
    """An attack; any outcome but a sandbox error is fine."""

    def run(box: NamespaceExecutor, mark: str) -> None:
        limits = replace(case.limits, wall_s=HOSTILE_WALL_S)
        test = case.tests[0]
        invocation: Invocation = Stdin(data=str(test.get("stdin", "")).encode())
        if case.kind == "function":
            invocation = Call(function=case.function, args=test.get("args", ()))
        done = box.run(Program(source=f"{case.source}\n_mark = {mark!r}\n"), invocation, limits)
        record.ended[done.ended] += 1
        record.check(done.ended != "sandbox_error", f"{case.file}: {done.why}")

    return run


def jobs(record: Record) -> Iterator[Job]:
    """Of ten runs two are hostile, four search for marks, two have several cases and two are
    honest."""
    attacks, fair = ([case for case in cases if case.language == "python"] for cases in load(SUITE))
    usable = [case for case in attacks if "args" in case.tests[0] or "stdin" in case.tests[0]]
    bad = itertools.cycle([hostile(record, case) for case in usable if not case.run_beside])
    alone = [
        case for case in fair if "assert" not in case.tests[0] and case.file not in NEEDS_FILES
    ]
    good = itertools.cycle([honest(record, case) for case in alone])
    look, call = looking(record), calling(record)
    while True:
        yield from (
            next(bad),
            look,
            call,
            look,
            next(good),
            next(bad),
            look,
            call,
            look,
            next(good),
        )


def soak(
    box: NamespaceExecutor, todo: Iterator[Job], nonce: str, count: int, slots: int, record: Record
) -> None:
    """Do `count` runs on all slots at once, then one more on each, so that all are started and
    idle."""
    lock = threading.Lock()

    def one(_: int) -> None:
        with lock:
            record.runs += 1
            job, mark = next(todo), f"{nonce}{record.runs:06d}"
        job(box, mark)

    with ThreadPoolExecutor(slots) as threads:
        list(threads.map(one, range(count)))
    pause = Program(source="import time; time.sleep(0.2)")
    box.run_all(pause, [Stdin()] * slots, LIMITS)
    time.sleep(0.5)


def measure(count: int, warm_up: int, slots: int, tier: int) -> dict[str, Any]:
    """Footprints after a warm-up and at the end, marks seen, and marks in the zygotes' memory."""
    record = Record()
    nonce = f"mark-{os.urandom(6).hex()}-"
    todo = jobs(record)
    with canaries(), NamespaceExecutor(slots=slots, tier=tier) as box:
        soak(box, todo, nonce, warm_up, slots, record)
        began, before = time.monotonic(), footprint()
        soak(box, todo, nonce, count, slots, record)
        seconds, after = time.monotonic() - began, footprint()
        remembered = scan(descendants(os.getpid()), nonce.encode())
        control = scan([os.getpid()], nonce.encode())
    closed = footprint()
    return {
        "tier": tier,
        "runs": record.runs,
        "seconds": seconds,
        "ended": dict(record.ended),
        "before": before,
        "after": after,
        "closed": {name: closed[name] for name in ("processes", "cgroups", "mounts")},
        "marks_seen": dict(record.marks),
        "zygotes": remembered,
        "own_memory_hits": len(control["hits"]),
        "wrong": record.wrong,
    }


def missed(result: dict[str, Any], allowed: Mapping[str, int] = ALLOWED) -> list[str]:
    """Every bar that this result misses; `allowed` is the allowed growth."""
    before, after, where = result["before"], result["after"], f"tier {result['tier']}"
    failures = [
        f"{where}: {name} grew from {before[name]} to {after[name]}"
        for name in before
        if after[name] > before[name] + allowed.get(name, 0)
    ]
    failures += [f"{where}: {name} left after closing" for name in left_open(result)]
    failures += [f"{where}: saw a mark: {name}" for name in result["marks_seen"]]
    failures += [f"{where}: a mark in {hit}" for hit in result["zygotes"]["hits"]]
    failures += [f"{where}: {failure}" for failure in result["wrong"][:10]]
    if not result["own_memory_hits"] or not result["zygotes"]["processes"]:
        failures.append(f"{where}: memory could not be searched, so this proves nothing about it")
    return failures


def left_open(result: dict[str, Any]) -> list[str]:
    return [name for name in ("processes", "cgroups") if result["closed"][name]]


def leave_the_mounts_of_others() -> None:
    """Enter a mount namespace if permitted, so that mounts of other processes are not counted."""
    with suppress(OSError):
        linux.unshare(linux.CLONE_NEWNS)
        linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)


def main() -> int:
    options = arguments(
        __doc__ or "",
        runs={"type": int, "default": 5000, "help": "after the warm-up"},
        slots={"type": int, "default": 2},
        tier={"type": int, "choices": (1, 2), "help": "one only"},
    )
    leave_the_mounts_of_others()
    host = probe()
    tiers = [options.tier] if options.tier else [1, 2] if host.works("landlock") else [1]
    results = [
        measure(*((60, 20) if options.quick else (options.runs, WARM_UP)), options.slots, tier)
        for tier in tiers
        if host.tier and host.tier <= tier
    ]
    rows = [
        [
            name,
            *(
                text
                for result in results
                for text in (result["before"][name], result["after"][name])
            ),
        ]
        for name in results[0]["before"]
    ]
    header = [
        "held",
        *(f"{when}, tier {result['tier']}" for result in results for when in ("warm", "end")),
    ]
    lines = [str(host), "", table(header, rows), ""]
    for result in results:
        zygotes = result["zygotes"]
        lines.append(
            f"tier {result['tier']}: {result['runs']} runs in {result['seconds']:.0f} s; ended "
            f"{', '.join(f'{n} {count}' for n, count in sorted(result['ended'].items()))}; "
            f"{sum(result['marks_seen'].values())} saw a mark; {len(zygotes['hits'])} marks in "
            f"{zygotes['mib']:.0f} MiB of {zygotes['processes']} zygote processes "
            f"({result['own_memory_hits']} in our own)"
        )
    failed = [
        failure
        for result in results
        for failure in missed(result, QUICK if options.quick else ALLOWED)
    ]
    return publish(options, "\n".join(lines), results, failed=failed)


if __name__ == "__main__":
    sys.exit(main())
