"""Who judges a run is a line of its recipe: the verdicts are the same from either."""

import json
from contextlib import ExitStack
from dataclasses import replace

import pytest

from veriloop.data.problem import Problem
from veriloop.pipeline.config.rl import ZeroRecipe
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.rollouts.grade import grade, open_judges
from veriloop.pipeline.runs.record import read_rollouts
from veriloop.stages import rl, zero
from veriloop.verifiers.pool import VerifierPool
from veriloop.verifiers.registry import fingerprint
from veriloop.verifiers.service.client import ServicePool
from veriloop.verifiers.service.server import RewardService, Settings
from veriloop.verifiers.verdict import JudgingError


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


@pytest.fixture(scope="module")
def second_service():
    with RewardService(Settings(verifiers=("language", "number", "think_format"))) as opened:
        yield opened


@pytest.mark.slow
def test_a_short_training_run_has_the_same_verdicts_from_a_service(
    tiny_checkpoint, tmp_path, service, second_service
):
    folders = {"": tmp_path / "own", service.url: tmp_path / "service"}
    folders[service.url, second_service.url] = tmp_path / "services"
    for url, folder in folders.items():
        with ExitStack() as stack:
            told = recipe(verifier_service=url)
            loop = rl.open_loop(
                stack, told, zero.task(told), folder, tiny_checkpoint(tied=False), None
            )
            assert isinstance(loop.deps.pool, ServicePool if url else VerifierPool)
            loop.run(lambda: 0.0)
    own, there, shared = (said(folder) for folder in folders.values())
    assert own == there == shared and len(own["rollouts"]) == 32
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
        with (
            ExitStack() as stack,
            pytest.raises(RecipeError, match="no verifier 'think_format'"),
        ):
            rl.open_loop(stack, told, zero.task(told), tmp_path, tmp_path, None)


def test_what_is_no_address_is_refused():
    with pytest.raises(RecipeError, match="verifier_service: 'nowhere' is no address of a server"):
        open_judges(["number"], "nowhere")


@pytest.mark.parametrize(
    ("urls", "said"),
    [
        ([], "verifier_service: an empty list names no service"),
        (["http://a", "http://a/"], "verifier_service: http://a:80 is named twice"),
        (["http://a", "nowhere"], "verifier_service: 'nowhere' is no address of a server"),
    ],
)
def test_a_list_that_is_no_list_of_addresses_is_refused(urls, said):
    with pytest.raises(RecipeError, match=said):
        open_judges(["number"], urls)


@pytest.mark.slow
def test_a_run_begins_if_one_of_its_services_answers(service, caplog):
    gone = "http://127.0.0.1:9"
    with open_judges(["number"], [gone, service.url]) as pool:
        assert pool.fingerprint(["number"]) == fingerprint(["number"])
    assert f"the reward service {gone} is left out" in caplog.text
    said = f"verifier_service {gone} {service.url}: the reward service {service.url} has no verifi"
    with pytest.raises(RecipeError, match=said):
        open_judges(["no_such"], [gone, service.url])


def test_services_that_judge_differently_are_left_at_the_start(monkeypatch):
    closed = []

    class Differing(ServicePool):
        def warm(self, names):
            raise JudgingError("http://a as 1+a and http://b as 2+b")

        def close(self):
            super().close()
            closed.append(self)

    monkeypatch.setattr("veriloop.pipeline.rollouts.grade.ServicePool", Differing)
    with pytest.raises(JudgingError, match="http://b as 2"):
        open_judges(["number"], ["http://a", "http://b"])
    assert len(closed) == 1


def test_workers_end_where_they_cannot_be_asked_to_warm_up(monkeypatch):
    opened = []

    class Watched(VerifierPool):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            opened.append(self)

    monkeypatch.setattr("veriloop.pipeline.rollouts.grade.VerifierPool", Watched)
    with pytest.raises(KeyError, match="no_such"):
        open_judges(["no_such"])
    with pytest.raises(RuntimeError, match="closed"):
        opened[0].warm(["number"])


HALF = Problem(id="m/0", prompt="", verifier="math_answer", reference={"answer": r"\int_0^1 x\,dx"})


@pytest.mark.slow
def test_the_setting_of_computer_algebra_reaches_local_workers_and_their_fingerprint():
    usual, never = recipe(), recipe(verifier_computer_algebra="never")
    assert (usual.verifier_facts, never.verifier_facts) == ({}, {"computer_algebra": "never"})
    with open_judges(["math_answer"], facts=never.verifier_facts) as pool:
        assert pool.judge_all([(HALF, r"\boxed{\frac12}")])[0].status == "error"
        assert pool.fingerprint(["math_answer"])["math_answer"].endswith(",computer_algebra=never")


@pytest.mark.slow
def test_the_setting_of_computer_algebra_reaches_a_service():
    with (
        RewardService(Settings(verifiers=("math_answer",))) as service,
        open_judges(["math_answer"], service.url, facts={"computer_algebra": "never"}) as pool,
        open_judges(["math_answer"], service.url) as usual,
    ):
        assert pool.judge_all([(HALF, r"\boxed{\frac12}")])[0].status == "error"
        assert usual.judge_all([(HALF, r"\boxed{\frac12}")])[0].score == 1.0
        plain = usual.fingerprint(["math_answer"])["math_answer"]
        marked = pool.fingerprint(["math_answer"])["math_answer"]
        assert marked == f"{plain},computer_algebra=never"


def test_an_unknown_use_of_computer_algebra_is_refused():
    with pytest.raises(ValueError, match="verifier_computer_algebra"):
        recipe(verifier_computer_algebra="sometimes")
