"""R1-Zero as a stage: its reward, its record, and a run that is killed and taken up again."""

import json
import shutil
import signal
import time
from pathlib import Path

import pytest
import yaml

from tests.forked import ForkedGroup
from veriloop.pipeline.config.load import read
from veriloop.pipeline.config.rl import RewardConfig, ZeroRecipe
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.rl.metrics import reproducible
from veriloop.pipeline.runs.manifest import RunManifest
from veriloop.pipeline.sampling.sync import SyncError, WeightSync
from veriloop.stages import rl, zero
from veriloop.stages.cli import main
from veriloop.stages.stage_run import starting_point
from veriloop.verifiers.verdict import Verdict


def verdicts(accuracy, layout):
    return {"accuracy": Verdict(score=accuracy), "format": Verdict(score=layout)}


@pytest.mark.parametrize(
    ("accuracy", "layout", "expected"), [(0, 0, 0), (1, 0, 1), (0, 1, 1), (1, 1, 2)]
)
def test_accuracy_and_format_weigh_the_same(accuracy, layout, expected):
    assert zero.reward(verdicts(accuracy, layout), RewardConfig()) == expected


def test_weights_belong_to_their_own_component():
    weights = RewardConfig(accuracy=2.0, format=0.5)
    assert zero.reward(verdicts(1.0, 0.0), weights) == 2.0
    assert zero.reward(verdicts(0.0, 1.0), weights) == 0.5


def test_unweighted_components_are_found():
    assert rl.unweighted(read("tiny/zero")) == set()
    assert rl.unweighted(read("real/dapo_math_7b")) == {"format"}
    assert rl.unweighted(read("tiny/distill_on_policy")) == set()
    terms = {
        "paid": {"verifier": "language", "weight": 0.5},
        "penalty": {"verifier": "repetition", "weight": 0.0, "parts": {"penalty": 0.5}},
        "value": {"function": "math:sqrt"},  # may be below 0
    }
    values = read("tiny/zero").model_dump()
    reward = values["reward"] | {"terms": terms}
    asked = ZeroRecipe.model_validate(values | {"reward": reward})
    assert rl.unweighted(asked) == {"penalty", "value"}


def test_a_failed_verifier_has_no_reward():
    failed = verdicts(1.0, 1.0) | {"format": Verdict(score=None, status="error")}
    with pytest.raises(AssertionError, match="failed verifier"):
        zero.reward(failed, RewardConfig())


def test_a_start_that_is_a_recipe_for_another_stage_is_refused(tmp_path):
    manifest = RunManifest(tmp_path / "run.json")
    with pytest.raises(RecipeError, match=r"recipe for 'zero', not a base"):
        starting_point("recipes/tiny/zero.yaml", manifest)


@pytest.fixture
def words(tiny_checkpoint, tmp_path, one_pool):
    """Function: what runs a small recipe on an untrained model into `tmp_path`/name."""
    values = {
        "stage": "zero",
        "name": "test",
        "start": str(tiny_checkpoint()),
        "steps": 6,
        "rollout": {"prompts": 4, "per_prompt": 4, "max_tokens": 12},
        "optimizer": {"learning_rate": 0.01},
        "algorithm": {"minibatches": 2, "reference_every": 4},
        "reward": {"control": "random"},  # an untrained model earns nothing else
        "sampler": {"engine": "torch"},
        "evaluation": {"problems": 4, "samples": 2},
        "checkpoint": {"every": 2},
    }
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(values))

    return lambda name, *more: ["zero", str(recipe), "--output", str(tmp_path / name), *more]


def lines(folder):
    path = folder / "zero" / "metrics.jsonl"
    rows = path.read_text().splitlines() if path.exists() else []
    return [reproducible(json.loads(r)) for r in rows if r[-1:] == "}"]


@pytest.mark.slow
def test_a_check_that_fails_ends_the_run_and_is_on_record(
    words, tmp_path, monkeypatch, stage, capsys
):
    def lost(*_):
        raise SyncError("version 3, not 4")

    monkeypatch.setattr(WeightSync, "__call__", lost)
    assert main(words("run")) == 1
    assert "SyncError: version 3, not 4" in capsys.readouterr().err
    told = stage(tmp_path / "run")
    assert (told["status"], told["outputs"]) == ("failed", {"failure": "version 3, not 4"})
    assert told["sampler"] == "torch"


def lost(path):
    path.unlink()


def torn(path):
    path.write_bytes(path.read_bytes()[:-5])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "damage", "code", "named"),
    [
        ("metrics.jsonl", lost, 2, "metrics.jsonl has no row of step 1;"),
        ("metrics.jsonl", torn, 130, "metrics.jsonl: the last line was incomplete"),
        ("evaluations.jsonl", lost, 2, "no file"),
        ("evaluations.jsonl", torn, 2, "lacks the evaluation of step 0"),
    ],
)
def test_a_hole_in_the_record_is_never_silent(
    words, tmp_path, stopping, capsys, name, damage, code, named
):
    with stopping():
        assert main(words("run")) == 130
        damage(tmp_path / "run" / "zero" / name)
        assert main(words("run", "--resume")) == code
    captured = capsys.readouterr()
    text = " ".join((captured.out + captured.err).split())
    assert named in text and (code == 130 or "Put a copy of the file back" in text)


@pytest.mark.slow
def test_a_run_killed_with_sigkill_resumes_bit_for_bit(words, tmp_path, capsys):
    assert main(words("whole")) == 0
    process = ForkedGroup(words("broken"), tmp_path)
    while len(lines(tmp_path / "broken")) < 3:
        assert process.code is None, "the run ended before it could be killed"
        time.sleep(0.005)
    process.signal(signal.SIGKILL)
    assert process.ended(60)[0] == -signal.SIGKILL
    assert main(words("broken")) == 2
    assert "already holds a run: --resume" in capsys.readouterr().err
    code, said = ForkedGroup(words("broken", "--resume"), tmp_path).ended(240)
    assert "zero 6/6" in said and code == 0
    assert lines(tmp_path / "broken") == lines(tmp_path / "whole")
    one, other = (
        (tmp_path / name / "zero/checkpoints/step_000006/model.safetensors").read_bytes()
        for name in ("broken", "whole")
    )
    assert one == other
    stage = json.loads((tmp_path / "broken" / "run.json").read_text())["stages"][-1]
    assert (stage["name"], stage["status"], stage["sampler"]) == ("zero", "done", "torch")
    assert {"pass@1", "format", "mean_length"} <= stage["before"].keys() & stage["after"].keys()
    assert Path(stage["outputs"]["checkpoint"], "config.json").is_file()
    capsys.readouterr()
    assert main(words("broken", "--resume")) == 0
    assert "zero 6/6" not in capsys.readouterr().out  # nothing is done again


@pytest.mark.slow
def test_ctrl_c_leaves_a_run_that_can_be_resumed(words, tmp_path):
    process = ForkedGroup(words("run"), tmp_path)
    while not lines(tmp_path / "run"):
        assert process.code is None, "the run ended before it could be stopped"
        time.sleep(0.005)
    process.signal(signal.SIGINT)
    code, said = process.ended(60)
    assert code == 130 and "--resume" in said
    assert main(words("run", "--resume")) == 0
    assert [row["step"] for row in lines(tmp_path / "run")] == list(range(1, 7))


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["all", "last"])
def test_a_finished_run_whose_checkpoint_is_gone_is_refused_and_stays_as_it_is(
    words, tmp_path, capsys, lost
):
    assert main(words("run")) == 0
    folder = tmp_path / "run" / "zero"
    kept = sorted((folder / "checkpoints").iterdir())
    for path in kept if lost == "all" else kept[-1:]:
        shutil.rmtree(path)
    files = [tmp_path / "run" / "run.json", folder / "metrics.jsonl", folder / "evaluations.jsonl"]
    before = [path.read_bytes() for path in files]
    assert main(words("run", "--resume")) == 2
    assert "zero has ended, but its checkpoint" in capsys.readouterr().err
    assert [path.read_bytes() for path in files] == before
