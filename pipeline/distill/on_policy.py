"""On-policy distillation (GKD, arXiv 2306.13649): the teacher scores the student's rollouts.

Each token's log(teacher / student) is its advantage, so minibatches, update and loop are those of
RL; `divergence` can instead compare full distributions. Axes: N rollouts of a step, M masked-in
tokens, D width of the student, E of the teacher.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import torch
from torch import Tensor

from veriloop.pipeline.cluster.deal import empty_batch
from veriloop.pipeline.config.distill import DistillRecipe
from veriloop.pipeline.losses.distillation import jsd_from_hidden, token_advantage, token_share
from veriloop.pipeline.model.device import device_of, onto
from veriloop.pipeline.model.logprob import Head
from veriloop.pipeline.model.policy import forward, hidden_states, score_hidden
from veriloop.pipeline.model.probe import output_head, supports_shared_prompts
from veriloop.pipeline.model.sharded import SINGLE, Ranks, whole
from veriloop.pipeline.rl.estimator import score_parts
from veriloop.pipeline.rl.minibatches import Minibatch, minibatches
from veriloop.pipeline.rl.update import TokenTrace, UpdateContext, check_mismatch, update
from veriloop.pipeline.sampling.sync import batch_tolerance
from veriloop.pipeline.training.measurements import Tally, span
from veriloop.pipeline.training.optimizer import Optimizer
from veriloop.pipeline.types import Batch, Graded, SeenTokens, Signals, Update


class OnPolicyDistiller:
    """Updates the student towards `teacher`; rewards are only recorded."""

    reads_rewards = False

    def __init__(
        self, recipe: DistillRecipe, policy: Any, teacher: Any, ranks: Ranks = SINGLE
    ) -> None:
        """Divides both models among `ranks`."""
        ranks.shard(teacher)
        ranks.shard(policy)
        self.recipe, self.policy, self.teacher = recipe, policy, teacher
        self.done = 0  # optimizer steps
        self.refused: list[str] = []  # a step that is not finite ends the run
        self.trace = TokenTrace()
        self.context = UpdateContext(
            policy=policy,
            optimizer=Optimizer(policy, recipe.optimizer),
            algorithm=recipe.algorithm,
            chunk=recipe.trainer.logits_chunk,
            trace=self.trace,
            ranks=ranks,
        )
        self._kl = 0.0  # of the last step, nats per token

    def learn(
        self, step: int, graded: Sequence[Graded], shuffle: Random
    ) -> tuple[list[Update], Tensor]:
        """The updates of step `step`, and each rollout's mean log(teacher / student), [N]."""
        recipe, context = self.recipe, self.context
        self.trace.clear()
        with span("assemble"):
            parts = minibatches(
                graded,
                context.algorithm,
                recipe.trainer,
                max_tokens=recipe.rollout.max_tokens,
                shuffle=shuffle,
                share_prompts=recipe.trainer.share_prompts
                and supports_shared_prompts(self.policy, self.teacher),
                ranks=context.ranks.count,
                reads_rewards=self.reads_rewards,
            )
        with span("score"):
            parts = score_parts(
                self.policy,
                self.teacher,
                None,
                parts,
                context.algorithm,
                context.chunk,
                context.ranks,
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
                self.context, part, progress=progress, done=self.done, tolerance=tolerance
            )
        return divergence_update(
            self.context,
            self.teacher,
            part,
            beta=self.recipe.jsd_beta,
            progress=progress,
            done=self.done,
            tolerance=tolerance,
        )

    def token_trace(self) -> Mapping[int, SeenTokens]:
        """Token traces of the last step; empty for divergences over the whole vocabulary."""
        return self.trace.seen

    def renew_reference(self) -> None:
        """No-op: the teacher is fixed."""

    def metrics(self) -> dict[str, float]:
        return {"optimizer_steps": float(self.done), "kl_to_teacher": self._kl}

    def state(self) -> dict[str, Any]:
        return {"done": self.done, "optimizer": self.context.optimizer.state()}

    def load(self, state: Mapping[str, Any]) -> None:
        self.done = state["done"]
        self.context.optimizer.load(state["optimizer"])


def against_teacher(
    parts: Sequence[Minibatch], rollouts: int
) -> tuple[list[Minibatch], Tensor, float]:
    """Set each token's advantage to log(teacher / student).

    Returns the minibatches, the mean advantage of each rollout, [N], and the estimated reverse KL
    in nats per token.
    """
    sums_N, tokens_N = torch.zeros(rollouts), torch.zeros(rollouts)
    with_advantages: list[Minibatch] = []
    for part in parts:
        signals: list[Signals] = []
        for batch, signal in zip(part.batches, part.signals, strict=True):
            assert signal.reference_M is not None, "the teacher has scored every token"
            advantages_M = token_advantage(signal.old_M, signal.reference_M)
            owner_M = batch.rollout_B[batch.sequence_RT[batch.mask_RT]]
            sums_N.index_add_(0, owner_M, advantages_M)
            tokens_N += torch.bincount(owner_M, minlength=rollouts)
            signals.append(replace(signal, advantages_M=advantages_M))
        with_advantages.append(replace(part, signals=tuple(signals)))
    kl = -sums_N.sum() / tokens_N.sum().clamp(min=1)
    return with_advantages, sums_N / tokens_N.clamp(min=1), kl.item()


def divergence_update(
    context: UpdateContext,
    teacher: Any,
    minibatch: Minibatch,
    *,
    beta: float,
    progress: float,
    done: int,
    tolerance: float | None,
) -> Update:
    """Accumulate the gradient of the mean `generalised_jsd` over the minibatch and step once.

    `progress`, `done`, `tolerance` and MismatchError are as in `rl.update.update`.
    """
    tokens, tally, ranks = minibatch.counts.tokens, Tally(), context.ranks
    batches, head = minibatch.batches, _whole(output_head(teacher))
    for batch in ranks.deal(batches, lambda: empty_batch(batches[0])):
        batch_on_device = onto(batch, device_of(context.policy))
        _accumulate(context, teacher, head, batch_on_device, tokens, tally, beta=beta)
    count = max(tokens, 1)
    totals = tally.totals(ranks.stacked if ranks.count > 1 else None)
    gap, widest = totals["gap"] / count, totals["widest"]
    check_mismatch(context.optimizer, gap, widest, tokens, tolerance, done)
    grad_norm, learning_rate = context.optimizer.step(progress, done)
    return Update(
        loss=totals["loss"],
        value_loss=0.0,
        kl=totals["loss"],
        old_kl=0.0,
        entropy=totals["nats"] / count,
        clipped_low=0.0,
        clipped_high=0.0,
        ratio_mean=1.0,
        mismatch_mean=gap,
        mismatch_max=widest,
        dropped=(),
        grad_norm=grad_norm,
        learning_rate=learning_rate,
        kept=1.0,
        tokens=tokens,
        scored=tokens,
    )


def _whole(head: Head) -> Head:
    """The head whole on every rank: the backward pass, which recomputes the logits, needs it too,
    when a sharded model has freed it."""
    bias_V = None if head.bias_V is None else whole(head.bias_V)
    return head._replace(weight_VD=whole(head.weight_VD), bias_V=bias_V)


def _accumulate(
    context: UpdateContext,
    teacher: Any,
    teacher_head: Head,
    batch: Batch,
    tokens: int,
    tally: Tally,
    *,
    beta: float,
) -> None:
    """The backward pass of one micro-batch; its metrics are added to `tally`."""
    with torch.no_grad():
        teacher_ME = forward(teacher, masked_hidden, batch)
    values_M, logp_M, entropy_M = forward(
        context.policy, _divergence, batch, teacher_ME, teacher_head, beta, context.chunk
    )
    share = token_share(values_M, tokens)
    share.backward()
    gap_M = (logp_M - batch.sampler_logp_RT[batch.mask_RT]).abs()
    tally.add("loss", share)
    tally.add("nats", entropy_M.sum())
    tally.add("gap", gap_M.sum())
    tally.add_max("widest", gap_M)


def _divergence(
    model: Any, batch: Batch, teacher_ME: Tensor, teacher_head: Head, beta: float, chunk: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Divergence from the teacher, log-prob and entropy of each masked-in token, [M], nats."""
    hidden_MD = masked_hidden(model, batch)
    with torch.no_grad():
        logp_M, entropy_M = score_hidden(
            model,
            hidden_MD,
            batch.targets_RT[batch.mask_RT],
            temperature=batch.temperature,
            chunk=chunk,
        )
    values_M = jsd_from_hidden(
        hidden_MD,
        output_head(model),
        teacher_ME,
        teacher_head,
        beta=beta,
        temperature=batch.temperature,
        chunk=chunk,
    )
    return values_M, logp_M, entropy_M


def masked_hidden(model: Any, batch: Batch) -> Tensor:
    """Hidden states that predict the masked-in tokens, [M, width]."""
    hidden_RTD = hidden_states(model.base_model, batch.ids_RT, batch.positions_RT)
    return hidden_RTD[batch.mask_RT]
