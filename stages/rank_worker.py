"""Every rank but the first of a stage under torchrun: follows rank 0, writes and prints nothing."""

import contextlib
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch

from veriloop.pipeline.cluster.rank_group import CLOSE, RankGroup, join, leave
from veriloop.pipeline.config.preference import RewardModelRecipe
from veriloop.pipeline.config.registry import Recipe
from veriloop.pipeline.config.rl import RLRecipe
from veriloop.pipeline.config.sections import Ranked
from veriloop.pipeline.model.policy import load_policy, load_tokenizer, saved_weights
from veriloop.pipeline.model.prepare import prepare
from veriloop.pipeline.model.scalar_head import load_classifier
from veriloop.pipeline.model.sharded import sharded_state
from veriloop.pipeline.rl.learner import PolicyLearner
from veriloop.pipeline.rl.ranked_learner import LearnerWorker
from veriloop.pipeline.rollouts.generate import RolloutGenerator
from veriloop.pipeline.runs import checkpoint
from veriloop.pipeline.training import rng
from veriloop.pipeline.training.optimizer import Optimizer
from veriloop.pipeline.training.rank_worker import RankWorker
from veriloop.pipeline.training.stop import NUMBERS


def run_worker(recipe: Recipe) -> int:
    """Train along with rank 0 until it closes; returns the exit code.

    Signals are for rank 0, which finishes and saves the step and then closes.
    """
    for number in NUMBERS:
        signal.signal(number, signal.SIG_IGN)
    assert isinstance(recipe, Ranked), "other recipes have one rank"
    group = join(recipe.trainer.device, recipe.cluster.deadlines.rank_s)
    try:
        with open(os.devnull, "w") as silent, contextlib.redirect_stdout(silent):
            _run(recipe, group)
    except RuntimeError as failure:
        # Whatever rank 0 ended with, it has reported itself.
        print(f"veriloop: rank {group.rank} ends: {failure}", file=sys.stderr)
        return 1
    finally:
        leave()
    return 0


def _run(recipe: Any, group: RankGroup) -> None:
    message = group.receive()
    if message[0] == CLOSE:
        return
    _, start, saved = message
    torch.set_num_threads(recipe.trainer.threads or torch.get_num_threads())
    rng.seed(recipe.seed)
    worker = _learner if isinstance(recipe, RLRecipe) else _tuner
    worker(recipe, group, start, None if saved is None else Path(saved)).run()


def _learner(recipe: RLRecipe, group: RankGroup, start: str, saved: Path | None) -> RankWorker:
    policy = prepare(load_policy(start), recipe.trainer)
    rollout = recipe.rollout
    generator = RolloutGenerator(
        load_tokenizer(start), policy.generation_config, rollout.template, rollout.system
    )
    learner = PolicyLearner(recipe, policy, generator, group)
    if saved is not None:
        policy.load_state_dict(sharded_state(policy, saved_weights(policy, saved)))
        learner.load(checkpoint.load_state(saved)["learning"])
    return LearnerWorker(group, policy, learner)


def _tuner(recipe: Any, group: RankGroup, start: str, saved: Path | None) -> RankWorker:
    """Of a stage that trains on examples, with one model."""
    classifier = partial(load_classifier, tokenizer=load_tokenizer(start))
    rewards = isinstance(recipe, RewardModelRecipe)
    model = prepare(classifier(Path(start)) if rewards else load_policy(start), recipe.trainer)
    group.shard(model)
    optimizer = Optimizer(model, recipe.optimizer)
    if saved is not None:
        weights = classifier(saved).state_dict() if rewards else saved_weights(model, saved)
        model.load_state_dict(sharded_state(model, weights))
        optimizer.load(checkpoint.load_state(saved)["optimizer"])
    return RankWorker(group, model, optimizer)
