"""Runs of `recipes/tiny/algorithms.yaml`, each in a separate process on one core, kept in a folder.

A finished run with the same flags and the same clean commit is not repeated, so a long benchmark
can be stopped and continued.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml
from publish import ROOT

from veriloop.pipeline.runs.atomic_write import write_atomically
from veriloop.pipeline.runs.provenance import git
from veriloop.pipeline.runs.record import read_metrics

Asked = TypeVar("Asked")
OPTIONS: dict[str, dict[str, Any]] = {
    "folder": {"type": Path, "help": "where runs are kept; default: in a new folder"},
    "jobs": {"type": int, "default": 1, "help": "runs at a time, each on one core"},
}
QUICK = ("--steps", "2", "--rollout.prompts", "8", "--evaluation.problems", "16",
         "--evaluation.every", "0")  # fmt: skip
# 4,096 held-out answers, once at the end: two of those accuracies differ by chance by some 0.006.
PRECISELY = ("--evaluation.problems", "1024", "--evaluation.samples", "4",
             "--evaluation.every", "0")  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The outputs of a run."""

    output: Path
    status: int  # exit code
    peak_kb: int
    log: Path

    @property
    def steps(self) -> list[dict[str, Any]]:
        return read_metrics(self.output / "zero" / "metrics.jsonl")

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.output / "zero/evaluations.jsonl").open()]

    @property
    def stage(self) -> dict[str, Any]:
        return json.loads((self.output / "run.json").read_text())["stages"][-1]


def work_folder(folder: Path | None, name: str) -> Path:
    """The requested folder, or a new one."""
    path = folder or Path(tempfile.mkdtemp(prefix=f"{name}-"))
    path.mkdir(parents=True, exist_ok=True)
    return path.resolve()


def run(
    folder: Path,
    name: str,
    flags: Sequence[str],
    seed: int,
    summarize: Callable[[Ended], Mapping[str, Any]],
    *,
    quick: bool,
) -> Mapping[str, Any]:
    """The result of `summarize` for the run `name` with these flags, from the base model of the
    seed."""
    output, kept, log = folder / name, folder / f"{name}.json", folder / f"{name}.log"
    command = ["-m", "veriloop.stages.cli", "zero", "tiny/algorithms"]
    command += ["--start", str(base_of(folder, seed, quick=quick)), "--output", str(output)]
    command += ["--seed", str(seed), "--problem-seed", str(seed), *flags, *(QUICK if quick else ())]
    key = {"command": command, "git": git(ROOT)}
    if key["git"]["dirty"] is False and kept.is_file():
        known = json.loads(kept.read_text())
        if known.get("asked") == key:
            return known["told"]
    shutil.rmtree(output, ignore_errors=True)
    with log.open("w") as stream:
        child = subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            stdout=stream,
            stderr=stream,
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")},
        )
        _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    ended = Ended(output=output, status=child.returncode, peak_kb=used.ru_maxrss, log=log)
    result = summarize(ended)
    content = json.dumps({"asked": key, "told": result})
    write_atomically(kept, lambda fresh: fresh.write_text(content))
    return result


def base_of(folder: Path, seed: int, *, quick: bool) -> Path:
    """The recipe of a seed's base model, written to the folder of the runs."""
    base = yaml.safe_load((ROOT / "recipes/tiny/base.yaml").read_text()) | {"seed": seed}
    if quick:
        base |= {"steps": 200, "step_accuracy": 0.0, "name": "tiny/quick"}
    path, text = folder / f"base-{seed}.yaml", yaml.safe_dump(base)
    if not path.is_file() or path.read_text() != text:
        path.write_text(text)
    return path


def all_of(
    wanted: Sequence[Asked], jobs: int, run_one: Callable[[Asked], Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The result of `run_one` for each, in order, `jobs` at a time."""
    with ThreadPoolExecutor(jobs) as threads:
        return [dict(result) for result in threads.map(run_one, wanted)]
