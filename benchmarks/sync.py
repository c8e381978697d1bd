"""Sampler against trainer: the largest log-prob difference of every step, tied and untied models.

    python benchmarks/sync.py [--quick] [--json FILE]

R1-Zero for a few steps on a briefly pre-trained base, with each sampler. Two measurements a step:
fresh tokens after the sync, and all tokens of the first mini-batch before it is stepped on. `moved`
is what a lost sync would have shown.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from publish import ROOT, arguments, publish, table

from veriloop.pipeline.runs.record import read_metrics

TOLERANCE = 1e-4
BATCH = "sampling/sampling_logp_difference"


def run(folder: Path, engine: str, tied: bool, steps: int, training: int) -> dict[str, Any]:
    base = yaml.safe_load((ROOT / "recipes/tiny/base.yaml").read_text())
    base |= {"name": f"sync/{'tied' if tied else 'untied'}", "steps": training}
    base |= {"model": {"tied": tied}, "step_accuracy": 0.0}
    recipe = folder / f"base-{tied}.yaml"
    recipe.write_text(yaml.safe_dump(base))
    output = folder / f"{engine}-{tied}"
    words = [
        sys.executable,
        "-m",
        "veriloop.stages.cli",
        "zero",
        "tiny/zero",
        "--start",
        str(recipe),
    ]
    words += ["--steps", str(steps), "--rollout.prompts", "16", "--evaluation.problems", "16"]
    words += ["--sampler.engine", engine, "--output", str(output)]
    done = subprocess.run(words, cwd=ROOT, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{engine}, tied={tied}: {done.stderr[-2000:]}")
    rows = read_metrics(output / "zero" / "metrics.jsonl")
    return {
        "sampler": engine,
        "embeddings": "tied" if tied else "untied",
        "steps": steps,
        "fresh_max": max(row["sync/max"] for row in rows),
        "fresh_mean": max(row["sync/mean"] for row in rows),
        "batch_mean": max(row[f"{BATCH}/mean"] for row in rows),
        "batch_max": max(row[f"{BATCH}/max"] for row in rows),
        "moved_least": min(row["sync/moved"] for row in rows),
    }


def main() -> int:
    options = arguments(__doc__ or "")
    steps, training = (2, 60) if options.quick else (10, 400)
    folder = Path(tempfile.mkdtemp(prefix="sync-"))
    results = [
        run(folder, engine, tied, steps, training)
        for tied in (False, True)
        for engine in ("torch", "vllm")
    ]
    rows = [
        [r["sampler"], r["embeddings"], str(r["steps"]), f"{r['fresh_max']:.1e}",
         f"{r['fresh_mean']:.1e}", f"{r['batch_max']:.1e}", f"{r['batch_mean']:.1e}",
         f"{r['moved_least']:.1e}"]
        for r in results
    ]  # fmt: skip
    names = ["sampler", "embeddings", "steps", "fresh max", "fresh mean"]
    header = [*names, "batch max", "batch mean", "moved"]
    failed = [
        f"{r['sampler']} {r['embeddings']}: {max(r['fresh_max'], r['batch_max']):.1e} nats"
        for r in results
        if not max(r["fresh_max"], r["batch_max"]) <= TOLERANCE
    ]
    return publish(options, table(header, rows), results, failed=failed)


if __name__ == "__main__":
    sys.exit(main())
