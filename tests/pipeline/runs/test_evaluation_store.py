"""Evaluations of a run, found again by the weights and what was asked of them."""

import json
import shutil

import pytest

from tests.rollouts import graded
from veriloop.pipeline.runs import evaluation_store
from veriloop.pipeline.runs.evaluation_store import FOLDER, EvaluationFolder
from veriloop.pipeline.runs.record import StageRecord
from veriloop.pipeline.runs.rollout_file import read_rollouts

ASKED = {"questions": "0f", "greedy": True}


@pytest.fixture
def held_out_answer():
    return graded((1,), (2, 3), said="two")


@pytest.fixture
def stage(tmp_path):
    """Function: the evaluations of weights as a stage opens them after `step`, the file of its
    samples, which are written if `sampled`, and what is said."""

    def opened(name, weights, step, sampled=()):
        record, said = StageRecord(tmp_path / "run" / name, tensorboard=False), []
        if sampled:
            record.write_evaluated(step, sampled)
        folder = EvaluationFolder(tmp_path / "run" / FOLDER, record, step, weights, said.append)
        return folder, record.evaluated(step), said

    return opened


@pytest.fixture
def weights(tmp_path):
    """A model folder with these weights."""

    def made(name, content):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(content)
        return folder

    return made


def test_the_next_stage_finds_the_evaluation_of_its_start(stage, weights, held_out_answer):
    start = weights("a", b"1")
    ended, samples, said = stage("first", start, 7, [held_out_answer])
    assert ended.find(ASKED) is None and not said
    ended.add(ASKED, {"greedy": 0.5})
    (file,) = (samples.parents[2] / FOLDER).glob("*.json")
    assert json.loads(file.read_text())["weights"] == str(start)
    copy = shutil.copytree(start, start.with_name("copy"))
    begins, copied, said = stage("second", copy, 0)
    assert begins.find(ASKED) == {"greedy": 0.5}
    assert len(said) == 1 and said[0].startswith(f"{copy} was asked the same questions before: ")
    (row,) = read_rollouts(copied)
    (before,) = read_rollouts(samples)
    assert row == before | {"step": 0} and before["step"] == 7


def test_other_weights_and_other_questions_are_not_found(stage, weights, held_out_answer):
    stage_of_a, *_ = stage("first", weights("a", b"1"), 0, [held_out_answer])
    stage_of_a.add(ASKED, {"greedy": 0.5})
    assert stage_of_a.find(ASKED | {"greedy": False}) is None
    assert stage("second", weights("b", b"2"), 0)[0].find(ASKED) is None


def test_other_code_finds_nothing(stage, weights, held_out_answer, monkeypatch):
    folder, *_ = stage("first", weights("a", b"1"), 0, [held_out_answer])
    folder.add(ASKED, {"greedy": 0.5})
    assert folder.find(ASKED)
    monkeypatch.setattr(evaluation_store, "code_hash", lambda: "other")
    assert folder.find(ASKED) is None


@pytest.mark.parametrize("suffix", [".json", ".parquet"])
@pytest.mark.parametrize("damage", [b"", b"{}", b"PAR1 and no more", None])
def test_a_missing_or_damaged_evaluation_is_made_again(
    stage, weights, held_out_answer, tmp_path, suffix, damage
):
    folder, *_ = stage("first", weights("a", b"1"), 0, [held_out_answer])
    folder.add(ASKED, {"greedy": 0.5})
    (stored,) = (tmp_path / "run" / FOLDER).glob(f"*{suffix}")
    stored.unlink()
    if damage is not None:
        stored.write_bytes(damage)
    assert folder.find(ASKED) is None
    folder.add(ASKED, {"greedy": 0.5})
    assert folder.find(ASKED) == {"greedy": 0.5}
