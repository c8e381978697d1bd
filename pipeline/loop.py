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

from torch import Tensor

from data.problem import Problem
from pipeline import checkpoint, metrics, rng
from pipeline.assemble import Minibatch, advantages, minibatches
from pipeline.config import ZeroRecipe
from pipeline.console import StageConsole
from pipeline.durable import write_atomically
from pipeline.evaluate import Evaluation, evaluate
from pipeline.failures import Stopped
from pipeline.grade import Judges, Reward, Verifiers, grade
from pipeline.optimizer import Optimizer
from pipeline.policy import save_policy
from pipeline.record import StageRecord
from pipeline.records import Graded, Rollout, Update
from pipeline.reference import Reference
from pipeline.sampling.sampler import Sampler, Sampling
from pipeline.sampling.sync import WeightSync
from pipeline.scribe import Scribe
from pipeline.stop import StopRequest
from pipeline.update import old_logp, update

PROBES = 8  # prompts of each sync proof


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What is learned: the questions, who judges the answers, and what a verdict is worth."""

    problem: Callable[[int], Problem]  # number n of an endless list
    held_out: Sequence[Problem]
    verifiers: Verifiers
    reward: Reward
    best: float  # the highest reward there is
    regrade: Callable[[list[Graded], Random], list[Graded]] = lambda graded, _: graded


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What the loop works with; opened and closed by the stage."""

    scribe: Scribe
    sampler: Sampler
    pool: Judges
    record: StageRecord
    console: StageConsole
    directory: Path


class Loop:
    """Trains `policy` on `task` as `recipe` says."""

    def __init__(self, recipe: ZeroRecipe, task: Task, policy: Any, tools: Tools) -> None:
        self.recipe, self.task, self.policy, self.tools = recipe, task, policy, tools
        self.algorithm = recipe.algorithm
        self.optimizer = Optimizer(policy, recipe.optimizer)
        self.step, self.done = 0, 0  # turns of the loop, optimizer steps
        self.reference = (
            Reference(policy, self.algorithm.reference_every)
            if self.algorithm.kl_coefficient
            else None
        )
        self.sync = WeightSync(
            policy,
            tools.sampler,
            temperature=recipe.rollout.temperature,
            tolerance=recipe.sampler.tolerance,
        )
        self.evaluations = tools.directory / "evaluations.jsonl"

    def resume(self, state: Mapping[str, Any]) -> None:
        """Take up the run whose policy has been loaded and whose checkpoint held `state`."""
        self.step, self.done = state["step"], state["done"]
        self.optimizer.load(state["optimizer"])
        if self.reference is not None:
            self.reference.load(state["reference"])
            self.reference.check(self.done)
        rng.restore(state["rng"])

    def run(self, seconds: Callable[[], float]) -> None:
        """Run to the last step. Raises Stopped after a checkpoint when asked to stop.

        `seconds` tells the stage's wall time so far, kept in each checkpoint.
        """
        self.tools.record.rewind(self.step)
        self._rewind_evaluations()
        self.sync(self.done, self._probes(self.step))
        if self.step == 0:
            self._evaluate(full=True)
        every = self.recipe.evaluation.every
        with StopRequest() as stop:
            while self.step < self.recipe.steps:
                self._turn()
                if every and self.step % every == 0 and self.step < self.recipe.steps:
                    self._evaluate(full=False)
                self._save(stop.asked, seconds())
                if stop.asked and self.step < self.recipe.steps:
                    raise Stopped(f"stopped after step {self.step} of {self.recipe.steps}")
        self._evaluate(full=True)

    def _turn(self) -> None:
        """One step of the paper's loop."""
        clock = metrics.Clock()
        with clock("sample"):
            rollouts = self._sample()
        with clock("verify"):
            graded = grade(rollouts, self.task.verifiers, self.tools.pool, self.task.reward)
            graded = self.task.regrade(graded, self._random("regrade"))
        with clock("assemble"):
            advantages_N = advantages(graded, self.algorithm)
            parts = self._parts(graded, advantages_N)
        with clock("update"):
            if self.reference is not None:
                self.reference.check(self.done)
            updates = self._update(parts)
        with clock("sync"):
            report = self.sync(self.done, self._probes(self.step + 1))
            if self.reference is not None:
                self.reference.replace_when_due(self.policy, self.done)
                self.reference.check(self.done)
        with clock("record"):
            self.tools.record.write_rollouts(self.step + 1, graded, advantages_N.tolist())
        self.step += 1
        numbers = (
            metrics.of_rollouts(graded, advantages_N, self.task.best)
            | metrics.of_updates(updates)
            | metrics.of_sync(report)
            | {"optimizer_steps": float(self.done)}
            | metrics.of_time(clock)
        )
        self.tools.record.write_metrics(self.step, numbers)
        self.tools.console.step(self.step, numbers)
        if self.step % 10 == 1:
            self.tools.console.samples(graded)

    def _sample(self) -> list[Rollout]:
        size = self.recipe.rollout.prompts
        first = self.step * size
        asked = [(f"{self.step + 1}/{i}", self.task.problem(first + i)) for i in range(size)]
        return self.tools.scribe.rollouts(self.tools.sampler, asked, self._sampling())

    def _sampling(self) -> Sampling:
        rollout = self.recipe.rollout
        return Sampling(
            per_prompt=rollout.per_prompt,
            temperature=rollout.temperature,
            max_tokens=rollout.max_tokens,
            stop=rollout.stop,
            seed=self.recipe.seed * 100_000 + self.step + 1,
        )

    def _parts(self, graded: Sequence[Graded], advantages_N: Tensor) -> list[Minibatch]:
        return minibatches(
            graded,
            advantages_N,
            self.algorithm,
            self.recipe.trainer,
            max_tokens=self.recipe.rollout.max_tokens,
            shuffle=self._random("minibatches"),
        )

    def _update(self, parts: Sequence[Minibatch]) -> list[Update]:
        chunk = self.recipe.trainer.logits_chunk
        olds: list[list[Tensor] | None] = [None] * len(parts)
        if self.algorithm.old_logp == "trainer":
            olds = [[old_logp(self.policy, b, chunk) for b in part.batches] for part in parts]
        updates: list[Update] = []
        for i, (part, old) in enumerate(zip(parts, olds, strict=True)):
            updates.append(
                update(
                    self.policy,
                    None if self.reference is None else self.reference.model,
                    self.optimizer,
                    part,
                    self.algorithm,
                    chunk=chunk,
                    progress=(self.step + i / len(parts)) / self.recipe.steps,
                    done=self.done,
                    old_logps=old,
                    tolerance=self.recipe.sampler.tolerance if i == 0 else None,
                )
            )
            self.done += 1
        return updates

    def _probes(self, step: int) -> list[tuple[int, ...]]:
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
            self.task.verifiers,
            self.tools.pool,
            replace(
                self._sampling(),
                per_prompt=config.samples if full else 1,
                temperature=config.temperature,
                seed=1,
            ),
            greedy=full,
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
            "done": self.done,
            "optimizer": self.optimizer.state(),
            "reference": None if self.reference is None else self.reference.state(),
            "rng": rng.capture(),
            "recipe": self.recipe.model_dump_json(),
        }

    def _random(self, purpose: str) -> Random:
        return Random(f"{purpose}/{self.recipe.seed}/{self.step}")
