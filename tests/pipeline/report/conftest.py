"""Run folders made by hand, through the same records that a stage writes."""

import json
from dataclasses import replace

import pytest
import torch

from tests.rollouts import graded
from veriloop.data.problem import Problem
from veriloop.pipeline.report.read_run import Stage, read_run
from veriloop.pipeline.report.rollout_stats import collect_stats
from veriloop.pipeline.runs import manifest as run_json
from veriloop.pipeline.runs.manifest import RunManifest
from veriloop.pipeline.runs.record import StageRecord
from veriloop.pipeline.types import SeenTokens
from veriloop.verifiers.verdict import Verdict

GIT = {"commit": "0123456789abcdef", "dirty": True}
IDENTITY = {
    "versions": {"veriloop": "1", "torch": "2"},
    "machine": {"cpu": "one", "cores": 2, "memory_gib": 8.0, "gpus": [], "system": "Linux"},
    "git": GIT,
}


@pytest.fixture
def answer():
    """Factory of graded rollouts: what a test says nothing about is plain and right."""

    def build(text="<think>1+1</think><answer>2</answer>", **told):
        right = told.get("right", True)
        ids = told.get("ids", (5, 6, 7))
        verdicts = told.get("verdicts") or {
            "accuracy": Verdict(score=float(right), answer="2", queue_s=0.25, exec_s=0.5),
            "format": Verdict(score=1.0),
        }
        problem = Problem(
            id=told.get("problem", "sums/rl/0"),
            prompt=told.get("prompt", "What is 1+1?"),
            verifier=told.get("verifier", "number"),
            reference=told.get("reference", {"value": "2"}),
            facts={"language": "en"},
        )
        failed = any(verdict.score is None for verdict in verdicts.values())
        return graded(
            (1, 2),
            ids,
            said=text,
            group=told.get("group", "1/0"),
            problem=problem,
            logp=(-0.5,) * len(ids),
            finish=told.get("finish", "stop"),
            verdicts=verdicts,
            reward=None if failed else told.get("reward", float(right) + 1.0),
        )

    return build


@pytest.fixture
def seen():
    """Function: what an update saw of these rollouts, one clipped token in each."""

    def build(graded, off=0.05):
        return {
            place: SeenTokens(
                logp_T=torch.tensor(one.rollout.logp) + off,
                entropy_T=torch.full((len(one.rollout.logp),), 0.25),
                advantage_T=torch.full((len(one.rollout.logp),), 0.5),
                clipped_T=torch.tensor([1] + [0] * (len(one.rollout.logp) - 1), dtype=torch.int8),
            )
            for place, one in enumerate(graded)
        }

    return build


@pytest.fixture
def run(tmp_path, monkeypatch, answer, seen):
    """Factory of run folders of one stage, `zero`: `steps` of groups of four answers.

    `numbers(step)` are its metrics, `groups(step)` the answers of its groups where they are not
    the plain ones, `before`, `after` and `gains` its figures.
    """
    monkeypatch.setattr(run_json, "identity", lambda: IDENTITY)

    def build(
        name="run",
        *,
        steps=9,
        numbers=None,
        groups=None,
        before=None,
        after=None,
        gains=None,
        recipe=None,
    ):
        folder = tmp_path / name
        manifest = RunManifest(folder / "run.json", command=["veriloop", "zero", "x"])
        values = {"stage": "zero", "name": "test/zero", "seed": 3, **(recipe or {})}
        manifest.begin_stage("zero", {"recipe": values})
        record = StageRecord(folder / "zero", tensorboard=False)
        for step in range(1, steps + 1):
            asked = groups(step) if groups else plain(answer, step)
            graded = [
                replace(one, rollout=replace(one.rollout, group=f"{step}/{place}"))
                for place, group in enumerate(asked)
                for one in group
            ]
            record.write_rollouts(step, graded, [0.5] * len(graded), seen(graded))
            record.write_metrics(step, numbers(step) if numbers else healthy(step))
        for step in (0, steps):
            record.write_evaluated(step, [answer(problem="sums/test/0"), answer(right=False)])
        ends = before or {}, after or {}
        manifest.end_stage("zero", 61.0, "torch", *ends, {}, gains=gains or {})
        return folder

    return build


def plain(answer, step):
    """Two groups: one divided, one all right."""
    mixed = [answer(right=i % 2 == 0, problem=f"sums/rl/{step}") for i in range(4)]
    return [mixed, [answer(problem="sums/rl/again")] * 4]


def healthy(step):
    return {
        "reward": 0.5 + 0.1 * step + 0.01 * (step % 2),
        "reward_std": 0.3,
        "rewards/accuracy/mean": 0.3 + 0.05 * step,
        "rewards/format/mean": 0.5,
        "frac_reward_zero_std": 0.2,
        "frac_groups_all_right": 0.1,
        "frac_groups_all_wrong": 0.1,
        "completions/mean_length": 20.0,
        "completions/clipped_ratio": 0.01,
        "entropy": 0.5 - 0.01 * step,
        "grad_norm": 1.0 + 0.1 * (step % 3),
        "sampling/sampling_logp_difference/mean": 1e-6,
        "num_tokens": 1000.0,
        "step_time": 2.0,
        "time/sample": 1.5,
    }


@pytest.fixture
def stage():
    """Factory of stages that are only their metrics: column name to values."""

    def build(before=None, after=None, kind="zero", **columns):
        names = {name.replace("__", "/"): values for name, values in columns.items()}
        count = max(map(len, names.values()), default=0)
        rows = [{"step": i, **{n: v[i] for n, v in names.items()}} for i in range(count)]
        entry = {
            "before": before or {},
            "after": after or {},
            "inputs": {"recipe": {"stage": kind}},
        }
        return Stage(name="one", entry=entry, folder=None, metrics=rows)

    return build


@pytest.fixture
def scanned():
    """Function: the scan of the only stage of a run folder."""
    return lambda folder: collect_stats(read_run(folder).stages[0].rollout_files)


@pytest.fixture
def as_json():
    return lambda path: json.loads(path.read_text())
