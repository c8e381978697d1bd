"""How OpenMP threads wait for each other: on idle cores, and beside a busy process.

    python benchmarks/waiting.py [--rounds N] [--quick] [--json FILE]

A step of a small model is thousands of short parallel regions. A thread that spins until the next
one is there at once, but keeps a core from whoever else could use it: from the other thread of its
own region, where a third process is busy. Measured are pre-training of `tiny/base` and steps of
`tiny/zero`, each as its command, in turn, with every way of WAYS; the best of the rounds counts.
The command chooses by itself (stages/openmp.py): on an idle machine it may take IDLE_LOSS times as
long as the fastest way, and beside a busy process BUSY_LOSS times as long as idle.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from busy_loops import busy_loops
from publish import arguments, publish, table

from veriloop.pipeline.runs.record import read_metrics
from veriloop.stages.openmp import SLEEP, SPIN

IDLE_LOSS, BUSY_LOSS = 1.1, 1.5
VARIABLES = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
OURS = "chosen by the command"
WAYS: Mapping[str, Mapping[str, str]] = {
    OURS: {},
    "spin 300000 times (libgomp's)": {"GOMP_SPINCOUNT": "300000"},
    f"spin {SPIN} times": {"GOMP_SPINCOUNT": SPIN},
    "spin 1000 times": {"GOMP_SPINCOUNT": "1000"},
    "sleep at once": {"GOMP_SPINCOUNT": SLEEP},
    "one thread": {"OMP_NUM_THREADS": "1"},
}


def command(words: list[str], folder: Path, way: Mapping[str, str]) -> None:
    """Run `veriloop` in the folder. Raises SystemExit with its output if it fails."""
    env = {name: value for name, value in os.environ.items() if name not in VARIABLES} | dict(way)
    ended = subprocess.run(
        [sys.executable, "-m", "veriloop", *words], cwd=folder, env=env, capture_output=True
    )
    if ended.returncode:
        raise SystemExit(f"veriloop {' '.join(words)} failed:\n{ended.stderr.decode()[-3000:]}")


def pretraining(folder: Path, way: Mapping[str, str], steps: int) -> float:
    """Seconds of a base model's training, with its tokenizer and measurement."""
    flags = ["--steps", str(steps), "--step-accuracy", "0", "--tokenizer-documents", "500"]
    command(["base", "tiny/base", *flags, "--output", "pretraining"], folder, way)
    return json.loads(next(folder.glob("outputs/cache/*/base.json")).read_text())["seconds"]


def reinforcement(folder: Path, way: Mapping[str, str], steps: int, start: Path) -> float:
    """Seconds of the steps after the first."""
    flags = ["--start", str(start), "--steps", str(steps), "--evaluation.problems", "1"]
    flags += ["--evaluation.every", "0"]
    command(["zero", "tiny/zero", *flags, "--output", "run"], folder, way)
    return sum(row["step_time"] for row in read_metrics(folder / "run/zero/metrics.jsonl")[1:])


def measured(rounds: int, *, quick: bool) -> list[dict[str, Any]]:
    """The best seconds of each way, idle and beside a neighbour."""
    best: dict[tuple[str, str], float] = {}
    with tempfile.TemporaryDirectory(prefix="waiting-") as kept:
        pretraining(Path(kept), {}, 5 if quick else 300)
        start = next(Path(kept).glob("outputs/cache/*/base.json")).parent
        for way in [way for _ in range(rounds) for way in WAYS]:
            for loops in (0, 1):
                with tempfile.TemporaryDirectory(prefix="waiting-") as name, busy_loops(loops):
                    state, folder = "busy" if loops else "idle", Path(name)
                    base = pretraining(folder, WAYS[way], 5 if quick else 100)
                    steps = reinforcement(folder, WAYS[way], 2 if quick else 8, start)
                for part, seconds in (("base", base), ("zero", steps)):
                    key = (way, f"{part}, {state}")
                    best[key] = min(seconds, best.get(key, seconds))
    columns = ("base, idle", "base, busy", "zero, idle", "zero, busy")
    return [{"way": way} | {column: best[way, column] for column in columns} for way in WAYS]


def missed(rows: list[dict[str, Any]]) -> list[str]:
    """The bounds that the command's own choice does not keep."""
    ours = next(row for row in rows if row["way"] == OURS)
    failed: list[str] = []
    for part in ("base", "zero"):
        idle, busy = ours[f"{part}, idle"], ours[f"{part}, busy"]
        least = min(row[f"{part}, idle"] for row in rows)
        if idle > IDLE_LOSS * least:
            failed.append(f"{part}: idle {idle / least:.2f} x the fastest way, above {IDLE_LOSS}")
        if busy > BUSY_LOSS * idle:
            failed.append(f"{part}: {busy / idle:.2f} x beside a busy process, above {BUSY_LOSS}")
    return failed


def main() -> int:
    rounds = {"type": int, "default": 2, "help": "measurements of each way"}
    options = arguments(__doc__ or "", rounds=rounds)
    rows = measured(1 if options.quick else options.rounds, quick=options.quick)
    text = table(list(rows[0]), [list(row.values()) for row in rows])
    failed = [] if options.quick else missed(rows)  # two steps measure nothing
    return publish(options, text, {"rows": rows, "ours": OURS}, failed=failed)


if __name__ == "__main__":
    sys.exit(main())
