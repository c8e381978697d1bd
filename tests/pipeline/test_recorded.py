"""Rollouts read back are those that were written."""

from dataclasses import replace

import pytest

from data.problem import Problem
from pipeline.failures import RecipeError
from pipeline.recorded import drift, read_graded
from pipeline.replay import first_difference, off_policy
from pipeline.rollout_file import write_rollouts
from verifiers.verdict import Verdict


def test_what_is_read_is_what_was_written_in_its_order(graded, tmp_path):
    problem = Problem(
        id="a/rl/7",
        prompt="¿qué?",
        verifier="countdown",
        reference={"numbers": [1, 2], "half": "\ud83d", "nested": {"x": None}},
        facts={"language": "en"},
    )
    told = {"accuracy": Verdict(score=0.5, answer="x", detail="y", components={"half": 0.5})}
    failed = {"format": Verdict(score=None, status="error", detail="died")}
    written = [
        graded((1, 2, 3), (4, 5), logp=(-0.1, -2.0000001), group="1/1", problem=problem),
        graded((1,), (0,), logp=(-1e-30,), verdicts=told | failed, reward=None),
        graded(reward=-0.25, finish="length", temperature=0.7, policy_version=12),
    ]
    said = replace(written[2].rollout, response="é <answer>")
    written[2] = replace(written[2], rollout=said)
    path = tmp_path / "step.parquet"
    write_rollouts(path, 3, written, [0.5, None, -0.5])
    found, rows = read_graded(path)
    logp = [one.rollout.logp for one in found]
    assert [row["advantage"] for row in rows] == [0.5, None, -0.5]
    assert logp[0] == pytest.approx(written[0].rollout.logp, rel=1e-7)
    for one, other in zip(found, written, strict=True):  # float32, as the update reads them
        kept = replace(one.rollout, logp=other.rollout.logp)
        assert replace(one, rollout=kept) == other


def test_a_file_without_rollouts_is_refused(tmp_path):
    write_rollouts(tmp_path / "step.parquet", 1, [], [])
    with pytest.raises(RecipeError, match="holds no rollout"):
        read_graded(tmp_path / "step.parquet")


def test_how_far_off_a_policy_is():
    gaps = drift([[-1.0, -2.0], [-0.5]], [[-1.0, -2.5], [-1.5]])
    assert gaps == [0.0, 0.5, 1.0]
    told = off_policy(gaps)
    assert told["off_policy/log_ratio"] == 0.5
    assert told["off_policy/ratio_mean"] == pytest.approx((1 + 1.6487213 + 2.7182818) / 3)
    assert told["off_policy/ratio_max"] == pytest.approx(2.7182818)
    assert off_policy([]) == {} and off_policy([1e9])["off_policy/ratio_max"] < float("inf")


def test_the_first_number_that_differs_is_named():
    recorded = {"loss": 1.0, "kl": 2.0, "reward": 9.0}
    assert first_difference(recorded, {"loss": 1.0, "kl": 2.0, "mine": 3.0}) is None
    assert first_difference(recorded, {"loss": 1.0, "kl": 2.0000000000000004}) == "kl"
