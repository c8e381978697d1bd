"""One optimizer step towards a teacher's whole distributions.

Axes: M masked-in tokens of a micro-batch, D width of the student, E of the teacher.
"""

from typing import Any

import torch

from pipeline.assemble import Minibatch
from pipeline.device import device_of, onto
from pipeline.losses.distillation import jsd_from_hidden, token_share
from pipeline.policy import hidden_states, score_hidden
from pipeline.records import Batch, Update
from pipeline.tally import Tally
from pipeline.update import Learner, check_mismatch
from pipeline.ways import output_head


def divergence_update(
    learner: Learner,
    teacher: Any,
    minibatch: Minibatch,
    *,
    beta: float,
    progress: float,
    done: int,
    tolerance: float | None,
) -> Update:
    """Accumulate the gradient of the mean `generalised_jsd` over the step's tokens and step once.

    `progress`, `done` and `tolerance` are those of `pipeline.update.update`; so is MismatchError.
    """
    tokens, tally = minibatch.counts.tokens, Tally()
    for batch in minibatch.batches:
        here = onto(batch, device_of(learner.policy))
        _accumulate(learner, teacher, here, tokens, tally, beta=beta)
    counted, seen = max(tokens, 1), tally.told()
    gap, widest = seen["gap"] / counted, seen["widest"]
    check_mismatch(learner.optimizer, gap, widest, tokens, tolerance, done)
    grad_norm, learning_rate = learner.optimizer.step(progress, done)
    return Update(
        loss=seen["loss"],
        value_loss=0.0,
        kl=seen["loss"],
        old_kl=0.0,
        entropy=seen["nats"] / counted,
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


def _accumulate(
    learner: Learner, teacher: Any, batch: Batch, tokens: int, tally: Tally, *, beta: float
) -> None:
    """The backward pass of one micro-batch; adds what it tells to `tally`."""
    head, hidden_MD = output_head(learner.policy), masked_hidden(learner.policy, batch)
    with torch.no_grad():
        theirs_ME = masked_hidden(teacher, batch)
        logp_M, entropy_M = score_hidden(
            learner.policy,
            hidden_MD,
            batch.targets_RT[batch.mask_RT],
            temperature=batch.temperature,
            chunk=learner.chunk,
        )
    values_M = jsd_from_hidden(
        hidden_MD,
        head,
        theirs_ME,
        output_head(teacher),
        beta=beta,
        temperature=batch.temperature,
        chunk=learner.chunk,
    )
    share = token_share(values_M, tokens)
    share.backward()
    gap_M = (logp_M - batch.sampler_logp_RT[batch.mask_RT]).abs()
    tally.add("loss", share)
    tally.add("nats", entropy_M.sum())
    tally.add("gap", gap_M.sum())
    tally.widen("widest", gap_M)


def masked_hidden(model: Any, batch: Batch) -> torch.Tensor:
    """What a model's trunk makes of the positions before each masked-in token, [M, width]."""
    hidden_RTD = hidden_states(model.base_model, batch.ids_RT, batch.positions_RT)
    return hidden_RTD[batch.mask_RT]
