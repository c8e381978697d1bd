"""Questions put to the current policy: its answers judged, paired, and measured."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from data.problem import Problem
from pipeline.evaluate import evaluate
from pipeline.grade import Judges
from pipeline.preference.examples import Example
from pipeline.preference.labels import VERIFIERS, Labeller, pairs_of, unpaired
from pipeline.preference_config import PreferenceRecipe
from pipeline.records import Graded
from pipeline.sampling.sampler import Sampler, Sampling
from pipeline.sampling.sync import WeightSync
from pipeline.scribe import Scribe

PROBES = 8  # prompts of each sync proof


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """What a run that samples works with; opened and closed by the stage."""

    problem: Callable[[int], Problem]  # number n of an endless list
    held_out: Sequence[Problem]
    scribe: Scribe
    sampler: Sampler
    pool: Judges
    label: Labeller


class Questions:
    """Samples from `policy` what a round is made of."""

    def __init__(self, recipe: PreferenceRecipe, policy: Any, asking: Asking) -> None:
        self.recipe, self.asking = recipe, asking
        self._sync = WeightSync(
            policy,
            asking.sampler,
            temperature=recipe.rollout.temperature,
            tolerance=recipe.sampler.tolerance,
        )

    def sync(self, done: int) -> None:
        """Give the sampler the policy's weights, and prove it. `done`: optimizer steps so far."""
        probes = [self.asking.scribe.prompt(self.asking.problem(i)) for i in range(PROBES)]
        self._sync(done, probes)

    def round(self, number: int) -> tuple[list[Example], list[Graded], dict[str, float]]:
        """The pairs of a round (KTO: their answers), all that was sampled, and its numbers."""
        rollout = self.recipe.rollout
        first = number * rollout.prompts
        asked = [
            (f"{number + 1}/{i}", self.asking.problem(first + i)) for i in range(rollout.prompts)
        ]
        rollouts = self.asking.scribe.rollouts(self.asking.sampler, asked, self._sampling(number))
        self._rest()
        graded = self.asking.label(rollouts)
        pairs = pairs_of(graded, self.recipe.label)
        return self._examples(pairs), graded, _numbers(graded, pairs)

    def _examples(self, pairs: list[Example]) -> list[Example]:
        if self.recipe.loss.name != "kto":
            return pairs
        prompts = {pair.answers[0].prompt for pair in pairs}
        return unpaired(pairs) if len(prompts) > 1 else []  # no mismatched answer to one prompt

    def evaluate(self) -> dict[str, Any]:
        """Accuracy on the held-out problems, by rule, as `pipeline.evaluate` measures it."""
        config = self.recipe.evaluation
        result = evaluate(
            self.asking.sampler,
            self.asking.scribe,
            self.asking.held_out,
            VERIFIERS,
            self.asking.pool,
            replace(
                self._sampling(0),
                per_prompt=config.samples,
                temperature=config.temperature,
                seed=1,
            ),
        )
        self._rest()
        return result.flat()

    def _rest(self) -> None:
        """Whoever asks next syncs first, which wakes the sampler."""
        if self.recipe.sampler.sleep:
            self.asking.sampler.sleep()

    def _sampling(self, number: int) -> Sampling:
        rollout = self.recipe.rollout
        return Sampling(
            per_prompt=rollout.per_prompt,
            temperature=rollout.temperature,
            max_tokens=rollout.max_tokens,
            stop=rollout.stop,
            seed=self.recipe.seed * 100_000 + number + 1,
        )


def _numbers(graded: Sequence[Graded], pairs: Sequence[Example]) -> dict[str, float]:
    rewards = [one.reward for one in graded if one.reward is not None]
    lengths = [len(one.rollout.response_ids) for one in graded]
    return {
        "reward": fmean(rewards) if rewards else 0.0,
        "completions/mean_length": fmean(lengths),
        "unscored": float(len(graded) - len(rewards)),
        "pairs": float(len(pairs)),
    }
