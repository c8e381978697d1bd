"""Every rank of a command but the first: follows rank 0, writes and prints nothing."""

import contextlib
import gc
import os
import signal
import sys
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch

from veriloop.pipeline.cluster.rank_group import PATIENCE, RankGroup, join, leave
from veriloop.pipeline.config.cluster import RanksConfig
from veriloop.pipeline.config.distill import DistillRecipe
from veriloop.pipeline.config.preference import PreferenceRecipe, RewardModelRecipe
from veriloop.pipeline.config.rl import RLRecipe
from veriloop.pipeline.model.device import choose_device, set_expandable_segments
from veriloop.pipeline.model.loading import BadCheckpointError
from veriloop.pipeline.model.policy import load_policy, load_tokenizer, saved_weights
from veriloop.pipeline.model.prepare import prepare
from veriloop.pipeline.model.reference import frozen_copy
from veriloop.pipeline.model.scalar_head import load_classifier, saved_classifier
from veriloop.pipeline.model.sharded import CLOSE, LEAVE, OPEN, sharded_state
from veriloop.pipeline.rl.learner import PolicyLearner
from veriloop.pipeline.rl.ranked_learner import LearnerWorker
from veriloop.pipeline.rollouts.generate import RolloutGenerator
from veriloop.pipeline.runs import checkpoint
from veriloop.pipeline.training import rng
from veriloop.pipeline.training.optimizer import Optimizer
from veriloop.pipeline.training.rank_worker import RankWorker
from veriloop.pipeline.training.stop import NUMBERS, stop_with_launcher
from veriloop.stages.distill import build_distiller
from veriloop.stages.stage_run import CORES

SETTLED_S = 30.0  # for rank 0 to find and report what this rank found in a checkpoint


def run_worker(device: str, cluster: RanksConfig) -> int:
    """Train along with rank 0, stage by stage, until it leaves; returns the exit code.

    Once the ranks have met, signals are for rank 0, which finishes and saves the step and then
    closes the stage.
    """
    for number in NUMBERS:
        signal.signal(number, signal.SIG_DFL)
    met = stop_with_launcher(int(os.environ["RANK"]))
    group = join(device, cluster.deadlines.rank_s)
    for number in NUMBERS:
        signal.signal(number, signal.SIG_IGN)
    met()
    try:
        with open(os.devnull, "w") as silent, contextlib.redirect_stdout(silent):
            _follow(group, timedelta(seconds=min(SETTLED_S, cluster.deadlines.rank_s / 2)))
    except RuntimeError as failure:
        # Whatever rank 0 ended with, it has reported itself.
        print(f"veriloop: rank {group.rank} ends: {failure}", file=sys.stderr)
        return 1
    finally:
        leave()
    return 0


def _follow(group: RankGroup, settled: timedelta) -> None:
    """Carry out the stages of rank 0 until it leaves.

    Raises RuntimeError if rank 0 has ended, and for a checkpoint that this rank alone cannot read:
    the others wait for it in a collective.
    """
    bad = ""  # what this rank found
    while True:
        try:
            message = group.receive(settled if bad else PATIENCE)
        except RuntimeError as failure:
            raise (RuntimeError(bad) if bad else failure) from failure
        if message[0] == LEAVE:
            return
        if message[0] == OPEN:
            bad = ""
            try:
                _run(group, *message[1:])
            except BadCheckpointError as failure:
                bad = str(failure)
            gc.collect()  # models in shards are part of cycles
        elif bad and message[0] != CLOSE:  # rank 0 also closes stages that it finds done
            raise RuntimeError(bad)


def _run(group: RankGroup, recipe: Any, start: str, saved: str | None) -> None:
    torch.set_num_threads(recipe.trainer.threads or CORES)
    if choose_device(recipe.trainer.device).type == "cuda":
        set_expandable_segments(True)  # no engine sleeps in this process
    rng.seed(recipe.seed)
    samples = isinstance(recipe, RLRecipe) or getattr(recipe, "method", "") == "on_policy"
    worker = _learner if samples else _tuner
    worker(recipe, group, Path(start), None if saved is None else Path(saved)).run()


def _learner(
    recipe: RLRecipe | DistillRecipe, group: RankGroup, start: Path, saved: Path | None
) -> RankWorker:
    """Of a stage that trains on rollouts."""
    policy = prepare(load_policy(start, empty=True), recipe.trainer)
    rollout = recipe.rollout
    generator = RolloutGenerator(
        load_tokenizer(start), policy.generation_config, rollout.template, rollout.system
    )
    if isinstance(recipe, DistillRecipe):
        learner = build_distiller(recipe, policy, generator, start)
    else:
        learner = PolicyLearner(recipe, policy, generator, group)
    if saved is not None:
        policy.load_state_dict(sharded_state(policy, saved_weights(policy, saved)))
        learner.load(checkpoint.load_state(saved, mapped=True, verified=True)["learning"])
    return LearnerWorker(group, policy, learner, learner.context.optimizer)


def _tuner(recipe: Any, group: RankGroup, start: Path, saved: Path | None) -> RankWorker:
    """Of a stage that trains on examples, with one model."""
    tokenizer, rewards = load_tokenizer(start), isinstance(recipe, RewardModelRecipe)
    load = partial(load_classifier, tokenizer=tokenizer) if rewards else load_policy
    model = prepare(load(start, empty=True), recipe.trainer)
    # Kept until the stage ends: rank 0 has it scored.
    frozen = isinstance(recipe, PreferenceRecipe) and recipe.keeps_start
    reference = frozen_copy(model) if frozen else None
    for each in filter(None, (reference, model)):
        group.shard(each)
    optimizer = Optimizer(model, recipe.optimizer)
    if saved is not None:
        if rewards:
            weights = saved_classifier(model, saved, tokenizer)
        else:
            weights = saved_weights(model, saved)
        model.load_state_dict(sharded_state(model, weights))
        optimizer.load(checkpoint.load_state(saved, mapped=True, verified=True)["optimizer"])
    return RankWorker(group, model, optimizer, reference)
