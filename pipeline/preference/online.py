"""Sampling from the current policy: rollouts graded and paired, and held-out evaluation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from veriloop.data.problem import Problem
from veriloop.pipeline.config.preference import PreferenceRecipe
from veriloop.pipeline.evaluation.evaluate import (
    MEASURED,
    EvaluationStore,
    Keep,
    evaluate,
    passes,
)
from veriloop.pipeline.model.sharded import SINGLE, Ranks
from veriloop.pipeline.preference.examples import Example, unpair
from veriloop.pipeline.preference.labelling import Labeller, pairs_of
from veriloop.pipeline.rollouts.generate import RolloutGenerator
from veriloop.pipeline.rollouts.grade import Judges
from veriloop.pipeline.runs.console import activity
from veriloop.pipeline.sampling.sampler import Sampler, Sampling
from veriloop.pipeline.sampling.sync import PROBED, WeightSync
from veriloop.pipeline.types import Graded

PROBES = 8  # prompts that verify each weight sync


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineDeps:
    """Dependencies of a run that samples; opened and closed by the stage."""

    problem: Callable[[int], Problem]  # by number, endless
    held_out: Sequence[Problem]
    generator: RolloutGenerator
    sampler: Sampler
    pool: Judges
    label: Labeller


class OnlineSampler:
    """Samples rounds from `policy` and evaluates it."""

    def __init__(
        self, recipe: PreferenceRecipe, policy: Any, deps: OnlineDeps, ranks: Ranks = SINGLE
    ) -> None:
        self.recipe, self.deps = recipe, deps
        self._sync = WeightSync(
            policy,
            deps.sampler,
            temperature=recipe.rollout.temperature,
            tolerance=recipe.sampler.tolerance,
            max_tokens=min(PROBED, recipe.rollout.max_tokens),
            command=ranks.command,
        )

    def sync(self, done: int) -> tuple[str, ...]:
        """Sync the policy's weights, after `done` optimizer steps, and verify the sync; returns
        warnings."""
        probes = [self.deps.generator.prompt(self.deps.problem(i)) for i in range(PROBES)]
        return self._sync(done, probes).warnings

    def round(self, number: int) -> tuple[list[Example], list[Graded], dict[str, float]]:
        """Sample round `number`: its examples, all graded rollouts, and metrics."""
        rollout = self.recipe.rollout
        first = number * rollout.prompts
        prompts = [
            (f"{number + 1}/{i}", self.deps.problem(first + i)) for i in range(rollout.prompts)
        ]
        sampling = self._sampling(self.recipe.seed * 100_000 + number + 1)
        rollouts = self.deps.generator.rollouts(self.deps.sampler, prompts, sampling)
        self._rest()
        graded = self.deps.label(rollouts)
        pairs = pairs_of(graded, self.recipe.label)
        return self._examples(pairs), graded, _metrics(graded, pairs)

    def _examples(self, pairs: list[Example]) -> list[Example]:
        if self.recipe.loss.name != "kto":
            return pairs
        prompts = {pair.answers[0].prompt for pair in pairs}
        # a single prompt has no mismatched answers
        return unpair(pairs) if len(prompts) > 1 else []

    def evaluate(self, store: EvaluationStore | None, keep: Keep) -> dict[str, Any]:
        """Metrics of `evaluation.evaluate` on the held-out problems."""
        config = self.recipe.evaluation
        with activity("evaluating", passes(self.deps.held_out)) as part:
            result = evaluate(
                self.deps.sampler,
                self.deps.generator,
                self.deps.held_out,
                MEASURED,
                self.deps.pool,
                replace(
                    self._sampling(1), per_prompt=config.samples, temperature=config.temperature
                ),
                error_share=self.recipe.verifier_error_share,
                keep=keep,
                on_problem=part.advance,
                store=store,
            )
        self._rest()
        return result.flat()

    def _rest(self) -> None:
        """Put the sampler to sleep if the recipe says so; the next sync wakes it."""
        if self.recipe.sampler.sleep:
            self.deps.sampler.sleep()

    def _sampling(self, seed: int) -> Sampling:
        rollout = self.recipe.rollout
        return Sampling(
            per_prompt=rollout.per_prompt,
            temperature=rollout.temperature,
            max_tokens=rollout.max_tokens,
            stop=rollout.stop,
            seed=seed,
        )


def _metrics(graded: Sequence[Graded], pairs: Sequence[Example]) -> dict[str, float]:
    rewards = [g.reward for g in graded if g.reward is not None]
    lengths = [len(g.rollout.response_ids) for g in graded]
    return {
        "reward": fmean(rewards) if rewards else 0.0,
        "completions/mean_length": fmean(lengths),
        "unscored": float(len(graded) - len(rewards)),
        "pairs": float(len(pairs)),
    }
