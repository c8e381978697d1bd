"""The whole recipe on SmolLM2-135M-Instruct: time, peak memory, and each stage's gain and goals.

    python benchmarks/published_whole.py [--svamp FILE] [--quick] [--json FILE] [--folder DIR]

Runs `veriloop r1 real/smollm2/r1 --resume` on two cores, two to three hours. FILE holds SVAMP's
questions (`sets.svamp.path`); without it they are read from the hub. Needs the model of
requirements/published-model.sh and its student of 15 layers (docs/real.md). A run that was
stopped is continued by the same code with the same `--folder`: the seconds of all attempts count,
and an attempt that was killed with this script is a missed claim. `--quick` stops after the plan.

Claims: it ends within LIMIT_S seconds and LIMIT_GIB GiB, and every stage meets its goals, of which
one is a gain.
"""

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from footprint import peak_kb
from listed_runs import figures
from publish import ROOT, arguments, publish
from published_tables import published_whole
from tiny_runs import OPTIONS, work_folder

from veriloop.pipeline.runs.atomic_write import write_atomically
from veriloop.pipeline.runs.provenance import git

LIST = "real/smollm2/r1"
SIDES = ("before", "after", "gains")
LIMIT_S, LIMIT_GIB = 3 * 3600, 12.0  # on two cores


def run(folder: Path, svamp: Path | None, *, quick: bool) -> dict[str, Any]:
    """What is published of the run in this folder. Raises SystemExit if other code began it, or if
    no stage began."""
    output, log = folder / "run", folder / "log"
    words = [sys.executable, "-m", "veriloop.stages.cli", "r1", LIST, "--output", str(output)]
    words += ["--set", f"*.sets.svamp.path={svamp.resolve()}"] if svamp else []
    words += ["--dry-run"] if quick else ["--resume"]
    kept = folder / ("plan.json" if quick else "attempts.json")
    attempts = earlier(kept)
    write(kept, [*attempts, {"git": git(ROOT)}])
    began = time.monotonic()
    with log.open("a") as stream:
        child = subprocess.Popen(words, cwd=ROOT, stdout=stream, stderr=stream)
        peak = peak_kb(child)
    seconds = time.monotonic() - began
    attempts.append({"git": git(ROOT), "seconds": seconds, "peak_gib": peak / 2**20})
    write(kept, attempts)
    if child.returncode and (quick or not (output / "run.json").is_file()):
        raise SystemExit(f"{LIST} failed:\n{log.read_text()[-3000:]}")
    stages = [] if quick else json.loads((output / "run.json").read_text())["stages"]
    return {
        "ended": child.returncode,
        "attempts": len(attempts),
        "killed": sum("seconds" not in attempt for attempt in attempts),
        "seconds": sum(attempt.get("seconds", 0.0) for attempt in attempts),
        "peak_gib": max(attempt.get("peak_gib", 0.0) for attempt in attempts),
        "stages": [
            {name: stage.get(name) for name in ("name", "status", "seconds", "goals")}
            | {side: figures(stage[side]) for side in SIDES if side in stage}
            for stage in stages
        ],
    }


def earlier(path: Path) -> list[dict[str, Any]]:
    """The attempts before this one; those without seconds were killed."""
    attempts = json.loads(path.read_text()) if path.is_file() else []
    if any(attempt["git"] != git(ROOT) for attempt in attempts):
        commits = ", ".join(sorted({attempt["git"]["commit"][:7] for attempt in attempts}))
        raise SystemExit(f"{path.parent} holds a run of {commits}: name another --folder")
    return attempts


def write(path: Path, attempts: Sequence[Mapping[str, Any]]) -> None:
    write_atomically(path, lambda fresh: fresh.write_text(json.dumps(attempts)))


def shortfalls(result: Mapping[str, Any]) -> list[str]:
    """Claims that do not hold for this run."""
    missed = [f"ended with {result['ended']}"] if result["ended"] else []
    if result["killed"]:
        missed.append(f"{result['killed']} attempts were killed: what they took is not known")
    if result["seconds"] > LIMIT_S:
        missed.append(f"took {result['seconds']:.0f} s, more than {LIMIT_S}")
    if result["peak_gib"] > LIMIT_GIB:
        missed.append(f"held {result['peak_gib']:.1f} GiB, more than {LIMIT_GIB:g}")
    for stage in result["stages"]:
        goals = stage["goals"] or {}
        missed += [f"{stage['name']}: misses {k}" for k, goal in goals.items() if not goal["met"]]
        if not any("gain" in goal for goal in goals.values()):
            missed.append(f"{stage['name']}: no goal is a gain")
    return missed


def main() -> int:
    options = arguments(
        __doc__ or "",
        svamp={"type": Path, "help": "file with SVAMP's questions; default: from the hub"},
        folder=OPTIONS["folder"],
    )
    folder = work_folder(options.folder, "published-whole")
    result = run(folder, options.svamp, quick=options.quick)
    missed = [] if options.quick else shortfalls(result)
    return publish(options, "\n".join(published_whole(result)), result, failed=missed)


if __name__ == "__main__":
    sys.exit(main())
