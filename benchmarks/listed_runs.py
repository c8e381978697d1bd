"""Runs of a shipped list of stages, one for each seed, each in its own folder.

The base model is the same for all seeds; everything after it has the run's seed. Goals are left
out, so that a run that misses one ends and is counted. A run with the same stages and the same
clean commit goes on where it was stopped.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import yaml
from publish import ROOT
from tiny_runs import work_folder

from veriloop.pipeline.config.load import read
from veriloop.pipeline.config.pretraining import BaseRecipe
from veriloop.pipeline.config.r1 import R1Recipe
from veriloop.pipeline.config.r1_stages import steps
from veriloop.pipeline.evaluation.gains import KEY
from veriloop.pipeline.runs.evaluation_store import FOLDER as EVALUATIONS
from veriloop.pipeline.runs.provenance import git
from veriloop.pipeline.runs.record import read_metrics

SEEDED = ("seed", "problem_seed", "data.seed", "collect.problem_seed", "general.seed")
STOPS_S = 60.0  # to write a checkpoint after an interrupt
Stage = dict[str, Any]
Settings = Mapping[str, Mapping[str, Any]]  # stage -> dotted key -> value


def seeded(recipe: Any) -> list[str]:
    """The keys of a stage's recipe that take the seed; none of a base model."""
    if isinstance(recipe, BaseRecipe):
        return []
    return [key for key in SEEDED if _has(recipe.model_dump(), key)]


def _has(values: Any, key: str) -> bool:
    missing = object()
    return reduce(
        lambda part, name: part.get(name, missing) if isinstance(part, Mapping) else missing,
        key.split("."),
        values,
    ) is not missing  # fmt: skip


def shipped(name: str) -> dict[str, Any]:
    """The list `name` as its file has it."""
    return yaml.safe_load((ROOT / "recipes" / f"{name}.yaml").read_text())


def listed(
    name: str,
    seed: int,
    over: Settings,
    further: Sequence[Stage] = (),
    without: Collection[str] = (),
) -> dict[str, Any]:
    """The shipped list `name` for a seed: `without` the stages of these names, `further` stages
    after the others, `over` in their place of settings, no goals."""
    recipe = read(name)
    assert isinstance(recipe, R1Recipe)
    whole = shipped(name)
    whole["stages"] = [stage for stage in whole["stages"] if stage["name"] not in without]
    whole["stages"] += further
    by_name = {step.name: step.recipe for step in steps(R1Recipe.model_validate(whole))}
    for stage in whole["stages"]:
        own = dict.fromkeys(seeded(by_name[stage["name"]]), seed)
        stage["set"] = {**stage.get("set", {}), **own, **over.get(stage["name"], {})}
        stage.pop("goals", None)
    return whole


def each_seed(
    options: Namespace, name: str, whole: Callable[[int], Mapping[str, Any]]
) -> Iterator[tuple[int, dict[str, Stage]]]:
    """Each of `options.seeds` (with `--quick` the first alone) and its stages: what `run` returns
    of the list `whole(seed)`. Runs are kept in `options.folder`, or in a new one named `name`."""
    folder = work_folder(options.folder, name)
    for seed in options.seeds[:1] if options.quick else options.seeds:
        began = time.monotonic()
        yield seed, run(folder, whole(seed), seed)
        print(f"seed {seed}: {time.monotonic() - began:.0f} s", flush=True)


def run(
    folder: Path,
    whole: Mapping[str, Any],
    seed: int,
    *,
    cores: int = 1,
    seconds: float | None = None,
) -> dict[str, Stage]:
    """The record of each stage by its name, with its metrics as `curve`. After `seconds` the run is
    interrupted, and the last stage has what it recorded until then."""
    output, asked = folder / f"seed-{seed}", folder / f"seed-{seed}.json"
    recipe, log = folder / f"seed-{seed}.yaml", folder / f"seed-{seed}.log"
    text, key = yaml.safe_dump(dict(whole), sort_keys=False), {"git": git(ROOT)}
    known = json.loads(asked.read_text()) if asked.is_file() else None
    if key["git"]["dirty"] is not False or known != key or recipe.read_text() != text:
        shutil.rmtree(output, ignore_errors=True)
    recipe.write_text(text)
    asked.write_text(json.dumps(key))
    command = ["r1", str(recipe), "--output", str(output), "--resume"]
    with log.open("a") as stream:
        child = subprocess.Popen(
            [sys.executable, "-m", "veriloop.stages.cli", *command],
            cwd=ROOT,
            stdout=stream,
            stderr=stream,
            env=os.environ | {"OMP_NUM_THREADS": str(cores)},
        )
        failed = _ended(child, seconds)
    if failed or not (output / "run.json").is_file():
        raise SystemExit(f"seed {seed} failed:\n{log.read_text()[-3000:]}")
    stages = json.loads((output / "run.json").read_text())["stages"]
    return {stage["name"]: stage | {"curve": _curve(output / stage["name"])} for stage in stages}


def _ended(child: subprocess.Popen[bytes], seconds: float | None) -> bool:
    """Whether the run failed by itself."""
    with child:
        try:
            return child.wait(seconds) != 0
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGINT)
        except BaseException:
            child.kill()
            raise
        try:
            child.wait(STOPS_S)
        except subprocess.TimeoutExpired:
            child.kill()
    return False


def last_scores(folder: Path, seed: int, stage: str) -> dict[str, Any]:
    """The scores by problem of what a stage ended with, as `gains.by_problem` makes them. Raises
    LookupError if the run has not kept them, or has several because the stage ran again."""
    evaluations = folder / f"seed-{seed}" / EVALUATIONS
    kept: dict[str, list[dict[str, Any]]] = {}
    for path in evaluations.glob("*.json"):
        entry = json.loads(path.read_text())
        weights = Path(entry["weights"])
        if weights.parts[-3:-1] == (stage, "checkpoints"):
            kept.setdefault(weights.name, []).append(entry["evaluation"])
    last = kept[max(kept)] if kept else []
    if len(last) != 1:
        raise LookupError(f"{evaluations} has {len(last)} evaluations of {stage!r} at its end")
    return last[0][KEY]


def figures(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """What is published of an evaluation."""
    names = ("pass@1", "greedy", "format", "mean_length")
    return {key: value for key, value in evaluation.items() if key.startswith(names)}


def _curve(stage: Path) -> list[dict[str, Any]]:
    metrics = stage / "metrics.jsonl"
    return read_metrics(metrics) if metrics.is_file() else []
