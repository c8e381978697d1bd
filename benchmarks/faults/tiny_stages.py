"""Runs of tiny stages for fault injection: their recipes, processes and results."""

import atexit
import hashlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

LIMIT_S = 300.0  # for a run to end
COMMON = {"start": "start", "checkpoint": {"every": 2, "keep": 2}, "tensorboard": False}
SHAPE = {"hidden": 32, "layers": 1, "heads": 1, "feed_forward": 48, "vocabulary": 400}
ROLLOUTS = {
    "steps": 6,
    "rollout": {"prompts": 4, "per_prompt": 4, "max_tokens": 12},
    "optimizer": {"learning_rate": 0.01},
    "reward": {"control": "random"},
    "sampler": {"engine": "torch", "tolerance": 0.1},
    "evaluation": {"problems": 4, "samples": 2},
}
PAIRS = {"data": {"rows": 24, "held_out": 8}, "optimizer": {"learning_rate": 3e-3}, "batch": 4}
TUNING = {
    "batch": 4,
    "optimizer": {"learning_rate": 3e-3},
    "sampler": {"engine": "torch"},
    "examine": False,
}
COLLECTING = TUNING | {
    "teacher": "taught",
    "sets": {
        "sums": {
            "path": "sums.jsonl",
            "question": ["{question}"],
            "answer": "answer",
            "verifier": "number",
            "held_out": 0.2,
        }
    },
    "collect": {"problems": {"sums": 1.0}, "questions": 16, "per_prompt": 2, "at_once": 4},
    "filters": {"consistency": 0.0, "distinct": 0.0, "overlap": 0},
    "evaluation": {"problems": 4},
    "max_tokens": 60,
}
# Recipes; "start", "teacher", "judge", "taught" and names of files stand for what `models` writes.
STAGES: dict[str, dict[str, Any]] = {
    "sft": TUNING | {"data": {"source": "arithmetic", "rows": 20, "held_out": 4}},
    "reward_model": PAIRS,
    "preference": PAIRS,
    "distill": TUNING
    | {
        "teacher": "teacher",
        "method": "logits",
        "top_k": 40,
        "data": {"source": "arithmetic", "rows": 20, "held_out": 4},
    },
    "zero": ROLLOUTS | {"rollout": {**ROLLOUTS["rollout"], "ahead": 1}},
    "reasoning_rl": ROLLOUTS,
    "preference_rl": ROLLOUTS
    | {
        "problems": {"arithmetic": 0.5, "general": 0.5},
        "reward": {"reward_model": "judge", "control": "random"},
    },
    "collect_preferences": {
        "start": "start",
        "questions": 24,
        "rollout": {"prompts": 4, "per_prompt": 4, "max_tokens": 12},
        "label": {"by": "reward_model", "reward_model": "judge"},
        "sampler": {"engine": "torch"},
    },
    "cold_start": COLLECTING,
    "rejection_sft": COLLECTING,
    "base": {
        "steps": 12,
        "tokens_per_step": 256,
        "tokenizer_documents": 200,
        "step_accuracy": 0.0,
        "model": SHAPE,
        "optimizer": {"learning_rate": 3e-3},
    },
    "r1": {
        "stages": [
            {"name": "base", "recipe": "base.yaml"},
            {"name": "zero", "recipe": "zero.yaml", "take": {"start": "base.checkpoint"}},
            {"name": "sft", "recipe": "sft.yaml", "take": {"start": "zero.checkpoint"}},
        ]
    },
}
BARE = ("base", "r1", "collect_preferences")  # without checkpoints and trackers
ANSWER = "<think>two</think><answer>2</answer>"  # to all of SUMS
SUMS = [f"What is {n}-{n - 2}?" for n in range(2, 42)]
LESSONS = 240  # that teach it
# Files of a run that another run of the same recipe need not have byte by byte.
OWN = {"console.log", "resumes.jsonl", "versions.json", ".lock", "README.md", "manifest.json"}


def models(folder: Path, stages: Collection[str]) -> dict[str, Path]:
    """What these stages read, written to `folder`: untrained models of a few thousand weights,
    start, teacher and judge; taught, which answers SUMS; these sums; and the recipes of r1."""
    from random import Random

    import torch

    from veriloop.data import corpus
    from veriloop.data.tokenizer import train
    from veriloop.pipeline.config.pretraining import TinyModel
    from veriloop.pipeline.model.policy import save_policy
    from veriloop.pipeline.model.scalar_head import load_classifier
    from veriloop.stages.base import untrained

    random = Random(0)
    tokenizer = train((corpus.document(random, corpus.Mix()) for _ in range(600)), 400)
    shape = TinyModel.model_validate(SHAPE)
    files = ("sums.jsonl", *(f"{step['name']}.yaml" for step in STAGES["r1"]["stages"]))
    paths = {name: folder / name for name in ("start", "teacher", "judge", "taught", *files)}
    for seed, name in enumerate(("start", "teacher")):
        torch.manual_seed(seed)
        save_policy(untrained(shape, tokenizer), tokenizer, paths[name])
    judge = load_classifier(paths["start"], tokenizer)
    judge.config.eos_token_id = [tokenizer.eos_token_id]
    save_policy(judge, tokenizer, paths["judge"])
    if not {"cold_start", "rejection_sft"}.isdisjoint(stages):
        teach = Command(words=[], folder=folder, name="taught.log")
        teach.answer = lambda: _teach(untrained(shape, tokenizer), tokenizer, paths["taught"])
        if teach.start().ended() != 0:  # apart: a process that computed gradients must not fork
            raise SystemExit(f"there is no teacher: {teach.said[-2000:]}")
    rows = [json.dumps({"question": question, "answer": "2"}) + "\n" for question in SUMS]
    paths["sums.jsonl"].write_text("".join(rows))
    for name, path in paths.items():
        if name.endswith(".yaml"):
            path.write_text(yaml.safe_dump(recipe(name.removesuffix(".yaml"), paths)))
    return paths


def _teach(model: Any, tokenizer: Any, folder: Path) -> int:
    """Train the model to give ANSWER to SUMS and save it. Returns an exit code."""
    import torch

    from veriloop.data.problem import Problem
    from veriloop.pipeline.model.policy import save_policy
    from veriloop.pipeline.rollouts.generate import prompt_ids

    answer = [*tokenizer(ANSWER, add_special_tokens=False).input_ids, tokenizer.eos_token_id]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for lesson in range(LESSONS):
        problem = Problem(id="", prompt=SUMS[lesson % len(SUMS)], verifier="number", reference={})
        prompt = list(prompt_ids(problem, tokenizer))
        ids, labels = prompt + answer, [-100] * len(prompt) + answer
        optimizer.zero_grad()
        model(input_ids=torch.tensor([ids]), labels=torch.tensor([labels])).loss.backward()
        optimizer.step()
    save_policy(model, tokenizer, folder)
    return 0


def recipe(stage: str, paths: Mapping[str, Path]) -> dict[str, Any]:
    """The recipe of a stage with the paths of the models."""
    values = STAGES[stage] if stage in BARE else COMMON | STAGES[stage]
    return {"stage": stage, "name": "faults", **_placed(values, paths)}


def _placed(value: Any, paths: Mapping[str, Path]) -> Any:
    """The value with names of models replaced by their paths."""
    if isinstance(value, Mapping):
        return {key: _placed(inner, paths) for key, inner in value.items()}
    if isinstance(value, list):
        return [_placed(inner, paths) for inner in value]
    return str(paths[value]) if isinstance(value, str) and value in paths else value


@dataclass(kw_only=True)
class Command:
    """A command of veriloop in a process forked from this one, which has imported it already."""

    words: list[str]
    folder: Path  # its working directory, with caches of its own
    before: Callable[[], None] = lambda: None  # run in the process first
    answer: Callable[[], int] | None = None  # instead of the command of `words`
    name: str = "said.log"  # the file of what it prints
    pid: int = field(init=False)
    log: Path = field(init=False)

    def start(self) -> "Command":
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log = self.folder / self.name
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self._become()
        return self

    def _become(self) -> None:
        code = 70
        try:
            os.setsid()
            # A shell that starts this script in the background ignores it, and so would the run.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.chdir(self.folder)
            log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            null = os.open(os.devnull, os.O_RDONLY)
            for fd, own in ((null, 0), (log, 1), (log, 2)):
                os.dup2(fd, own)
            sys.argv[:] = ["veriloop", *self.words]
            code = self._answer()
        finally:
            os._exit(code)

    def _answer(self) -> int:
        import traceback

        from veriloop.stages.cli import entry

        try:
            self.before()
            code = entry() if self.answer is None else self.answer()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        except BaseException:  # noqa: BLE001  what an interpreter prints at its end
            traceback.print_exc()
            code = 1
        threading._shutdown()  # pyright: ignore[reportAttributeAccessIssue]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        return code

    def ended(self, limit_s: float = LIMIT_S) -> int | None:
        """The exit code, negative for a signal; None, with the process killed, past the limit."""
        until, wait_s = time.monotonic() + limit_s, 0.001
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() > until:
                os.killpg(self.pid, 9)
                os.waitpid(self.pid, 0)
                return None
            time.sleep(wait_s)
            wait_s = min(0.02, 2 * wait_s)

    @property
    def runs(self) -> bool:
        """Whether it has not ended yet."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")


def preload() -> None:
    """Import what stages import, so that forked commands begin at once."""
    import importlib

    from veriloop.pipeline.config.registry import STAGES as KINDS

    for kind in KINDS:
        importlib.import_module(f"veriloop.stages.{kind}")
    for module in ("transformers.models.llama.modeling_llama", "pyarrow.parquet", "torch._dynamo"):
        importlib.import_module(module)


def stage_command(stage: str, folder: Path, values: Mapping[str, Any], *more: str) -> Command:
    """The command that runs or resumes a stage in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "recipe.yaml").write_text(yaml.safe_dump(dict(values)))
    name = stage.replace("_", "-")
    return Command(words=[name, "recipe.yaml", "--output", "run", "--resume", *more], folder=folder)


def result(folder: Path) -> dict[str, Any]:
    """What a run in `folder` must reproduce bit for bit, by file name.

    Of the checkpoints only the last one: a stop saves an additional one, and earlier ones hold
    prefetched rollouts with their times. Of the cache the base models that the run has published.
    """
    run, cache = folder / "run", folder / "outputs" / "cache"
    earlier = {
        step
        for checkpoints in run.glob("*/checkpoints")
        for step in sorted(checkpoints.glob("step_*"))[:-1]
    }
    cached = [path for entry in cache.glob("[!.]*") for path in entry.rglob("*")]
    return {
        path.relative_to(folder).as_posix(): _content(path)
        for path in sorted([*run.rglob("*"), *cached])
        if path.is_file() and earlier.isdisjoint(path.parents)
        if path.name not in OWN and not path.name.startswith("report.")
    }


def differences(actual: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    """A line for each file that differs."""
    both = actual.keys() & expected.keys()
    return [
        *(f"{name}: missing" for name in sorted(expected.keys() - both)),
        *(f"{name}: not in the undisturbed run" for name in sorted(actual.keys() - both)),
        *(f"{name}: differs" for name in sorted(both) if actual[name] != expected[name]),
    ]


def _content(path: Path) -> Any:
    if path.name == "run.json":
        return [_outcome(entry) for entry in json.loads(path.read_bytes())["stages"]]
    if path.name == "base.json":
        facts = json.loads(path.read_bytes())
        return {key: facts[key] for key in ("recipe", "loss", "step_accuracy", "sha256")}
    if path.name in ("metrics.jsonl", "evaluations.jsonl"):
        return [_timeless(json.loads(line)) for line in path.read_bytes().split(b"\n")[:-1]]
    if path.suffix == ".pt":
        import torch

        state = torch.load(path, weights_only=True)
        if isinstance(state, dict):
            state.pop("seconds", None)
        return _digest(state)
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        table = pq.read_table(path)
        kept = [name for name in table.column_names if name not in ("queue_s", "exec_s")]
        return _digest(table.select(kept).to_pydict())
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _outcome(entry: Mapping[str, Any]) -> dict[str, Any]:
    sides = {side: _timeless(entry[side]) for side in ("before", "after")}
    return {"name": entry["name"], "status": entry["status"], **sides}


def _timeless(row: Mapping[str, Any]) -> dict[str, Any]:
    from veriloop.pipeline.rl.metrics import reproducible

    return {key: v for key, v in reproducible(row).items() if not key.endswith("seconds")}


def _digest(value: Any) -> Any:
    """The value with its tensors as bytes, comparable by ==; NaN equals itself."""
    if isinstance(value, Mapping):
        return {key: _digest(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_digest(inner) for inner in value]
    if hasattr(value, "numpy"):
        return hashlib.sha256(value.contiguous().numpy().tobytes()).hexdigest()
    return repr(value) if isinstance(value, float) else value
