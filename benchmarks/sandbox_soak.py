"""Thousands of runs in one executor: nothing leaks, and no run sees a mark of one before it.

    python benchmarks/sandbox_soak.py [--quick] [--json FILE] [--runs 5000] [--slots 2]

One run in five is hostile. Every run carries a mark of its own; programs in between look for the
marks of others in all they can reach, and at the end the memory of the zygotes is searched.
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
class Found:
    """What all runs together showed."""

    ended: Counter[str] = field(default_factory=Counter[str])
    marks: Counter[str] = field(default_factory=Counter[str])
    wrong: list[str] = field(default_factory=list[str])
    runs: int = 0

    def check(self, right: bool, what: str) -> None:
        if not right:
            self.wrong.append(what[:300])


def looking(found: Found) -> Job:
    """Look for the marks of others, then plant one's own."""

    def run(box: NamespaceExecutor, mark: str) -> None:
        done = box.run(Program(source=LOOKING), Stdin(data=f"{mark}\n".encode()), LIMITS)
        found.ended[done.ended] += 1
        found.check(done.ended == "ok", f"looking: {done.why or done.stderr!r}")
        if done.ended == "ok" and done.stdout != b"[]\n":
            found.marks[done.stdout.decode().strip()] += 1

    return run


def calling(found: Found) -> Job:
    """A generated solution with several cases."""

    def run(box: NamespaceExecutor, mark: str) -> None:
        factor = int(mark[-3:])
        source = f"MARK = {mark!r}\ndef scaled(xs):\n    return [x * {factor} for x in xs]\n"
        invocations: list[Invocation] = [
            Call(function="scaled", args=[[case, -1]]) for case in range(4)
        ]
        done = box.run_all(Program(source=source), invocations, LIMITS)
        found.ended.update(one.ended for one in done)
        wanted = [[case * factor, -factor] for case in range(4)]
        found.check([one.value for one in done] == wanted, f"calling: {done}")

    return run


def honest(found: Found, case: Case) -> Job:
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
        found.ended[done.ended] += 1
        found.check(right, f"{case.file}: {done.ended} {done.why}")

    return run


def hostile(found: Found, case: Case) -> Job:
    """An attack; how it ends is its own affair, as long as the end is not ours."""

    def run(box: NamespaceExecutor, mark: str) -> None:
        limits = replace(case.limits, wall_s=HOSTILE_WALL_S)
        test = case.tests[0]
        invocation: Invocation = Stdin(data=str(test.get("stdin", "")).encode())
        if case.kind == "function":
            invocation = Call(function=case.function, args=test.get("args", ()))
        done = box.run(Program(source=f"{case.source}\n_mark = {mark!r}\n"), invocation, limits)
        found.ended[done.ended] += 1
        found.check(done.ended != "sandbox_error", f"{case.file}: {done.why}")

    return run


def jobs(found: Found) -> Iterator[Job]:
    """Two hostile runs in ten, four that look, two of several cases, two honest ones."""
    attacks, fair = ([one for one in cases if one.language == "python"] for cases in load(SUITE))
    usable = [one for one in attacks if "args" in one.tests[0] or "stdin" in one.tests[0]]
    bad = itertools.cycle([hostile(found, one) for one in usable if not one.run_beside])
    alone = [one for one in fair if "assert" not in one.tests[0] and one.file not in NEEDS_FILES]
    good = itertools.cycle([honest(found, one) for one in alone])
    look, call = looking(found), calling(found)
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
    box: NamespaceExecutor, todo: Iterator[Job], nonce: str, count: int, slots: int, found: Found
) -> None:
    """Do `count` runs on all slots at once, then one more on each, so that all are up and idle."""
    lock = threading.Lock()

    def one(_: int) -> None:
        with lock:
            found.runs += 1
            job, mark = next(todo), f"{nonce}{found.runs:06d}"
        job(box, mark)

    with ThreadPoolExecutor(slots) as threads:
        list(threads.map(one, range(count)))
    pause = Program(source="import time; time.sleep(0.2)")
    box.run_all(pause, [Stdin()] * slots, LIMITS)
    time.sleep(0.5)


def measure(count: int, warm_up: int, slots: int, tier: int) -> dict[str, Any]:
    """Footprints after a warm-up and at the end, marks seen, and what the zygotes remember."""
    found = Found()
    nonce = f"mark-{os.urandom(6).hex()}-"
    todo = jobs(found)
    with canaries(), NamespaceExecutor(slots=slots, tier=tier) as box:
        soak(box, todo, nonce, warm_up, slots, found)
        began, before = time.monotonic(), footprint()
        soak(box, todo, nonce, count, slots, found)
        seconds, after = time.monotonic() - began, footprint()
        remembered = scan(descendants(os.getpid()), nonce.encode())
        control = scan([os.getpid()], nonce.encode())
    closed = footprint()
    return {
        "tier": tier,
        "runs": found.runs,
        "seconds": seconds,
        "ended": dict(found.ended),
        "before": before,
        "after": after,
        "closed": {name: closed[name] for name in ("processes", "cgroups", "mounts")},
        "marks_seen": dict(found.marks),
        "zygotes": remembered,
        "own_memory_hits": len(control["hits"]),
        "wrong": found.wrong,
    }


def missed(result: dict[str, Any], allowed: Mapping[str, int] = ALLOWED) -> list[str]:
    """Every bar that this result does not meet; `allowed` is the growth of what may grow."""
    before, after, where = result["before"], result["after"], f"tier {result['tier']}"
    told = [
        f"{where}: {name} grew from {before[name]} to {after[name]}"
        for name in before
        if after[name] > before[name] + allowed.get(name, 0)
    ]
    told += [f"{where}: {name} left after closing" for name in left_open(result)]
    told += [f"{where}: saw a mark: {name}" for name in result["marks_seen"]]
    told += [f"{where}: a mark in {hit}" for hit in result["zygotes"]["hits"]]
    told += [f"{where}: {one}" for one in result["wrong"][:10]]
    if not result["own_memory_hits"] or not result["zygotes"]["processes"]:
        told.append(f"{where}: memory could not be searched, so this proves nothing about it")
    return told


def left_open(result: dict[str, Any]) -> list[str]:
    return [name for name in ("processes", "cgroups") if result["closed"][name]]


def leave_the_mounts_of_others() -> None:
    """Where we may: what anybody else mounts meanwhile is not to be counted as ours."""
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
    here = probe()
    tiers = [options.tier] if options.tier else [1, 2] if here.works("landlock") else [1]
    results = [
        measure(*((60, 20) if options.quick else (options.runs, WARM_UP)), options.slots, tier)
        for tier in tiers
        if here.tier and here.tier <= tier
    ]
    rows = [
        [name, *(text for one in results for text in (one["before"][name], one["after"][name]))]
        for name in results[0]["before"]
    ]
    header = [
        "held",
        *(f"{when}, tier {one['tier']}" for one in results for when in ("warm", "end")),
    ]
    lines = [str(here), "", table(header, rows), ""]
    for one in results:
        zygotes = one["zygotes"]
        lines.append(
            f"tier {one['tier']}: {one['runs']} runs in {one['seconds']:.0f} s; ended "
            f"{', '.join(f'{n} {count}' for n, count in sorted(one['ended'].items()))}; "
            f"{sum(one['marks_seen'].values())} saw a mark; {len(zygotes['hits'])} marks in "
            f"{zygotes['mib']:.0f} MiB of {zygotes['processes']} zygote processes "
            f"({one['own_memory_hits']} in our own)"
        )
    failed = [told for one in results for told in missed(one, QUICK if options.quick else ALLOWED)]
    return publish(options, "\n".join(lines), results, failed=failed)


if __name__ == "__main__":
    sys.exit(main())
