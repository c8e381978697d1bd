"""Collects a step's graded rollouts; dynamic sampling replaces groups without a learning signal."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Self

import torch

from veriloop.data.problem import Problem
from veriloop.pipeline.losses.dapo import (
    Refill,
    SortedGroups,
    record_attempt,
    sort_groups,
)
from veriloop.pipeline.protocols import LoopRecipe
from veriloop.pipeline.rollouts.generate import RolloutGenerator
from veriloop.pipeline.rollouts.grade import (
    Judges,
    RuleVerdicts,
    Task,
    Verdicts,
    Verifiers,
    grade,
    rule_verdicts,
    verdicts_of,
)
from veriloop.pipeline.rollouts.ledger import OpenTurn
from veriloop.pipeline.rollouts.step_scores import with_step_scores
from veriloop.pipeline.sampling.sampler import Sampler, Sampling
from veriloop.pipeline.training.measurements import Clock
from veriloop.pipeline.types import Graded, Rollout

OnGroup = Callable[[Sequence[Rollout]], object]
Sample = Callable[[OnGroup], list[Rollout]]  # the rollouts of a step; calls it with each group


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedStep:
    """The rollouts of a step, and what they cost. If all of its groups are missing it learns
    nothing from them."""

    graded: list[Graded]
    asked: int  # questions sampled, including those of dropped groups
    missing: int  # groups still without a learning signal after the last attempt
    dropped: Sequence[Verdicts] = ()  # on each answer of dropped groups, as `verdicts_of` has them


class RolloutCollector:
    """Asks the task's questions in order; `next_question` is the number of the next one."""

    open: tuple[OpenTurn, ...] = ()  # begun turns, of which it has none

    def __init__(
        self,
        recipe: LoopRecipe,
        task: Task,
        generator: RolloutGenerator,
        sampler: Sampler,
        pool: Judges,
    ) -> None:
        self.recipe, self.task = recipe, task
        self.generator, self.sampler, self.pool = generator, sampler, pool
        self.next_question = 0

    def __call__(
        self, step: int, random: Random, clock: Clock, sample: Sample | None = None
    ) -> CollectedStep:
        """The rollouts of turn `step`, with the scores of their steps if the task has them.

        `sample` replaces the sampling of all of them, without dynamic sampling.
        """
        collected = self._collect(step, random, clock, sample)
        if self.task.step_scores is None:
            return collected
        with clock("verify"):
            graded = with_step_scores(collected.graded, self.task.step_scores)
        return replace(collected, graded=graded)

    def _collect(
        self, step: int, random: Random, clock: Clock, sample: Sample | None
    ) -> CollectedStep:
        if self.recipe.algorithm.dynamic_sampling:
            return self._collect_mixed(step, random, clock)
        prompts = self.recipe.rollout.prompts
        if sample is None:
            sample = self._sample(step, 0, range(prompts))
        graded = self._graded(step, sample, random, clock)
        self.next_question += prompts
        return CollectedStep(graded=graded, asked=prompts, missing=0)

    def _collect_mixed(self, step: int, random: Random, clock: Clock) -> CollectedStep:
        """Dynamic sampling: replace groups without reward variance, in a few attempts."""
        attempts = self.recipe.algorithm.dynamic_sampling + 1
        refill = Refill(wanted=self.recipe.rollout.prompts, attempts=attempts)
        collected: list[Graded] = []
        while refill.to_sample:
            questions = range(refill.sampled, refill.sampled + refill.to_sample)
            sample = self._sample(step, refill.attempt, questions)
            graded = self._graded(step, sample, random, clock)
            collected += graded
            refill = record_attempt(refill, _sorted_groups(graded))
        self.next_question += refill.sampled
        mixed = [g for g in collected if _question_index(g) in refill.kept]
        if not mixed:  # the step still records its rollouts, and learns nothing
            return CollectedStep(graded=collected, asked=refill.sampled, missing=refill.missing)
        others = [g for g in collected if _question_index(g) not in refill.kept]
        return CollectedStep(
            graded=mixed,
            asked=refill.sampled,
            missing=refill.missing,
            dropped=verdicts_of(others),
        )

    def sampling(self, step: int, attempt: int = 0) -> Sampling:
        rollout = self.recipe.rollout
        return Sampling(
            per_prompt=rollout.per_prompt,
            temperature=rollout.temperature,
            max_tokens=rollout.max_tokens,
            stop=rollout.stop,
            seed=(self.recipe.seed * 100_000 + step + 1) + 10_000_019 * attempt,
        )

    def questions(
        self, step: int, indices: range | None = None, skipped: int = 0
    ) -> list[tuple[str, Problem]]:
        """(group id, problem) of the questions with these indices, by default all of a turn's,
        counted from `next_question` after those of `skipped` turns."""
        prompts = self.recipe.rollout.prompts
        first = self.next_question + skipped * prompts
        return [
            (f"{step + 1}/{index}", self.task.problem(first + index))
            for index in (range(prompts) if indices is None else indices)
        ]

    def _sample(self, step: int, attempt: int, indices: range) -> Sample:
        """Samples the questions with these indices."""
        sampling = self.sampling(step, attempt)

        def sample(on_group: OnGroup) -> list[Rollout]:
            questions = self.questions(step, indices)
            return self.generator.rollouts(self.sampler, questions, sampling, on_group)

        return sample

    def _graded(self, step: int, sample: Sample, random: Random, clock: Clock) -> list[Graded]:
        """Sample and grade."""
        task = self.task
        with ConcurrentJudge(task.verifiers, self.pool) as judge:
            with clock("sample"):
                rollouts = sample(judge.submit)
            with clock("verify"):  # only the part that sampling did not overlap
                verdicts, reward = judge.verdicts(), task.reward_in(step)
                graded = grade(
                    rollouts, task.verifiers, self.pool, reward, task.batch_judges, verdicts
                )
                return task.regrade(graded, random) if task.regrade else graded


class ConcurrentJudge:
    """A thread that judges complete groups while others are still being sampled.

    All rollouts that wait are judged in one call. The verdicts equal those of one `rule_verdicts`
    call for all rollouts, whatever the order of arrival.
    """

    def __init__(self, verifiers: Verifiers, pool: Judges) -> None:
        self._verifiers, self._pool = verifiers, pool
        self._waiting: list[Rollout] = []
        self._verdicts: RuleVerdicts = {}
        self._failure: BaseException | None = None
        self._changed = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._judge, name="judge", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def submit(self, rollouts: Sequence[Rollout]) -> None:
        """Queue a complete group."""
        with self._changed:
            self._waiting += rollouts
            self._changed.notify()

    def verdicts(self) -> RuleVerdicts:
        """Wait for all submitted rollouts; raises what judging raised."""
        self._end()
        if self._failure is not None:
            raise self._failure
        return self._verdicts

    def _end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify()
        self._thread.join()

    def _judge(self) -> None:
        try:
            while rollouts := self._next_rollouts():
                self._verdicts |= rule_verdicts(rollouts, self._verifiers, self._pool)
        except BaseException as failure:  # noqa: BLE001 - raised again by verdicts()
            self._failure = failure

    def _next_rollouts(self) -> list[Rollout]:
        """Block until rollouts wait; empty when none can follow."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._ended)
            rollouts, self._waiting = self._waiting, []
            return rollouts


def _question_index(graded: Graded) -> int:
    """The index within the step, from the group id "step/index"."""
    return int(graded.rollout.group.split("/")[1])


def _sorted_groups(graded: Sequence[Graded]) -> SortedGroups:
    """The groups sorted by accuracy alone: format or length rewards are too weak a signal."""
    scores = [g.verdicts["accuracy"].score for g in graded]
    return sort_groups(
        torch.tensor([0.0 if score is None else score for score in scores]),
        torch.tensor([_question_index(g) for g in graded]),
        torch.tensor([score is not None for score in scores]),
        lowest=0.0,
        highest=1.0,
    )
