"""Repeat a run's updates on its recorded rollouts, with the same or a changed recipe.

Nothing is sampled: the responses come from the recorded run's policies. With a changed recipe only
the first turn is on-policy; the off-policy metrics measure the drift at every later token.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from veriloop.pipeline.config.rl import RLRecipe
from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.model.policy import (
    load_policy,
    load_tokenizer,
    policy_weights,
    saved_weights,
)
from veriloop.pipeline.model.prepare import prepare
from veriloop.pipeline.rl import metrics
from veriloop.pipeline.rl.learner import PolicyLearner, turn_random
from veriloop.pipeline.rollouts.generate import RolloutGenerator
from veriloop.pipeline.rollouts.grade import StepScores
from veriloop.pipeline.rollouts.step_scores import with_step_scores
from veriloop.pipeline.runs import checkpoint
from veriloop.pipeline.runs.checkpoint_files import by_step
from veriloop.pipeline.runs.rollout_file import drift, read_graded
from veriloop.pipeline.training import rng
from veriloop.pipeline.types import Graded

Row = Mapping[str, Any]
Numbers = dict[str, float]

OFF_POLICY = ("off_policy/log_ratio", "off_policy/ratio_mean", "off_policy/ratio_max")


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    step: int
    graded: Sequence[Graded]
    rows: Sequence[Row]
    recorded: Numbers  # its row of metrics.jsonl, with the off-policy metrics

    def taught(self, prompts: int) -> bool:
        """Whether the run learned from the turn: not where dynamic sampling found none of the
        `prompts` groups to learn from. Earlier versions did, and have a loss on record."""
        return "loss" in self.recorded or self.recorded.get("groups_missing", 0.0) < prompts


def first_state(stage: Path, step: int) -> tuple[Path, dict[str, Any]] | None:
    """Checkpoint folder of `step` and its training state; None for step 0, the run's start.

    Raises RecipeError, listing the steps that have a checkpoint.
    """
    if step == 0:
        return None
    path = stage / "checkpoints" / f"step_{step:06d}"
    if not (path / checkpoint.STATE).is_file():
        available = [0, *sorted(saved for saved, _ in by_step(stage / "checkpoints"))]
        raise RecipeError(
            f"--from-step {step}: {stage} has no checkpoint of this step; available steps: "
            f"{', '.join(map(str, available))} (0 is the run's start; checkpoint.every and "
            "checkpoint.keep decide which steps have one)"
        )
    return path, checkpoint.load_state(path)


def read_turn(stage: Path, step: int, metrics_of: Mapping[int, Row]) -> Turn:
    """The record of one step. Raises RecipeError if a part of it is missing."""
    path = stage / "rollouts" / f"step_{step:06d}.parquet"
    if not path.is_file():
        raise RecipeError(f"step {step} of {stage} cannot be replayed: {path} is missing")
    if step not in metrics_of:
        raise RecipeError(f"step {step} of {stage} cannot be replayed: its metrics are missing")
    graded, rows = read_graded(path)
    trained = [row for row in rows if row.get("trainer_logp") is not None]
    drift_A = drift([row["trainer_logp"] for row in trained], [row["logp"] for row in trained])
    numbers = {name: value for name, value in metrics_of[step].items() if name != "step"}
    return Turn(step=step, graded=graded, rows=rows, recorded=numbers | off_policy(drift_A))


def off_policy(drift_A: Sequence[float]) -> Numbers:
    """Off-policy metrics from the log-ratios policy / sampler of the trained tokens, [A]."""
    if not drift_A:
        return {}
    ratios = [math.exp(min(log_ratio, 700.0)) for log_ratio in drift_A]  # exp overflows at 710
    values = fmean(map(abs, drift_A)), fmean(ratios), max(ratios)
    return dict(zip(OFF_POLICY, values, strict=True))


class Replay:
    """Trains on recorded turns in order, with `recipe`; `recorded` is the run's own recipe."""

    def __init__(
        self,
        recipe: RLRecipe,
        recorded: RLRecipe,
        start: Path,
        first: tuple[Path, dict[str, Any]] | None,
        step_scores: StepScores | None,
    ) -> None:
        """`step_scores` are asked where the recorded run has none and `recipe` needs them."""
        self.recipe, self.same = recipe, recipe == recorded
        self.same_adapters = recipe.trainer.lora == recorded.trainer.lora
        torch.manual_seed(recipe.seed)
        self.policy = prepare(load_policy(start), recipe.trainer)
        self.generator = RolloutGenerator(
            load_tokenizer(start),
            self.policy.generation_config,
            recipe.rollout.template,
            recipe.rollout.system,
        )
        self.learner = PolicyLearner(recipe, self.policy, self.generator)
        self.step_scores = step_scores
        self.steps_recorded = recorded.algorithm.advantage == "process"
        if first is not None:
            checkpoint_folder, state = first
            _check_state(recipe, recorded, state["learning"])
            self.policy.load_state_dict(saved_weights(self.policy, checkpoint_folder))
            self.learner.load(state["learning"])
            rng.restore(state["rng"])
            if recipe.algorithm.old_kl_coefficient != recorded.algorithm.old_kl_coefficient:
                self.learner.old_kl_coefficient = recipe.algorithm.old_kl_coefficient
        self.turns = 0

    def __call__(self, turn: Turn) -> Numbers:
        """Train on one turn, if the run did; returns the metrics of its updates."""
        if not turn.taught(self.recipe.rollout.prompts):
            return self.learner.metrics()
        shuffle = turn_random("minibatches", self.recipe.seed, turn.step - 1)
        updates, _ = self.learner.learn(turn.step - 1, self._with_steps(turn), shuffle)
        self.learner.renew_reference()
        if not self.turns and not self.same:
            # The policy now differs from the one that sampled, so drift is no error.
            open_ended = self.recipe.sampler.model_copy(update={"tolerance": math.inf})
            self.learner.recipe = self.recipe.model_copy(update={"sampler": open_ended})
        self.turns += 1
        return metrics.of_updates(updates) | self.learner.metrics() | off_policy(self._drift(turn))

    def _with_steps(self, turn: Turn) -> Sequence[Graded]:
        """The rollouts with the recorded scores of their steps; scored now if the run did not."""
        recorded = self.steps_recorded and "step_ends" in turn.rows[0]
        if self.step_scores is None or recorded:
            return turn.graded
        return with_step_scores(turn.graded, self.step_scores)

    def weight_difference(self, path: Path) -> float:
        """Largest absolute difference to a checkpoint's weights; 0.0 if they are bit-identical.

        Of adapters that are not those of the run, what they amount to is compared.
        """
        if self.same_adapters:
            saved, current = saved_weights(self.policy, path), self.policy.state_dict()
        else:
            saved, current = load_policy(path).state_dict(), policy_weights(self.policy)
        pairs = [(current[name].to(weight), weight) for name, weight in saved.items()]
        if all(torch.equal(*pair) for pair in pairs):
            return 0.0
        return max((weight - other).abs().max().item() for weight, other in pairs)

    def check(self, turn: Turn) -> None:
        """Raise RecipeError unless the current policy sampled the rollouts of a turn."""
        versions = {graded.rollout.policy_version for graded in turn.graded}
        done = self.learner.done
        # With rollout.ahead, rollouts are sampled while earlier steps are still trained on.
        ahead = self.recipe.rollout.ahead and max(versions) <= done
        if versions != {done} and not ahead:
            raise RecipeError(
                f"the rollouts of step {turn.step} were sampled after {sorted(versions)} optimizer "
                f"steps, but the checkpoint has taken {done}: it did not sample them"
            )

    def _drift(self, turn: Turn) -> list[float]:
        scored = self.learner.token_trace()
        sampled = [turn.graded[index].rollout.logp for index in scored]
        return drift([tokens.logp_T.tolist() for tokens in scored.values()], sampled)


def _check_state(recipe: RLRecipe, recorded: RLRecipe, state: Row) -> None:
    """Raise RecipeError if the recipe needs training state that the checkpoint lacks."""
    new, old = recipe.algorithm, recorded.algorithm
    muon = [bool(r.optimizer.muon_learning_rate) for r in (recipe, recorded)]
    missing = {
        "algorithm.kl_coefficient": bool(new.kl_coefficient) and state["reference"] is None,
        "algorithm.critic": new.critic not in ("none", old.critic),
        "optimizer.muon_learning_rate": muon[0] != muon[1],
        "trainer.lora": recipe.trainer.lora != recorded.trainer.lora,
    }
    for setting, is_missing in missing.items():
        if is_missing:
            raise RecipeError(
                f"{setting}: this setting carries state from step to step that the checkpoint "
                "does not hold; use --from-step 0, where no state is needed"
            )


def first_difference(recorded: Row, replayed: Row) -> str | None:
    """Name of the first metric that differs; None if all recorded ones are bit-identical."""
    shared = (name for name in replayed if name in recorded)
    return next((name for name in shared if recorded[name] != replayed[name]), None)
