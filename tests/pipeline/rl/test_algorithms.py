"""Every preset through the whole loop: it runs, it moves the policy, it resumes bit for bit."""

from contextlib import ExitStack
from dataclasses import replace

import pytest
import torch

from veriloop.pipeline.config.presets import PRESETS
from veriloop.pipeline.config.rl import ZeroRecipe
from veriloop.pipeline.rl.metrics import reproducible
from veriloop.pipeline.runs import checkpoint
from veriloop.pipeline.runs.record import read_metrics
from veriloop.stages import rl, zero
from veriloop.verifiers.verdict import Verdict

pytestmark = pytest.mark.usefixtures("one_pool")


def recipe(**algorithm):
    return ZeroRecipe.model_validate(
        {
            "name": "test",
            "start": "given",
            "steps": 2,
            "rollout": {"prompts": 2, "per_prompt": 4, "max_tokens": 10},
            "algorithm": algorithm,
            "optimizer": {"learning_rate": 1e-2},
            "sampler": {"engine": "torch"},
            "evaluation": {"problems": 2, "samples": 1},
            "checkpoint": {"every": 1, "keep": 9},
            "trainer": {"row": 64},
            "tensorboard": False,
        }
    )


def low_ids(rollout, verdicts):
    """A reward that an untrained model can learn: the share of ids under 150."""
    del verdicts
    return sum(i < 150 for i in rollout.response_ids) / len(rollout.response_ids)


class ByText:
    """Judges by the letters of a response: an untrained model is never right, and dynamic sampling
    would find no group of right and wrong answers."""

    def judge_all(self, tasks):
        return [Verdict(score=float(sum(map(ord, response)) % 2)) for _, response in tasks]


@pytest.fixture
def train(tiny_checkpoint, tmp_path):
    """Run a loop in `tmp_path`/name, to `until` or its end. Returns the loop."""

    def run(name, told, *, resume=False, until=None):
        folder, start = tmp_path / name, tiny_checkpoint()
        found = checkpoint.load_latest(folder) if resume else None
        with ExitStack() as stack:
            loop = rl.open_loop(stack, told, zero.task(told), folder, start, found)
            loop.collector.task = replace(loop.task, reward=low_ids)
            loop.collector.pool = ByText()
            if until is None:
                loop.run(lambda: 0.0)
            else:
                loop.evaluations.write_text('{"step": 0}\n')  # as `run` begins
                loop.sync(loop.learner.done, loop.probes(loop.step))
                while loop.step < until:
                    loop.turn()
                loop.trainer.save(0.0)
        return loop

    return run


def numbers(loop):
    rows = read_metrics(loop.deps.directory / "metrics.jsonl")
    return [reproducible(row) for row in rows]


def bits(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.slow
def test_several_epochs_over_a_rollout_go_on_after_a_stop_bit_for_bit(train):
    told = recipe(preset="ppo", minibatches=2, epochs=2)
    whole = train("whole", told)
    train("cut", told, until=1)
    resumed = train("cut", told, resume=True)
    assert torch.equal(bits(whole.policy), bits(resumed.policy))
    assert numbers(whole)[1:] == numbers(resumed)[1:]
    assert whole.learner.done == 8


@pytest.mark.slow
def test_the_natural_gradient_moves_the_policy_and_continues_after_a_stop_bit_for_bit(train):
    told = recipe(preset="trpo")
    whole = train("whole", told)
    train("cut", told, until=1)
    resumed = train("cut", told, resume=True)
    assert torch.equal(bits(whole.policy), bits(resumed.policy))
    assert numbers(whole)[1:] == numbers(resumed)[1:]
    assert all(row["old_kl"] + row["trust_region/kept"] > 0 for row in numbers(whole))


@pytest.mark.slow
@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_moves_the_policy_and_continues_after_a_stop_bit_for_bit(train, preset):
    text = {"ptx_tokens": 64} if preset == "ppo_ptx" else {}
    told = recipe(preset=preset, truncated="train", **text)  # untrained, it never ends
    whole = train("whole", told)
    train("cut", told, until=1)
    resumed = train("cut", told, resume=True)
    assert torch.equal(bits(whole.policy), bits(resumed.policy))
    assert numbers(whole)[1:] == numbers(resumed)[1:]
    rows = numbers(whole)
    assert all(row["sync/moved"] > 0 for row in rows if "sync/moved" in row)
    critic = whole.learner.critic
    assert (critic is not None) is preset.startswith(("ppo", "line", "trpo"))
    if critic is not None:
        assert torch.equal(critic.head.weight, resumed.learner.critic.head.weight)
        assert critic.head.weight.abs().sum() > 0 and rows[0]["value_loss"] > 0
