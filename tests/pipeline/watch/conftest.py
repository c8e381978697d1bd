"""Runs that grow while a test looks on, through the same records that a stage writes."""

import pytest

from tests.rollouts import graded
from veriloop.data.problem import Problem
from veriloop.pipeline.runs import manifest as run_json
from veriloop.pipeline.runs.manifest import RunManifest
from veriloop.pipeline.runs.record import StageRecord
from veriloop.verifiers.verdict import Verdict

IDENTITY = {"versions": {"veriloop": "1"}, "machine": {}, "git": {"commit": "0", "dirty": False}}


class Growing:
    """A run folder that a test writes into, stage after stage, step after step."""

    def __init__(self, folder):
        self.folder = folder
        self.manifest = RunManifest(folder / "run.json", command=["veriloop", "zero", "x"])

    def begin(self, stage="zero", steps=50):
        recipe = {"stage": "zero", "name": "test/zero", "steps": steps}
        self.manifest.begin_stage(stage, {"recipe": recipe})
        self.stage, self.record = stage, StageRecord(self.folder / stage, tensorboard=False)
        return self

    def step(self, step, texts=("<think>1+1</think><answer>2</answer>", "3"), **numbers):
        if texts:
            self.rollouts(step, texts)
        self.record.write_metrics(step, numbers_of(step) | numbers)

    def rollouts(self, step, texts, **told):
        graded = [graded_of(text, at, **told) for at, text in enumerate(texts)]
        return self.record.write_rollouts(step, graded, [0.5] * len(graded))

    def evaluated(self, step, value):
        line = f'{{"step": {step}, "pass@1": {value}, "pass@1 95%": [0.1, 0.9]}}\n'
        with (self.folder / self.stage / "evaluations.jsonl").open("a") as lines:
            lines.write(line)

    def end(self, status="done", **outputs):
        after = {"pass@1": 0.75} if status == "done" else {}
        self.manifest.end_stage(self.stage, 61.0, "torch", {}, after, outputs, status=status)


def numbers_of(step):
    return {
        "reward": 0.25 * step,
        "reward_std": 0.5,
        "rewards/accuracy/mean": 0.125 * step,
        "entropy": 0.5,
        "num_tokens": 1000.0,
        "step_time": 2.0,
    }


def graded_of(text, at, *, prompt="What is 1+1?", problem="sums/rl/0", detail=""):
    right = float(at == 0)
    asked = Problem(
        id=problem,
        prompt=prompt,
        verifier="number",
        reference={"value": "2"},
        facts={"language": "en"},
    )
    return graded(
        (1, 2),
        (5, 6, 7),
        said=text,
        group="1/0",
        problem=asked,
        verdicts={"accuracy": Verdict(score=right, answer="2", detail=detail)},
        reward=right,
    )


@pytest.fixture
def growing(tmp_path, monkeypatch):
    """A run of one stage that has begun and recorded nothing."""
    monkeypatch.setattr(run_json, "identity", lambda: IDENTITY)
    return Growing(tmp_path / "run").begin()
