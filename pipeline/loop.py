"""The one reinforcement-learning loop: sample, grade, assemble, update, sync, record.

Everything random is drawn from (seed, step), so a run that is killed and resumed goes the same
way as one that never stopped.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from pipeline import checkpoint, footprint, metrics, rng
from pipeline.ahead import Ahead
from pipeline.clock import Clock
from pipeline.console import StageConsole
from pipeline.course import Course, Learns
from pipeline.durable import write_atomically
from pipeline.evaluate import MEASURED, Evaluation, evaluate
from pipeline.failures import Stopped
from pipeline.gather import Gathered, Gatherer
from pipeline.grade import Judges
from pipeline.policy import save_policy
from pipeline.record import StageRecord
from pipeline.records import Graded
from pipeline.sampling.sampler import Sampler
from pipeline.sampling.sync import WeightSync
from pipeline.scribe import Scribe
from pipeline.stop import StopRequest
from pipeline.task import Task
from pipeline.unpaid import Unpaid

PROBES = 8  # prompts of each sync proof


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What the loop works with; opened and closed by the stage."""

    scribe: Scribe
    sampler: Sampler
    pool: Judges
    record: StageRecord
    console: StageConsole
    unpaid: Unpaid
    directory: Path
    bound_gib: float = 0.0  # of the memory of any process; 0: none


class Loop:
    """Trains `policy` on `task` as `recipe` says; `learning` turns rollouts into updates of it."""

    def __init__(
        self, recipe: Course, task: Task, policy: Any, tools: Tools, learning: Learns
    ) -> None:
        self.recipe, self.task, self.policy, self.tools = recipe, task, policy, tools
        self.step = 0  # turns of the loop
        self._stop = StopRequest()
        self.exact_times = False  # wait for the accelerator at the ends of what is timed
        self.learning = learning
        self.gather = Gatherer(recipe, task, tools.scribe, tools.sampler, tools.pool)
        self.ahead = Ahead(self.gather)
        self.sync = WeightSync(
            policy,
            tools.sampler,
            temperature=recipe.rollout.temperature,
            tolerance=recipe.sampler.tolerance,
        )
        self.evaluations = tools.directory / "evaluations.jsonl"

    def resume(self, state: Mapping[str, Any]) -> None:
        """Take up the run whose policy has been loaded and whose checkpoint held `state`."""
        self.step, self.gather.next = state["step"], state["asked"]
        self.ahead.load(state["ahead"])
        self.learning.load(state["learning"])
        rng.restore(state["rng"])

    def run(self, seconds: Callable[[], float]) -> None:
        """Run to the last step. Raises Stopped after a checkpoint when asked to stop.

        `seconds` tells the stage's wall time so far, kept in each checkpoint.
        """
        self.tools.record.rewind(self.step)
        self._rewind_evaluations()
        self.begin()
        if self.step == 0:
            self._evaluate(full=True)
        with self._stop as stop:
            while self.step < self.recipe.steps:
                self.turn()
                if self._examined_after(self.step):
                    self._evaluate(full=False)
                self._save(stop.asked, seconds())
                if stop.asked and self.step < self.recipe.steps:
                    raise Stopped(f"stopped after step {self.step} of {self.recipe.steps}")
        self._evaluate(full=True)

    def begin(self) -> None:
        """Give the sampler the policy as it is now, proved."""
        self.sync(self.learning.done, self.probes(self.step))

    def turn(self) -> None:
        """One step of the paper's loop."""
        clock = Clock(exact=self.exact_times)
        gathered = self._gathered(clock)
        graded = gathered.graded
        age = self.learning.done - graded[0].rollout.policy_version
        if self.recipe.sampler.sleep:
            self.tools.sampler.sleep()
        self._begin_to_gather(self.step + 1)
        with clock("update"):
            updates, advantages_N = self.learning.learn(
                self.step, graded, self._random("minibatches")
            )
        self.ahead.finish(clock)
        with clock("sync"):
            fresh = self.sync.send(self.learning.done, self.probes(self.step + 1))
        # before an evaluation the sampler is asked other questions, and before a stop none
        if not (self._stop.asked or self._examined_after(self.step + 1)):
            self._begin_to_gather(self.step + 2)
        with clock("sync"):
            report = self.sync.compare(fresh)
            self.learning.renew_reference()
        with clock("record"):
            self.tools.record.write_rollouts(
                self.step + 1, graded, advantages_N.tolist(), self.learning.seen()
            )
        self.step += 1
        held = footprint.peaks(self.tools.sampler.pid)
        self._tell(
            metrics.of_rollouts(graded, advantages_N, self.task.best)
            | metrics.of_updates(updates)
            | metrics.of_sync(report)
            | self.learning.numbers()
            | {"questions": float(gathered.asked), "groups_missing": float(gathered.missing)}
            | {"staleness": float(age)}
            | clock.told()
            | held,
            graded,
        )
        footprint.check_bound(held, self.tools.bound_gib)

    def _tell(self, numbers: dict[str, float], graded: Sequence[Graded]) -> None:
        """Of the turn that has ended: on record, and to who watches."""
        self.tools.record.write_metrics(self.step, numbers)
        self.tools.console.step(self.step, numbers)
        if self.step % 10 == 1:
            self.tools.console.samples(graded)
        self.tools.unpaid.look(self.step, graded)

    def _gathered(self, clock: Clock) -> Gathered:
        """The rollouts of this turn: those gathered ahead of it, or sampled now."""
        ready = self.ahead.take()
        if ready is None:
            return self.gather(self.step, self._random("regrade"), clock)
        gathered, beside = ready
        clock.beside(beside)
        return gathered

    def _begin_to_gather(self, step: int) -> None:
        """The rollouts of a turn, where the recipe wants them ahead and there is such a turn."""
        if self.recipe.rollout.ahead and step < self.recipe.steps:
            self.ahead.begin(step, self._random("regrade", step))

    def _examined_after(self, step: int) -> bool:
        """Whether the policy is evaluated between this turn and the next."""
        every = self.recipe.evaluation.every
        return bool(every) and step % every == 0 and step < self.recipe.steps

    def probes(self, step: int) -> list[tuple[int, ...]]:
        """Prompts of the proof that opens `step`: the same ones for a run resumed there."""
        first = step * self.recipe.rollout.prompts
        problems = [self.task.problem(first + i) for i in range(PROBES)]
        return [self.tools.scribe.prompt(problem) for problem in problems]

    def _evaluate(self, *, full: bool) -> Evaluation:
        config = self.recipe.evaluation
        result = evaluate(
            self.tools.sampler,
            self.tools.scribe,
            self.task.held_out if full else self.task.held_out[: config.during],
            MEASURED,
            self.tools.pool,
            replace(
                self.gather.sampling(self.step),
                per_prompt=config.samples if full else 1,
                temperature=config.temperature,
                seed=1,
            ),
            greedy=full,
            keep=lambda some: self.tools.record.write_evaluated(self.step, some),
        )
        with self.evaluations.open("a") as lines:
            lines.write(json.dumps({"step": self.step, "full": full, **result.flat()}) + "\n")
        shown = ", ".join(f"{name} {e.value:.3f}" for name, e in result.estimates.items())
        self.tools.console.note(f"held out, after step {self.step}: {shown}")
        return result

    def _rewind_evaluations(self) -> None:
        """Forget evaluations that this run will make again."""
        if not self.evaluations.exists():
            return
        kept = [
            line
            for line in self.evaluations.read_text().splitlines(keepends=True)
            if line.endswith("\n") and self._is_past(json.loads(line)["step"])
        ]
        write_atomically(self.evaluations, lambda fresh: fresh.write_text("".join(kept)))

    def _is_past(self, step: int) -> bool:
        return step <= self.step and self.step > 0 and step != self.recipe.steps

    def _save(self, now: bool, seconds: float) -> None:
        """A checkpoint when one is due, at the end, or when the run is asked to stop."""
        config = self.recipe.checkpoint
        due = config.every and self.step % config.every == 0
        if not (due or now or self.step == self.recipe.steps):
            return
        checkpoint.save(
            self.tools.directory,
            self.step,
            write_model=lambda folder: save_policy(
                self.policy, self.tools.scribe.tokenizer, folder
            ),
            state=self._state() | {"seconds": seconds},
            keep=config.keep,
        )

    def _state(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "asked": self.ahead.asked,
            "ahead": self.ahead.state(),
            "learning": self.learning.state(),
            "rng": rng.capture(),
            "recipe": self.recipe.model_dump_json(),
        }

    def _random(self, purpose: str, step: int | None = None) -> Random:
        return rng.of_turn(purpose, self.recipe.seed, self.step if step is None else step)
