"""R1-Zero straight on SmolLM2-135M-Instruct: whether anything is rewarded without a cold start.

    python benchmarks/published_zero.py [--quick] [--json FILE] [--seeds N ...] [--folder DIR]

Runs `veriloop zero real/smollm2/zero` on two cores, ten minutes a seed. Needs the model of
requirements/published-model.sh. `--quick` takes one step of 4 short answers.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from listed_runs import figures
from publish import ROOT, arguments, publish
from published_tables import published_zero
from tiny_runs import OPTIONS, work_folder

from veriloop.pipeline.runs.record import read_metrics

RECIPE, SEEDS = "real/smollm2/zero", (0, 1, 2)
QUICK = ("--steps", "1", "--rollout.prompts", "2", "--rollout.per-prompt", "2",
         "--rollout.max-tokens", "8", "--evaluation.problems", "2")  # fmt: skip
OF_A_STEP = {
    "reward": "reward",
    "accuracy": "rewards/accuracy/mean",
    "format": "rewards/format/mean",
    "grad_norm": "grad_norm",
    "mean_length": "completions/mean_length",
}


def run(folder: Path, seed: int, flags: Sequence[str]) -> dict[str, Any]:
    """What is published of a run. Raises SystemExit if it fails."""
    output, log = folder / f"seed-{seed}", folder / f"seed-{seed}.log"
    shutil.rmtree(output, ignore_errors=True)
    words = ["zero", RECIPE, "--seed", str(seed), "--problem-seed", str(seed)]
    began = time.monotonic()
    with log.open("w") as stream:
        done = subprocess.run(
            [sys.executable, "-m", "veriloop", *words, "--output", str(output), *flags],
            cwd=ROOT, stdout=stream, stderr=stream, check=False,
            env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{words} failed:\n{log.read_text()[-2000:]}")
    (stage,) = json.loads((output / "run.json").read_text())["stages"]
    return {
        "seed": seed,
        "seconds": time.monotonic() - began,
        "steps": [
            {name: row[key] for name, key in OF_A_STEP.items()}
            for row in read_metrics(output / "zero" / "metrics.jsonl")
        ],
        **{side: figures(stage[side]) for side in ("before", "after")},
    }


def main() -> int:
    options = arguments(
        __doc__ or "",
        seeds={"nargs": "+", "type": int, "default": list(SEEDS)},
        folder=OPTIONS["folder"],
    )
    folder = work_folder(options.folder, "published-zero")
    seeds, flags = (options.seeds[:1], QUICK) if options.quick else (options.seeds, ())
    results = [run(folder, seed, flags) for seed in seeds]
    return publish(options, "\n".join(published_zero(results)), results)


if __name__ == "__main__":
    sys.exit(main())
