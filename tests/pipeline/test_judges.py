"""Who judges a run is a line of its recipe: the verdicts are the same from either."""

import json
from contextlib import ExitStack
from dataclasses import replace

import pytest

from data.problem import Problem
from pipeline.failures import RecipeError
from pipeline.grade import grade, open_judges
from pipeline.record import read_rollouts
from pipeline.rl_config import ZeroRecipe
from stages import rl, zero
from verifiers.pool import VerifierPool
from verifiers.service.client import ServicePool
from verifiers.service.server import RewardService, Settings


def recipe(**changes):
    values = {
        "name": "test",
        "start": "given",
        "steps": 2,
        "rollout": {"prompts": 4, "per_prompt": 4, "max_tokens": 12},
        "algorithm": {"minibatches": 2},
        "optimizer": {"learning_rate": 1e-2},
        "sampler": {"engine": "torch"},
        "evaluation": {"problems": 4, "samples": 2},
        "tensorboard": False,
    }
    return ZeroRecipe.model_validate(values | changes)


@pytest.fixture(scope="module")
def service():
    with RewardService(Settings(verifiers=("language", "number", "think_format"))) as opened:
        yield opened


@pytest.mark.slow
def test_a_short_training_run_has_the_same_verdicts_from_a_service(
    tiny_checkpoint, tmp_path, service
):
    folders = {"": tmp_path / "own", service.url: tmp_path / "service"}
    for url, folder in folders.items():
        with ExitStack() as stack:
            told = recipe(verifier_service=url)
            loop = rl.opened(
                stack, told, zero.task(told), folder, tiny_checkpoint(tied=False), None
            )
            assert isinstance(loop.tools.pool, ServicePool if url else VerifierPool)
            loop.run(lambda: 0.0)
    own, there = (said(folder) for folder in folders.values())
    assert own == there and len(own["rollouts"]) == 32
    assert {row["status/accuracy"] for row in own["rollouts"]} <= {"graded", "no_answer"}


def said(folder):
    """Every rollout without its times, the evaluations, and what judged."""
    rollouts = [
        {key: value for key, value in row.items() if key not in ("queue_s", "exec_s")}
        for step in (1, 2)
        for row in read_rollouts(folder / "rollouts" / f"step_{step:06}.parquet")
    ]
    evaluations = (folder / "evaluations.jsonl").read_text()
    versions = json.loads((folder / "versions.json").read_text())
    return {"rollouts": rollouts, "evaluations": evaluations, "verifiers": versions["verifiers"]}


@pytest.mark.slow
def test_graded_by_a_service_or_by_workers_is_graded_alike(graded, service):
    asked = Problem(id="p", prompt="", verifier="number", reference={"value": "7"})
    texts = ["<answer>7</answer>", "<think>7</think><answer>7</answer>", "7", "\ud800"]
    rollouts = [graded(problem=asked, response=(1,)).rollout for _ in texts]
    rollouts = [replace(r, response=text) for r, text in zip(rollouts, texts, strict=True)]
    found = []
    for pool in (open_judges(["number"]), open_judges(["number"], service.url)):
        with pool:
            done = grade(
                rollouts,
                {"accuracy": None, "format": "think_format"},
                pool,
                lambda _, verdicts: verdicts["accuracy"].score + verdicts["format"].score,
            )
        found.append([one.reward for one in done])
    assert found[0] == found[1] == [1.0, 2.0, 0.0, 0.0]


@pytest.mark.slow
def test_a_service_without_the_verifiers_of_the_recipe_is_refused_at_the_start(tmp_path):
    with RewardService(Settings(verifiers=("language", "number"))) as service:
        told = recipe(verifier_service=service.url)
        with pytest.raises(RecipeError, match="no verifier 'think_format'"):
            rl.judges(told, zero.task(told), tmp_path)


def test_what_is_no_address_is_refused():
    with pytest.raises(RecipeError, match="verifier_service: 'nowhere' is no address of a server"):
        open_judges(["number"], "nowhere")


def test_workers_end_where_they_cannot_be_asked_to_warm_up(monkeypatch):
    opened = []

    class Watched(VerifierPool):
        def __init__(self, *given):
            super().__init__(*given)
            opened.append(self)

    monkeypatch.setattr("pipeline.grade.VerifierPool", Watched)
    with pytest.raises(KeyError, match="no_such"):
        open_judges(["no_such"])
    with pytest.raises(RuntimeError, match="closed"):
        opened[0].warm(["number"])
