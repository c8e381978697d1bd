"""The whole recipe, from a random model to a distilled student: wall time, peak memory, all goals.

    python benchmarks/whole.py [--quick] [--json FILE] [--seeds N ...] [--beside N ...]

Runs the command of `make demo` in a clean clone with this environment and an empty cache; one run
after the other, with the seeds of `--beside` again beside a process that keeps a core busy. Memory
is the sum of the proportional set sizes of all processes, read every few seconds. `--quick` stops
after the plan.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from busy_loops import busy_loops
from footprint import peak_kb
from publish import ROOT, arguments, publish, table

SEEDS, BESIDE = (0, 1, 2), (0,)
LIMIT_S, LIMIT_GIB = (660, 1020), 6.0  # on two cores; beside so many busy processes
REASONING, AT_FIRST, AT_LAST = 0.95, 0.1, 0.65  # pass@1 at T=0.7; general prompts, base and end
FIGURES = ("pass@1", "format", "language", "general", "mean_length", "accuracy/adversarial")


def run(seed: int, loops: int, *, quick: bool) -> dict[str, Any]:
    """One run in a separate clone; its table is printed at the end."""
    clone = Path(tempfile.mkdtemp(prefix="whole-")) / "veriloop"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    words = [
        sys.executable,
        "-m",
        "veriloop.stages.cli",
        "r1",
        "tiny/r1",
        "--output",
        "outputs/demo",
    ]
    words += ["--set", f"*.seed={seed}", *(["--dry-run"] if quick else ["--resume"])]
    log = clone.parent / "log"
    with log.open("w") as output, busy_loops(loops):
        began = time.monotonic()
        process = subprocess.Popen(words, cwd=clone, stdout=output, stderr=output)
        peak = peak_kb(process)
        seconds = time.monotonic() - began
    text = log.read_text()
    print(text[text.rfind("\n\n", 0, -200) :], flush=True)
    kept = clone / "outputs/demo/run.json"
    if process.returncode and not kept.is_file():
        raise SystemExit(f"seed {seed} failed: {text[-2000:]}")
    stages = [] if quick else json.loads(kept.read_text())["stages"]
    return {
        "seed": seed,
        "busy_loops": loops,
        "ended": process.returncode,
        "seconds": seconds,
        "peak_gib": peak / 2**20,
        "stages": [{k: s.get(k) for k in ("name", "seconds", "sampler", "goals")}
                   | {side: {k: s[side][k] for k in FIGURES if k in s[side]}
                      for side in ("before", "after")}
                   for s in stages],
    }  # fmt: skip


def shortfalls(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Claims that do not hold, by run."""
    return [f"seed {_name(run)}: {claim}" for run in results for claim in _missed_by(run)]


def _missed_by(result: Mapping[str, Any]) -> list[str]:
    by_name = {stage["name"]: stage for stage in result["stages"]}
    missed = [f"ended with {result['ended']}"] if result["ended"] else []
    for what, value, limit in (
        ("seconds", result["seconds"], LIMIT_S[result.get("busy_loops", 0)]),
        ("peak GiB", result["peak_gib"], LIMIT_GIB),
    ):
        if value > limit:
            missed.append(f"{what}: {value:.1f} > {limit:g}")
    for name, stage in by_name.items():
        missed += [f"{name}: misses {k}" for k, goal in (stage["goals"] or {}).items()
                   if not goal["met"]]  # fmt: skip
    last, first = (by_name.get(name) for name in ("preference_rl", "rejection_sft"))
    if last is None or first is None:
        return [*missed, "did not come to its secondary RL"]
    for what, holds in (
        ("pass@1 at the end", last["after"]["pass@1"] >= REASONING),
        ("general answers of the base", first["before"]["general"] <= AT_FIRST),
        ("general answers at the end", last["after"]["general"] >= AT_LAST),
    ):
        missed += [] if holds else [f"{what}: missed"]
    return missed


def rows_of(result: dict[str, Any]) -> list[list[str]]:
    """The stages of one run, before > after."""
    rows = []
    for stage in result["stages"]:
        sides = stage["before"], stage["after"]
        changes = [
            " > ".join("-" if (value := side.get(k)) is None else f"{value:.3g}" for side in sides)
            for k in FIGURES
        ]
        rows.append([_name(result), stage["name"], f"{stage['seconds']:.0f}", *changes])
    return rows


def _name(result: Mapping[str, Any]) -> str:
    return f"{result['seed']}{', busy' if result.get('busy_loops') else ''}"


def main() -> int:
    options = arguments(
        __doc__ or "",
        seeds={"nargs": "+", "type": int, "default": list(SEEDS), "help": "on a quiet machine"},
        beside={
            "nargs": "*",
            "type": int,
            "default": list(BESIDE),
            "help": "beside a busy loop",
        },
    )
    runs = [(seed, 0) for seed in options.seeds] + [(seed, 1) for seed in options.beside]
    if options.quick:
        runs = runs[:1]
    results = [run(seed, loops, quick=options.quick) for seed, loops in runs]
    text = table(["seed", "stage", "s", *FIGURES], [row for r in results for row in rows_of(r)])
    for r in results:
        text += f"\nseed {_name(r)}: {r['seconds']:.0f} s, peak {r['peak_gib']:.1f} GiB"
    return publish(options, text, results, failed=[] if options.quick else shortfalls(results))


if __name__ == "__main__":
    sys.exit(main())
