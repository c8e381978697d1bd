"""The updates of a run made again on its recorded rollouts, as they were or by another loss.

Nothing is sampled: the answers are those of the recorded run's policies and do not react to this
one. Only the first turn is on-policy; how far the others are off is measured at every token.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from pipeline import checkpoint, metrics, rng
from pipeline.checkpoint_files import by_step
from pipeline.compute import prepare
from pipeline.failures import RecipeError
from pipeline.learning import Learning
from pipeline.policy import load_policy, load_tokenizer, saved_weights
from pipeline.recorded import drift, read_graded
from pipeline.records import Graded
from pipeline.rl_config import RLRecipe
from pipeline.scribe import Scribe
from pipeline.task import StepScores

Row = Mapping[str, Any]
Numbers = dict[str, float]

OFF_POLICY = ("off_policy/log_ratio", "off_policy/ratio_mean", "off_policy/ratio_max")


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One recorded step."""

    step: int
    graded: Sequence[Graded]
    rows: Sequence[Row]
    recorded: Numbers  # its line of metrics, with how far its updates were from the sampler


def first_state(stage: Path, step: int) -> tuple[Path, dict[str, Any]] | None:
    """The checkpoint that `step` left and its state; None for step 0, which starts from scratch.

    Raises RecipeError naming the steps that have one.
    """
    if step == 0:
        return None
    path = stage / "checkpoints" / f"step_{step:06d}"
    if not (path / checkpoint.STATE).is_file():
        there = sorted(one for one, _ in by_step(stage / "checkpoints"))
        raise RecipeError(
            f"--from-step {step}: {stage} keeps no checkpoint of it; there are those of steps "
            f"{', '.join(map(str, [0, *there]))} (0: where it started; checkpoint.every and "
            "checkpoint.keep decide which are kept)"
        )
    return path, checkpoint.load_state(path)


def read_turn(stage: Path, step: int, metrics_of: Mapping[int, Row]) -> Turn:
    """What was recorded of a step. Raises RecipeError for what is missing."""
    path = stage / "rollouts" / f"step_{step:06d}.parquet"
    for found, what in ((path.is_file(), str(path)), (step in metrics_of, "its metrics")):
        if not found:
            raise RecipeError(f"step {step} of {stage} cannot be replayed: {what} is missing")
    graded, rows = read_graded(path)
    trained = [row for row in rows if row.get("trainer_logp") is not None]
    seen = drift([row["trainer_logp"] for row in trained], [row["logp"] for row in trained])
    numbers = {name: value for name, value in metrics_of[step].items() if name != "step"}
    return Turn(step=step, graded=graded, rows=rows, recorded=numbers | off_policy(seen))


def off_policy(drift_A: Sequence[float]) -> Numbers:
    """Of the tokens that were learned from: how far the policy is from the one that sampled."""
    if not drift_A:
        return {}
    ratios = [math.exp(min(one, 700.0)) for one in drift_A]
    sizes = fmean(abs(one) for one in drift_A), fmean(ratios), max(ratios)
    return dict(zip(OFF_POLICY, sizes, strict=True))


class Replay:
    """Learns from recorded turns, one after the other, as `recipe` says and `recorded` did."""

    def __init__(
        self,
        recipe: RLRecipe,
        recorded: RLRecipe,
        start: Path,
        found: tuple[Path, dict[str, Any]] | None,
        step_scores: StepScores | None,
    ) -> None:
        self.recipe, self.same = recipe, recipe == recorded
        torch.manual_seed(recipe.seed)
        self.policy = prepare(load_policy(start), recipe.trainer)
        asked, spelling = recipe.rollout, load_tokenizer(start)
        self.scribe = Scribe(spelling, self.policy.generation_config, asked.template, asked.system)
        self.learning = Learning(recipe, self.policy, self.scribe, step_scores)
        if found is not None:
            _refuse_what_it_lacks(recipe, recorded, found[1]["learning"])
            self.policy.load_state_dict(saved_weights(self.policy, found[0]))
            self.learning.load(found[1]["learning"])
            rng.restore(found[1]["rng"])
            if recipe.algorithm.old_kl_coefficient != recorded.algorithm.old_kl_coefficient:
                self.learning.old_kl_coefficient = recipe.algorithm.old_kl_coefficient
        self.turns = 0

    def __call__(self, turn: Turn) -> Numbers:
        """The numbers of the turn's updates."""
        shuffle = rng.of_turn("minibatches", self.recipe.seed, turn.step - 1)
        updates, _ = self.learning.learn(turn.step - 1, turn.graded, shuffle)
        self.learning.renew_reference()
        if not self.turns and not self.same:
            self._expect_drift()
        self.turns += 1
        return metrics.of_updates(updates) | self.learning.numbers() | off_policy(self._drift(turn))

    def apart(self, path: Path) -> float:
        """The largest difference of a weight to those of a checkpoint; 0.0: equal bit for bit."""
        theirs, mine = saved_weights(self.policy, path), self.policy.state_dict()
        if all(torch.equal(one, theirs[name]) for name, one in mine.items()):
            return 0.0
        return max((one - theirs[name]).abs().max().item() for name, one in mine.items())

    def check(self, turn: Turn) -> None:
        """Raise RecipeError unless the policy, as it is now, sampled the rollouts of a turn."""
        versions, done = {one.rollout.policy_version for one in turn.graded}, self.learning.done
        ahead = self.recipe.rollout.ahead and max(versions) <= done  # sampled while others learned
        if versions != {done} and not ahead:
            raise RecipeError(
                f"the rollouts of step {turn.step} were sampled after {sorted(versions)} optimizer "
                f"steps, and the checkpoint has taken {done}: not its own"
            )

    def _expect_drift(self) -> None:
        """From here on the policy is not the one that sampled: no reason to stop."""
        open_ended = self.recipe.sampler.model_copy(update={"tolerance": math.inf})
        self.learning.recipe = self.recipe.model_copy(update={"sampler": open_ended})

    def _drift(self, turn: Turn) -> list[float]:
        seen = self.learning.seen()
        sampled = [turn.graded[place].rollout.logp for place in seen]
        return drift([one.logp_T.tolist() for one in seen.values()], sampled)


def _refuse_what_it_lacks(recipe: RLRecipe, recorded: RLRecipe, state: Row) -> None:
    """Raise RecipeError for a part of the update whose past the checkpoint does not hold."""
    new, old = recipe.algorithm, recorded.algorithm
    muon = [bool(one.optimizer.muon_learning_rate) for one in (recipe, recorded)]
    lacking = {
        "algorithm.kl_coefficient": bool(new.kl_coefficient) and state["reference"] is None,
        "algorithm.critic": new.critic not in ("none", old.critic),
        "optimizer.muon_learning_rate": muon[0] != muon[1],
        "trainer.lora": recipe.trainer.lora != recorded.trainer.lora,
    }
    for setting, missing in lacking.items():
        if missing:
            raise RecipeError(
                f"{setting}: the update keeps something from step to step that this checkpoint "
                "does not hold; --from-step 0 starts where nothing has a past"
            )


def first_difference(recorded: Row, replayed: Row) -> str | None:
    """The first number of an update that is not what was recorded; None: all are, bit for bit."""
    both = (name for name in replayed if name in recorded)
    return next((name for name in both if recorded[name] != replayed[name]), None)
