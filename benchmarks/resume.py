"""Kill a run with SIGKILL, resume it, and compare it with an undisturbed run.

    python benchmarks/resume.py [--quick] [--json FILE] [--engines torch vllm]

Compares every line of metrics.jsonl without its timings, and the bits of the final weights. The run
is killed right after a step, and again while it writes a checkpoint.
"""

import signal
import subprocess
import sys
import tempfile
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

from publish import ROOT, arguments, publish, table

from veriloop.pipeline.rl.metrics import reproducible
from veriloop.pipeline.runs.record import read_metrics

STEPS, KILL_AT = 12, 7
FLAGS = ("--checkpoint.every", "3", "--evaluation.problems", "64", "--rollout.prompts", "16")


def command(output: Path, engine: str, steps: int, *more: str) -> list[str]:
    return [
        sys.executable, "-m", "veriloop.stages.cli", "zero", "tiny/zero", "--steps", str(steps),
        "--sampler.engine", engine, "--output", str(output), *FLAGS, *more,
    ]  # fmt: skip


def killed(words: list[str], ready: Any) -> None:
    """Start a run and SIGKILL it, and its workers with it, as soon as `ready()`."""
    process = subprocess.Popen(
        words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while not ready():
        if process.poll() is not None:
            raise SystemExit(f"the run ended by itself with {process.returncode}: {words}")
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()


def lines(folder: Path) -> list[dict[str, Any]]:
    """The metrics of a stage without its timings."""
    path = folder / "zero" / "metrics.jsonl"
    if not path.exists():
        return []
    return [reproducible(row) for row in read_metrics(path)]


def weights(folder: Path, steps: int) -> str:
    file = folder / "zero" / "checkpoints" / f"step_{steps:06d}" / "model.safetensors"
    return sha256(file.read_bytes()).hexdigest()


def compare(engine: str, steps: int, kill_at: int) -> dict[str, Any]:
    """An undisturbed run against one that is killed twice."""
    folder = Path(tempfile.mkdtemp(prefix=f"resume-{engine}-"))
    whole, broken = folder / "whole", folder / "broken"
    subprocess.run(
        command(whole, engine, steps), cwd=ROOT, check=True, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    killed(command(broken, engine, steps), lambda: len(lines(broken)) >= kill_at)
    checkpoints = broken / "zero" / "checkpoints"
    at = max(int(p.name[5:]) for p in checkpoints.glob("step_*"))
    resume = command(broken, engine, steps, "--resume")
    # the next checkpoint begins as a hidden folder: kill while it is being written
    killed(resume, lambda: any(checkpoints.glob(".tmp-*")))
    subprocess.run(resume, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    undisturbed, other = lines(whole), lines(broken)
    return {
        "engine": engine,
        "steps": steps,
        "killed_after": kill_at,
        "resumed_from": at,
        "metrics_identical": undisturbed == other and len(undisturbed) == steps,
        "weights_identical": weights(whole, steps) == weights(broken, steps),
        "differing": sorted(
            {k for a, b in zip(undisturbed, other, strict=False) for k in a if a[k] != b.get(k)}
        ),
    }


def main() -> int:
    options = arguments(
        __doc__ or "", engines={"nargs": "+", "default": ["torch", "vllm"], "help": "samplers"}
    )
    steps, kill_at = (6, 4) if options.quick else (STEPS, KILL_AT)
    results = [compare(engine, steps, kill_at) for engine in options.engines]
    rows = [
        [r["engine"], str(steps), f"{kill_at}, then while writing", str(r["resumed_from"]),
         str(r["metrics_identical"]), str(r["weights_identical"])]
        for r in results
    ]  # fmt: skip
    header = ["sampler", "steps", "killed after step", "resumed from", "metrics", "weights"]
    failed = [
        f"{r['engine']}: differs in {r['differing'] or 'weights'}"
        for r in results
        if not (r["metrics_identical"] and r["weights_identical"])
    ]
    return publish(options, table(header, rows), results, failed=failed)


if __name__ == "__main__":
    sys.exit(main())
