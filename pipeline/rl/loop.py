"""The reinforcement-learning loop: sample, grade, assemble, update, sync weights, record.

Everything random is drawn from (seed, step), so a resumed run repeats an uninterrupted one.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import torch
from torch import Tensor

from veriloop.pipeline.errors import NonFiniteError, StageError
from veriloop.pipeline.evaluation.evaluate import MEASURED, EvaluationStore, evaluate, passes
from veriloop.pipeline.protocols import LearnerProtocol, LoopRecipe
from veriloop.pipeline.rl import metrics
from veriloop.pipeline.rl.learner import turn_random
from veriloop.pipeline.rl.minibatches import trained
from veriloop.pipeline.rl.reward_checks import (
    ZeroRewardAlarm,
    check_log_probs,
    check_rewards,
    check_step_scores,
    with_finite_numbers,
)
from veriloop.pipeline.rollouts import ledger
from veriloop.pipeline.rollouts.collect import CollectedStep, RolloutCollector
from veriloop.pipeline.rollouts.generate import RolloutGenerator
from veriloop.pipeline.rollouts.grade import (
    Judges,
    Task,
    check_failures,
    commonest,
    count_failed,
    failure_reasons,
    verdicts_of,
)
from veriloop.pipeline.rollouts.prefetch import RolloutPrefetcher
from veriloop.pipeline.rollouts.stream import RolloutStream
from veriloop.pipeline.runs.console import activity
from veriloop.pipeline.runs.record import (
    EVALUATIONS,
    append,
    evaluated_steps,
    rewind_evaluations,
)
from veriloop.pipeline.sampling.sampler import Sampler
from veriloop.pipeline.sampling.sync import PROBED, SyncReport, WeightSync
from veriloop.pipeline.training.measurements import Clock, check_memory_bound, memory_peaks
from veriloop.pipeline.training.trainer import Trainer, TrainerDeps
from veriloop.pipeline.types import Graded, Update

PROBES = 8  # prompts whose log-probs are compared at each weight sync
SAMPLES_EVERY = 10  # steps between tables of samples on the console and in trackers


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopDeps(TrainerDeps):
    """What the loop works with; opened and closed by the stage."""

    generator: RolloutGenerator
    sampler: Sampler
    pool: Judges
    reward_alarm: ZeroRewardAlarm
    bound_gib: float = 0.0  # peak memory allowed to any process, GiB; 0: no bound


class Loop:
    """Trains `policy` on `task` as `recipe` says; `learner` turns rollouts into updates of it."""

    def __init__(
        self, recipe: LoopRecipe, task: Task, policy: Any, deps: LoopDeps, learner: LearnerProtocol
    ) -> None:
        self.recipe, self.task, self.policy, self.deps = recipe, task, policy, deps
        self.step = 0  # turns of the loop; each may take several optimizer steps
        self.exact_times = False  # synchronize with the accelerator around each timed part
        self.learner = learner
        self._reported_reasons = set[str]()  # of verifier failures
        self.trainer = Trainer(self, recipe, policy, deps)
        self.collector = RolloutCollector(recipe, task, deps.generator, deps.sampler, deps.pool)
        ahead = recipe.rollout.ahead
        self.stream = RolloutStream(self.collector, ahead) if ahead > 1 else None
        collects = self.stream or self.collector
        self.prefetcher = RolloutPrefetcher(collects) if ahead else None
        self.sync = WeightSync(
            policy,
            deps.sampler,
            temperature=recipe.rollout.temperature,
            tolerance=recipe.sampler.tolerance,
            max_tokens=min(PROBED, recipe.rollout.max_tokens),
            command=deps.ranks.command,
        )
        self.evaluations = deps.directory / EVALUATIONS

    @property
    def finished(self) -> bool:
        return self.step >= self.recipe.steps

    def progress(self) -> str:
        return f"step {self.step} of {self.recipe.steps}"

    def run(self, seconds: Callable[[], float]) -> None:
        """Take the remaining steps, as `Trainer.run` does; evaluate before and after them."""
        self._rewind_evaluations()
        self.begin()
        if self.step == 0:
            self._evaluate(full=True)
        self.trainer.run(self._turns(), seconds)
        self._evaluate(full=True)

    def state(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "asked": (self.prefetcher or self.collector).next_question,
            "ahead": None if self.prefetcher is None else self.prefetcher.state(),
            **self._open_state(),
            "learning": self.learner.state(),
        }

    def _open_state(self) -> dict[str, Any]:
        if self.stream is None or self.prefetcher is None:
            return {}
        return {"open": ledger.pack(self.prefetcher.open)}

    def load(self, state: Mapping[str, Any]) -> None:
        self.step, self.collector.next_question = state["step"], state["asked"]
        if self.prefetcher is not None:
            self.prefetcher.load(state["ahead"])
        if self.stream is not None:
            self.stream.open = ledger.unpack(state["open"])
        self.learner.load(state["learning"])

    def begin(self) -> None:
        """Sync the current weights to the sampler and verify them."""
        self._warn(self.sync(self.learner.done, self.probes(self.step)))

    def _warn(self, report: SyncReport) -> None:
        for warning in report.warnings:
            self.deps.console.note(f"WARNING: after {self.learner.done} optimizer steps {warning}")

    def _turns(self) -> Iterator[None]:
        while not self.finished:
            self.turn()
            if self._evaluates_after(self.step):
                self._evaluate(full=False)
            yield

    def turn(self) -> None:
        """One step of the loop."""
        clock = Clock(exact=self.exact_times)
        collected = self._collect(clock)
        graded = self._checked(collected)
        staleness = self._staleness(graded)
        if self.recipe.sampler.sleep:
            self.deps.sampler.sleep()
        self._prefetch(self.step + 1)
        # Dynamic sampling may find no group to learn from.
        learns = collected.missing < self.recipe.rollout.prompts
        with clock("update"):
            updates, advantages_N = (
                self._learn(graded) if learns else ([], torch.zeros(len(graded)))
            )
        if self.prefetcher is not None:
            self.prefetcher.finish(clock)
        with clock("sync"):
            fresh = self.sync.send(self.learner.done, self.probes(self.step + 1))
        # An evaluation needs the sampler for other prompts, and a stopping run needs no more.
        if not (self.trainer.stop_requested or self._evaluates_after(self.step + 1)):
            self._prefetch(self.step + 2)
        with clock("sync"):
            report = self.sync.compare(fresh)
            self._warn(report)
            self.learner.renew_reference()
        with clock("record"):
            trace = self.learner.token_trace() if learns else {}
            advantages = self._advantages(graded, advantages_N) if updates else [None] * len(graded)
            self.deps.record.write_rollouts(self.step + 1, graded, advantages, trace)
        self.step += 1
        peaks = memory_peaks(self.deps.sampler.pid)
        self._log(
            metrics.of_rollouts(graded, advantages_N, collected.dropped)
            | metrics.of_updates(updates)
            | metrics.of_sync(report)
            | self.learner.metrics()
            | {"questions": float(collected.asked), "groups_missing": float(collected.missing)}
            | staleness
            | clock.metrics()
            | metrics.of_servers(self.deps.sampler)
            | peaks,
            graded,
        )
        check_memory_bound(peaks, self.deps.bound_gib)

    def _checked(self, collected: CollectedStep) -> list[Graded]:
        """The rollouts to train on. Raises VerifierFailuresError and NonFiniteError, after the
        rollouts were kept in a file. Failed verifiers count in dropped groups too."""
        graded = collected.graded
        verdicts = [*verdicts_of(graded), *collected.dropped]
        reasons = failure_reasons(verdicts)
        if new := [(why, n) for why, n in reasons if why not in self._reported_reasons]:
            self._reported_reasons.update(why for why, _ in new)
            failed = count_failed(verdicts)
            self.deps.console.note(
                f"step {self.step + 1}: verifiers failed on {failed} of {len(verdicts)} answers: "
                f"{commonest(new)}"
            )
        try:
            check_failures(f"step {self.step + 1}", verdicts, self.recipe.verifier_error_share)
            if self.task.step_scores is not None:
                check_step_scores(self.step + 1, graded, self.recipe.verifier_error_share)
            check_rewards(self.step + 1, graded)
            check_log_probs(self.step + 1, graded)
        except StageError as failure:
            refusal = self._kept(str(failure), graded)
            if isinstance(failure, NonFiniteError) and self._skips:
                self.deps.console.note(f"WARNING: {refusal}")
                return with_finite_numbers(graded)
            raise type(failure)(refusal) from failure
        return graded

    @property
    def _skips(self) -> bool:
        return getattr(self.recipe, "nonfinite", "stop") == "skip"

    def _kept(self, failure: str, graded: Sequence[Graded]) -> str:
        """The message about refused rollouts, with the file that now holds them."""
        path = self.deps.record.write_refused(self.step + 1, graded)
        return f"{failure}. The step's rollouts are in {path}"

    def _advantages(self, graded: Sequence[Graded], advantages_N: Tensor) -> list[float | None]:
        """The advantage of each rollout; None for those that are not trained on."""
        learned = trained(graded, self.recipe.algorithm, reads_rewards=self.learner.reads_rewards)
        advantages: list[float | None] = [None] * len(graded)
        for i in learned:
            advantages[i] = advantages_N[i].item()
        return advantages

    def _learn(self, graded: Sequence[Graded]) -> tuple[list[Update], Tensor]:
        """The learner's updates; after numbers that are not finite the rollouts are kept."""
        try:
            learned = self.learner.learn(self.step, graded, self._random("minibatches"))
        except NonFiniteError as failure:
            raise NonFiniteError(self._kept(str(failure), graded)) from failure
        if self.learner.refused:
            refusal = self._kept("; ".join(self.learner.refused), graded)
            self.deps.console.note(f"WARNING: optimizer step skipped: {refusal}")
        return learned

    def _log(self, step_metrics: Mapping[str, float], graded: Sequence[Graded]) -> None:
        samples = graded if self.step % SAMPLES_EVERY == 1 else ()
        self.trainer.log(step_metrics, samples)
        self.deps.console.samples(samples)
        self.deps.reward_alarm.check(self.step, graded)

    def _collect(self, clock: Clock) -> CollectedStep:
        """The rollouts of this turn: prefetched ones, or sampled now."""
        prefetched = None if self.prefetcher is None else self.prefetcher.take()
        if prefetched is None:
            collect = self.stream or self.collector
            return collect(self.step, self._random("regrade"), clock)
        collected, prefetch_clock = prefetched
        clock.add_concurrent(prefetch_clock)
        return collected

    def _staleness(self, graded: Sequence[Graded]) -> dict[str, float]:
        """Optimizer steps between the weights that sampled and those that learn, over the tokens;
        the largest only where answers are sampled by several weights."""
        if self.stream is None:
            return {"staleness": float(self.learner.done - graded[0].rollout.policy_version)}
        return metrics.of_staleness(graded, self.learner.done)

    def _prefetch(self, step: int) -> None:
        """Start collecting the rollouts of turn `step`, if the recipe prefetches and has it."""
        if self.prefetcher is not None and step < self.recipe.steps:
            self.prefetcher.begin(step, self._random("regrade", step))

    def _evaluates_after(self, step: int) -> bool:
        """Whether the policy is evaluated between turn `step` and the next."""
        every = self.recipe.evaluation.every
        return bool(every) and step % every == 0 and step < self.recipe.steps

    def probes(self, step: int) -> list[tuple[int, ...]]:
        """Prompts that verify the weight sync before `step`; they depend on `step` alone."""
        first = step * self.recipe.rollout.prompts
        problems = [self.task.problem(first + i) for i in range(PROBES)]
        return [self.deps.generator.prompt(problem) for problem in problems]

    def _evaluate(self, *, full: bool) -> None:
        """Evaluate the start or the last checkpoint in full, or the current policy on a part of the
        problems."""
        config = self.recipe.evaluation
        problems = self.task.held_out if full else self.task.held_out[: config.during]
        with activity("evaluating", passes(problems, greedy=full)) as part:
            result = evaluate(
                self.deps.sampler,
                self.deps.generator,
                problems,
                MEASURED,
                self.deps.pool,
                replace(
                    self.collector.sampling(self.step),
                    per_prompt=config.samples if full else 1,
                    temperature=config.temperature,
                    seed=1,
                ),
                error_share=self.recipe.verifier_error_share,
                greedy=full,
                keep=lambda graded: self.deps.record.write_evaluated(self.step, graded),
                on_problem=part.advance,
                store=self._store() if full else None,
            )
        append(
            self.evaluations,
            json.dumps({"step": self.step, "full": full, **result.flat()}) + "\n",
        )
        summary = ", ".join(f"{name} {e.value:.3f}" for name, e in result.estimates.items())
        self.deps.console.note(f"held out, after step {self.step}: {summary}")

    def _store(self) -> EvaluationStore | None:
        return self.deps.evaluations_of(self.policy, self.recipe.sampler.dtype, self.step)

    def _rewind_evaluations(self) -> None:
        """Remove the evaluations that this run repeats: later ones and the last. Say which of the
        earlier ones are lost."""
        say, last = self.deps.console.note, self.step
        for note in rewind_evaluations(self.evaluations, last, {self.recipe.steps}):
            say(note)
        due = {step for step in range(1, last + 1) if self._evaluates_after(step)}
        if missing := sorted(due - evaluated_steps(self.evaluations)):
            say(f"{self.evaluations} has no evaluation after step {', '.join(map(str, missing))}")

    def _random(self, purpose: str, step: int | None = None) -> Random:
        return turn_random(purpose, self.recipe.seed, self.step if step is None else step)
