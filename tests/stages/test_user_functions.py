"""A loss, an advantage, a reward and a template in files of the user: in the loop, after a kill."""

import json
import time
from pathlib import Path

import pytest
import yaml

from tests.forked import forked_command
from veriloop.pipeline.rl.metrics import reproducible
from veriloop.stages.cli import main

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow
FUNCTIONS = '''
import torch

def surrogate(inputs):
    """The clipped surrogate of PPO, with the clip range of the options."""
    ratio_M = (inputs.logp_M - inputs.old_M).exp()
    width = inputs.options["width"]
    clipped_M = ratio_M.clamp(1 - width, 1 + width)
    return torch.minimum(ratio_M * inputs.advantages_M, clipped_M * inputs.advantages_M)

def centred(inputs):
    """Rewards minus the mean of their group."""
    advantages_N = torch.zeros_like(inputs.rewards_N)
    for group in inputs.groups_N.unique():
        member_N = inputs.groups_N == group
        advantages_N[member_N] = inputs.rewards_N[member_N] - inputs.rewards_N[member_N].mean()
    return advantages_N

def brevity(prompts, completions, **columns):
    return [-float(len(text)) for text in completions]

def wrong_shape(inputs):
    return inputs.logp_M.sum()

def constant(inputs):
    return torch.zeros_like(inputs.logp_M)
'''
RANDOM = {"control": "random"}
TEMPLATE = (
    "{{ bos_token }}A conversation between User and Assistant. "
    "User: {{ prompt }} Assistant: "
)  # fmt: skip


@pytest.fixture
def words(tiny_checkpoint, tmp_path):
    """Function: the words of a small run with these settings into `tmp_path`/name."""
    (tmp_path / "mine.py").write_text(FUNCTIONS)
    (tmp_path / "mine.jinja").write_text(TEMPLATE)

    def function(name, *more, template="r1_zero", reward=RANDOM, **algorithm):
        values = {
            "stage": "zero",
            "name": "test",
            "start": str(tiny_checkpoint()),
            "steps": 6,
            "rollout": {"prompts": 4, "per_prompt": 4, "max_tokens": 12, "template": template},
            "optimizer": {"learning_rate": 0.01},
            "algorithm": {"minibatches": 2, **algorithm},
            "reward": reward,
            "sampler": {"engine": "torch"},
            "evaluation": {"problems": 4, "samples": 1},
            "checkpoint": {"every": 2},
        }
        recipe = tmp_path / f"{name}.yaml"
        recipe.write_text(yaml.safe_dump(values))
        return ["zero", str(recipe), "--output", str(tmp_path / name), *more]

    return function


def metrics(folder):
    path = folder / "zero" / "metrics.jsonl"
    rows = path.read_text().split("\n") if path.exists() else []
    return [reproducible(json.loads(row)) for row in rows if row.endswith("}")]


def weights(folder):
    return (folder / "zero/checkpoints/step_000006/model.safetensors").read_bytes()


def test_a_users_loss_and_advantage_give_the_numbers_of_the_built_in_ones(words, tmp_path):
    mine = {
        "objective": f"{tmp_path}/mine.py:surrogate",
        "objective_options": {"width": 0.2},
        "advantage": f"{tmp_path}/mine.py:centred",
    }
    assert main(words("mine", **mine)) == 0
    assert main(words("ours", objective="clip", advantage_scale="none")) == 0
    for row, expected in zip(metrics(tmp_path / "mine"), metrics(tmp_path / "ours"), strict=True):
        for key in ("loss", "grad_norm", "reward"):
            assert row[key] == pytest.approx(expected[key], rel=1e-4, abs=1e-6), key


def test_a_run_with_them_is_killed_and_resumes_bit_for_bit(words, tmp_path):
    mine = {
        "objective": f"{tmp_path}/mine.py:surrogate",
        "objective_options": {"width": 0.1},
        "advantage": f"{tmp_path}/mine.py:centred",
        "template": f"{tmp_path}/mine.jinja",
        "reward": {"terms": {"brevity": {"function": f"{tmp_path}/mine.py:brevity"}}},
    }
    assert main(words("whole", **mine)) == 0
    process = forked_command(words("broken", **mine))
    while len(metrics(tmp_path / "broken")) < 3:
        assert process.exitcode is None, "the run ended before it could be killed"
        time.sleep(0.005)
    process.kill()
    process.join()
    assert main(words("broken", "--resume", **mine)) == 0
    assert metrics(tmp_path / "broken") == metrics(tmp_path / "whole")
    assert all(row["rewards/brevity/value"] < -1.0 for row in metrics(tmp_path / "whole"))
    assert weights(tmp_path / "broken") == weights(tmp_path / "whole")


def test_reward_terms_are_recorded_and_trained_on(words, tmp_path):
    terms = {
        "brevity": {"function": f"{tmp_path}/mine.py:brevity", "weight": 0.1},
        "repeats": {"verifier": "repetition", "weight": -0.5},
    }
    reward = {"accuracy": 0.0, "format": 0.0, "terms": terms}
    assert main(words("run", "--steps", "2", reward=reward)) == 0
    for row in metrics(tmp_path / "run"):
        assert row["rewards/brevity/value"] < -1.0 and row["grad_norm"] > 0.0
        expected = 0.1 * row["rewards/brevity/value"] - 0.5 * row["rewards/repeats/mean"]
        assert row["reward"] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wrong_shape", "must return one value per token, shape"),
        ("constant", "returns values without a gradient to logp_M"),
    ],
)
def test_a_loss_that_cannot_train_ends_the_run_by_name(words, tmp_path, capsys, name, message):
    assert main(words("run", objective=f"{tmp_path}/mine.py:{name}")) == 1
    error = capsys.readouterr().err
    assert f"mine.py:{name}" in error and message in error and "Traceback" not in error
