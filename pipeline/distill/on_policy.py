"""On-policy distillation: the student writes, the teacher says how likely each token would be.

The tokens' log-ratios to the teacher stand where reinforcement learning has advantages, so the
batches, the update and the loop are the same. Axes: N rollouts of a step, M masked-in tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import torch
from torch import Tensor

from pipeline.assemble import Minibatch, minibatches
from pipeline.clock import span
from pipeline.compute import batch_tolerance
from pipeline.distill.step import divergence_update
from pipeline.distill_config import DistillRecipe
from pipeline.losses.distillation import token_advantage
from pipeline.optimizer import Optimizer
from pipeline.records import Graded, Signals, Update
from pipeline.signals import score_parts
from pipeline.token_trace import SeenTokens, TokenTrace
from pipeline.update import Learner, update
from pipeline.ways import shares


class Imitation:
    """Turns rollouts into updates towards `teacher`; rewards are for the record alone."""

    def __init__(self, recipe: DistillRecipe, policy: Any, teacher: Any) -> None:
        self.recipe, self.policy, self.teacher = recipe, policy, teacher
        self.done = 0  # optimizer steps
        self.trace = TokenTrace()
        self.learner = Learner(
            policy=policy,
            optimizer=Optimizer(policy, recipe.optimizer),
            algorithm=recipe.algorithm,
            chunk=recipe.trainer.logits_chunk,
            trace=self.trace,
        )
        self._kl = 0.0  # of the last turn

    def learn(
        self, step: int, graded: Sequence[Graded], shuffle: Random
    ) -> tuple[list[Update], Tensor]:
        """The updates of turn `step`, and each rollout's mean log(teacher / student), [N]."""
        recipe, learner = self.recipe, self.learner
        self.trace.clear()
        with span("assemble"):
            parts = minibatches(
                graded,
                learner.algorithm,
                recipe.trainer,
                max_tokens=recipe.rollout.max_tokens,
                shuffle=shuffle,
                share_prompts=recipe.trainer.share_prompts and shares(self.policy, self.teacher),
            )
        with span("score"):
            parts = score_parts(
                self.policy, self.teacher, None, parts, learner.algorithm, learner.chunk
            )
        parts, advantages_N, self._kl = against_teacher(parts, len(graded))
        tolerance = batch_tolerance(recipe.trainer, recipe.sampler, graded, self.done)
        updates: list[Update] = []
        for i, part in enumerate(parts):
            progress = (step + i / len(parts)) / recipe.steps
            updates.append(self._update(part, progress, tolerance if i == 0 else None))
            self.done += 1
        return updates, advantages_N

    def _update(self, part: Minibatch, progress: float, tolerance: float | None) -> Update:
        if self.recipe.divergence == "sampled":
            return update(
                self.learner, part, progress=progress, done=self.done, tolerance=tolerance
            )
        return divergence_update(
            self.learner,
            self.teacher,
            part,
            beta=self.recipe.jsd_beta,
            progress=progress,
            done=self.done,
            tolerance=tolerance,
        )

    def seen(self) -> Mapping[int, SeenTokens]:
        """Of the last turn; nothing where the whole distributions were compared."""
        return self.trace.seen

    def renew_reference(self) -> None:
        """The teacher stays as it is."""

    def numbers(self) -> dict[str, float]:
        return {"optimizer_steps": float(self.done), "kl_to_teacher": self._kl}

    def state(self) -> dict[str, Any]:
        return {"done": self.done, "optimizer": self.learner.optimizer.state()}

    def load(self, state: Mapping[str, Any]) -> None:
        self.done = state["done"]
        self.learner.optimizer.load(state["optimizer"])


def against_teacher(
    parts: Sequence[Minibatch], rollouts: int
) -> tuple[list[Minibatch], Tensor, float]:
    """The parts with log(teacher / student) of each token as its advantage; its mean over each
    rollout, [N]; and the reverse KL in nats per token that all of them estimate."""
    sums_N, tokens_N = torch.zeros(rollouts), torch.zeros(rollouts)
    made: list[Minibatch] = []
    for part in parts:
        signals: list[Signals] = []
        for batch, one in zip(part.batches, part.signals, strict=True):
            assert one.reference_M is not None, "the teacher has scored every token"
            advantages_M = token_advantage(one.old_M, one.reference_M)
            owner_M = batch.rollout_B[batch.sequence_RT[batch.mask_RT]]
            sums_N.index_add_(0, owner_M, advantages_M)
            tokens_N += torch.bincount(owner_M, minlength=rollouts)
            signals.append(replace(one, advantages_M=advantages_M))
        made.append(replace(part, signals=tuple(signals)))
    kl = -sums_N.sum() / tokens_N.sum().clamp(min=1)
    return made, sums_N / tokens_N.clamp(min=1), kl.item()
