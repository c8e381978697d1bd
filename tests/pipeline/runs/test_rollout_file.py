"""Rollouts come back from disk as they were sampled and judged."""

import dataclasses
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from tests.rollouts import graded
from veriloop.data.problem import Problem
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.offline.replay import first_difference, off_policy
from veriloop.pipeline.offline.rescore import read_rows
from veriloop.pipeline.report.rollout_stats import scalar_rows
from veriloop.pipeline.runs.rollout_file import drift, read_graded, read_rollouts, write_rollouts
from veriloop.pipeline.types import SeenTokens
from veriloop.verifiers.verdict import Verdict

ROOT = Path(__file__).parents[3]


def toy(number=0, **verdicts):
    problem = Problem(
        id=f"toy/train/{number}",
        prompt=f"{number} 加 2?",
        verifier="number",
        reference={"answer": [number + 2]},
        facts={"language": "zh"},
    )
    verdicts = verdicts or {"accuracy": Verdict(score=1.0, answer="2", queue_s=0.5, exec_s=0.25)}
    failed = any(verdict.score is None for verdict in verdicts.values())
    return graded(
        (1, 2),
        (3, 4, 2),
        said=f"<answer>{number + 2}</answer>",
        group=f"g{number}",
        problem=problem,
        logp=(-0.5, -0.25, -1.0),
        temperature=0.9,
        policy_version=7,
        verdicts=verdicts,
        reward=None if failed else 1.5,
    )


def written(tmp_path, rows, advantages):
    path = tmp_path / "step_000003.parquet"
    write_rollouts(path, 3, rows, advantages)
    return read_rollouts(path)


def test_every_field_of_a_rollout_comes_back(tmp_path):
    one = toy(
        5,
        accuracy=Verdict(
            score=0.5, answer="7", detail="off", components={"near": 0.5}, queue_s=0.5, exec_s=0.25
        ),
        format=Verdict(score=0.0, status="no_answer", queue_s=0.125, exec_s=1.0),
    )
    [row] = written(tmp_path, [one], [-0.75])
    assert json.loads(row.pop("reference")) == {"answer": [7]}
    assert json.loads(row.pop("facts")) == {"language": "zh"}
    assert json.loads(row.pop("components/accuracy")) == {"near": 0.5}
    assert row == {
        "step": 3,
        "group": "g5",
        "problem_id": "toy/train/5",
        "prompt": "5 加 2?",
        "verifier": "number",
        "prompt_ids": [1, 2],
        "response_ids": [3, 4, 2],
        "logp": [-0.5, -0.25, -1.0],
        "response": "<answer>7</answer>",
        "finish": "stop",
        "temperature": 0.9,
        "policy_version": 7,
        "versions": None,
        "reward": 1.5,
        "advantage": -0.75,
        "step_ends": None,
        "step_scores": None,
        "queue_s": 0.625,
        "exec_s": 1.25,
        "reward/accuracy": 0.5,
        "reward/format": 0.0,
        "status/accuracy": "graded",
        "status/format": "no_answer",
        "answer/accuracy": "7",
        "answer/format": None,
        "detail/accuracy": "off",
        "detail/format": "",
        "components/format": "{}",
        "trainer_logp": None,
        "entropy": None,
        "token_advantage": None,
        "clipped": None,
    }


def test_what_an_update_saw_is_recorded_with_its_rollout(tmp_path):
    seen = SeenTokens(
        logp_T=torch.tensor([-0.5, -0.75, -1.0]),
        entropy_T=torch.tensor([0.25, 0.5, 0.0]),
        advantage_T=torch.tensor([1.0, 1.0, 2.0]),
        clipped_T=torch.tensor([0, -1, 1], dtype=torch.int8),
    )
    path = tmp_path / "step_000001.parquet"
    write_rollouts(path, 1, [toy(0), toy(1)], [0.0, 1.0], {1: seen})
    left, row = read_rollouts(path)
    assert left["trainer_logp"] is None
    assert row["trainer_logp"] == [-0.5, -0.75, -1.0]
    assert row["entropy"] == [0.25, 0.5, 0.0]
    assert row["token_advantage"] == [1.0, 1.0, 2.0]
    assert row["clipped"] == [0, -1, 1]


@pytest.mark.slow
def test_rollouts_are_read_without_torch():
    code = (
        "import sys, veriloop.pipeline.runs.record, veriloop.pipeline.runs.console; "
        "print('torch' in sys.modules)"
    )
    words = [sys.executable, "-c", code]
    said = subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT)
    assert said.stdout == "False\n"


def test_a_failed_verifier_is_null_and_never_a_zero(tmp_path):
    broken = toy(1, accuracy=Verdict(score=None, status="error", detail="worker died"))
    [row] = written(tmp_path, [broken], [None])
    assert row["reward"] is None and row["reward/accuracy"] is None and row["advantage"] is None
    assert row["status/accuracy"] == "error" and row["detail/accuracy"] == "worker died"


def test_a_verifier_that_did_not_judge_a_row_is_null_there(tmp_path):
    rows = [toy(0, accuracy=Verdict(score=1.0)), toy(1, language=Verdict(score=0.5))]
    first, second = written(tmp_path, rows, [0.0, 0.0])
    assert (first["reward/accuracy"], first["reward/language"]) == (1.0, None)
    assert (second["reward/accuracy"], second["reward/language"]) == (None, 0.5)
    assert second["status/accuracy"] is None and second["components/accuracy"] is None


def test_order_is_kept(tmp_path):
    rows = written(tmp_path, [toy(n) for n in (3, 1, 2)], [3.0, 1.0, 2.0])
    assert [(row["group"], row["advantage"]) for row in rows] == [("g3", 3), ("g1", 1), ("g2", 2)]


def test_single_precision_logps_come_back_bit_for_bit(tmp_path):
    logp = tuple(float(x) for x in np.float32([-0.1, -1 / 3, -17.3]))
    one = toy()
    one = dataclasses.replace(one, rollout=dataclasses.replace(one.rollout, logp=logp))
    [row] = written(tmp_path, [one], [0.0])
    assert tuple(row["logp"]) == logp


def test_half_a_surrogate_pair_is_stored_as_its_escape(tmp_path):
    odd = toy(0, accuracy=Verdict(score=0.0, answer="\ud800", detail="saw \udfff"))
    rollout = dataclasses.replace(odd.rollout, response="ok \ud83d")
    [row] = written(tmp_path, [dataclasses.replace(odd, rollout=rollout)], [0.0])
    assert row["answer/accuracy"] == "\\ud800" and row["detail/accuracy"] == "saw \\udfff"
    assert row["response"] == "ok \\ud83d"


def test_no_rollouts_make_an_empty_file(tmp_path):
    assert written(tmp_path, [], []) == []


def test_a_folder_that_looks_like_a_partition_adds_no_column(tmp_path):
    [row] = written(tmp_path / "seed=3", [toy()], [0.0])
    assert "seed" not in row


def test_lengths_that_differ_are_refused(tmp_path):
    with pytest.raises(ValueError, match="1 advantages for 2 rollouts"):
        written(tmp_path, [toy(0), toy(1)], [0.0])
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("advantage", [float("nan"), float("inf")])
def test_an_advantage_that_is_not_finite_is_refused_with_its_problem(tmp_path, advantage):
    with pytest.raises(ValueError, match=r"'toy/train/4'.*not finite"):
        written(tmp_path, [toy(4)], [advantage])
    assert os.listdir(tmp_path) == []


def test_a_reference_that_is_not_json_is_refused_with_its_problem(tmp_path):
    one = toy(4)
    problem = dataclasses.replace(one.rollout.problem, reference={"allowed": {1, 2}})
    one = dataclasses.replace(one, rollout=dataclasses.replace(one.rollout, problem=problem))
    with pytest.raises(ValueError, match="reference of 'toy/train/4' cannot be written as JSON"):
        written(tmp_path, [one], [0.0])


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
        graded(policy_version=3, versions=(3, 5)),
    ]
    said = replace(written[2].rollout, response="é <answer>")
    written[2] = replace(written[2], rollout=said)
    path = tmp_path / "step.parquet"
    write_rollouts(path, 3, written, [0.5, None, -0.5, 0.0])
    found, rows = read_graded(path)
    logp = [one.rollout.logp for one in found]
    assert [row["advantage"] for row in rows] == [0.5, None, -0.5, 0.0]
    assert logp[0] == pytest.approx(written[0].rollout.logp, rel=1e-7)
    for one, other in zip(found, written, strict=True):  # float32, as the update reads them
        kept = replace(one.rollout, logp=other.rollout.logp)
        assert replace(one, rollout=kept) == other


def test_scores_of_steps_come_back_and_a_file_without_their_columns_has_none(graded, tmp_path):
    steps = [None, (), ((3, 1 / 3), (9, 0.0))]
    path = tmp_path / "step.parquet"
    write_rollouts(path, 1, [replace(graded(), steps=scores) for scores in steps], [0.0] * 3)
    assert [g.steps for g in read_graded(path)[0]] == steps
    earlier = pq.read_table(path).drop_columns(["step_ends", "step_scores", "versions"])
    pq.write_table(earlier, path)
    assert [g.steps for g in read_graded(path)[0]] == [None] * 3


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


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1 no footer at all PAR1"])
@pytest.mark.parametrize("read", [read_rollouts, scalar_rows, lambda path: read_rows(path, "x")])
def test_a_damaged_file_is_named_by_every_reader(tmp_path, content, read):
    path = tmp_path / "step_000001.parquet"
    path.write_bytes(content)
    with pytest.raises(RecipeError, match=r"step_000001\.parquet cannot be read as Parquet \("):
        read(path)
