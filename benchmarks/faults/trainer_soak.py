"""Train for thousands of GRPO steps: memory, descriptors, threads and step time must stay flat.

    python benchmarks/faults/trainer_soak.py [--steps 2000] [--engine vllm] [--folder DIR]
                                             [--quick] [--json FILE]

R1-Zero on an untrained model of the tiny recipe's shape, with sums and with programs that run in
the sandbox, checkpoints and evaluations. Every two seconds all processes of the run are measured,
until its last step is written: a run that ends holds less. After a warm-up the growth over the rest
is a linear fit of block means with its 95 % interval.
The environment holds secrets of several services: no file of the run may contain one.
"""

import base64
import json
import os
import re
import secrets
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean, linear_regression
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))  # of publish.py
sys.path.append(str(Path(__file__).resolve().parent))
import psutil
import pyarrow.parquet as pq
import yaml
from publish import arguments, publish, table
from tiny_stages import models, recipe

from veriloop.pipeline.runs.record import read_metrics

OPTIONS: dict[str, dict[str, Any]] = {
    "steps": {"type": int, "default": 2000, "help": "of GRPO"},
    "engine": {"default": "vllm", "choices": ["vllm", "torch"], "help": "that samples"},
    "folder": {"type": Path, "help": "where the run is kept; default: a new folder"},
}
EVERY_S, QUICK_S = 2.0, 0.2  # between two measurements
WARM_UP = 0.2  # share of the run before the fit
BLOCKS = 20  # whose means are fitted
T_18 = 2.101  # quantile .975 of Student's t with BLOCKS - 2 degrees of freedom
GROWTH = 0.02  # of the mean that a quantity may grow by over the run
COUNTS = ("descriptors", "threads", "processes")  # that may not grow at all
SECRETS = ("HF_TOKEN", "WANDB_API_KEY", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN")
ROLES = {"engine": "engine_process", "workers": "spawn_main"}  # parts of their command lines
MINE = {
    "problems": {"arithmetic": 0.75, "programs": 0.25},
    "rollout": {"prompts": 8, "per_prompt": 4, "max_tokens": 24},
    "optimizer": {"learning_rate": 1e-3},
    "reward": {"terms": {"repeats": {"verifier": "repetition", "weight": -1.0}}},
    "checkpoint": {"every": 100, "keep": 2},
    "evaluation": {"problems": 16, "every": 100},
}


def measure(pid: int) -> dict[str, float]:
    """Memory of the run by role, shared pages divided, and counts of its resources."""
    taken: dict[str, float] = defaultdict(float)
    with suppress(psutil.Error):
        main = psutil.Process(pid)
        for process in (main, *main.children(recursive=True)):
            with suppress(psutil.Error, OSError):
                line = " ".join(process.cmdline())
                role = next((role for role, part in ROLES.items() if part in line), "sandbox")
                role = "trainer" if process.pid == pid else role
                taken[f"{role} MiB"] += _own_kib(process.pid) / (1 << 10)
                taken["descriptors"] += process.num_fds()
                taken["threads"] += process.num_threads()
                taken["processes"] += 1
    return dict(taken)


def _own_kib(pid: int) -> int:
    """Memory of a process without the pages of files, which other programs map as well."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(map(int, re.findall(r"^Pss_(?:Anon|Shmem): +(\d+) kB", rollup, re.MULTILINE)))


def growth(series: Sequence[float]) -> dict[str, float]:
    """Mean, and growth from the first to the last value with both ends of its interval."""
    size = len(series) / BLOCKS
    means = [fmean(series[int(n * size) : int((n + 1) * size)]) for n in range(BLOCKS)]
    at = [n - (BLOCKS - 1) / 2 for n in range(BLOCKS)]
    fit = linear_regression(at, means)
    squares = sum(
        (mean - fit.intercept - fit.slope * x) ** 2 for x, mean in zip(at, means, strict=True)
    )
    error = (squares / (BLOCKS - 2) / sum(x * x for x in at)) ** 0.5
    return {
        "mean": fmean(means),
        "growth": fit.slope * BLOCKS,
        "at_least": (fit.slope - T_18 * error) * BLOCKS,
        "at_most": (fit.slope + T_18 * error) * BLOCKS,
    }


def grows(name: str, fit: Mapping[str, float]) -> bool:
    """Whether the growth is certain and larger than allowed."""
    allowed = 0.5 if name in COUNTS else GROWTH * abs(fit["mean"])
    return fit["at_least"] > 0 and fit["growth"] > allowed


def spellings(secret: str) -> list[bytes]:
    """The secret as it may stand in a file."""
    raw = secret.encode()
    return [raw, raw[::-1], raw.hex().encode(), base64.b64encode(raw).rstrip(b"=")]


def leaks(folder: Path, values: Mapping[str, str]) -> Iterator[str]:
    """Files under the folder that hold a secret; columns of Parquet files are read."""
    patterns = {
        name: re.compile(b"|".join(map(re.escape, spellings(secret))))
        for name, secret in values.items()
    }
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
            if path.suffix == ".parquet":
                content = json.dumps(pq.read_table(path).to_pydict(), default=str).encode()
            for name, pattern in patterns.items():
                if pattern.search(content):
                    yield f"{name} in {path.relative_to(folder)}"


def soak(folder: Path, steps: int, engine: str, every_s: float) -> dict[str, Any]:
    """One run and what was measured of it."""
    values = recipe("zero", models(folder / "models", ["zero"])) | MINE
    values |= {"steps": steps, "sampler": {"engine": engine, "tolerance": 0.1}}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(values))
    planted = {name: secrets.token_urlsafe(24) for name in SECRETS}
    command = [sys.executable, "-m", "veriloop", "zero", "recipe.yaml", "--output", "run"]
    samples: list[dict[str, float]] = []
    began = time.monotonic()
    with (folder / "said.log").open("w") as log:
        run = subprocess.Popen(
            command, cwd=folder, stdout=log, stderr=log, env={**os.environ, **planted}
        )
        metrics = folder / "run" / "zero" / "metrics.jsonl"
        while run.poll() is None and not _has_rows(metrics, steps):
            samples.append(measure(run.pid))
            time.sleep(every_s)
        run.wait()
    seconds = time.monotonic() - began
    if run.returncode != 0:
        raise SystemExit(
            f"the run ended with {run.returncode}: {(folder / 'said.log').read_text()[-2000:]}"
        )
    report = [sys.executable, "-m", "veriloop", "report", "run"]
    subprocess.run(
        report, cwd=folder, check=True, capture_output=True, env={**os.environ, **planted}
    )
    rows = read_metrics(metrics)
    series = {
        name: [sample[name] for sample in samples if name in sample]
        for name in sorted({name for sample in samples for name in sample})
    }
    series["step seconds"] = [row["step_time"] for row in rows]
    kept = {name: values[int(WARM_UP * len(values)) :] for name, values in series.items()}
    return {
        "steps": len(rows),
        "seconds": seconds,
        "samples": len(samples),
        "fits": {name: growth(values) for name, values in kept.items() if len(values) >= BLOCKS},
        "leaks": list(leaks(folder, planted)),
        "searched": sum(path.is_file() for path in folder.rglob("*")),
    }


def _has_rows(path: Path, count: int) -> bool:
    return path.is_file() and path.read_bytes().count(b"\n") >= count


def main() -> int:
    options = arguments(__doc__ or "", **OPTIONS)
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="soak-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    steps, every_s = (30, QUICK_S) if options.quick else (options.steps, EVERY_S)
    result = soak(folder, steps, options.engine, every_s)
    failed = [f"secret: {leak}" for leak in result["leaks"]]
    if result["steps"] != steps:
        failed.append(f"{result['steps']} of {steps} steps")
    if not options.quick:  # too short to tell growth from a warm-up
        failed += [
            f"{name} grows by {fit['growth']:.3g} from a mean of {fit['mean']:.4g}"
            for name, fit in result["fits"].items()
            if grows(name, fit)
        ]
    rows = [
        [name, *(fit[key] for key in ("mean", "growth", "at_least", "at_most"))]
        for name, fit in result["fits"].items()
    ]
    text = table(["of the run", "mean", "growth", "at least", "at most"], rows)
    return publish(options, text, result, failed=failed)


if __name__ == "__main__":
    sys.exit(main())
