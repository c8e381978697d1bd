"""One optimizer step on pairs or labelled answers: score, loss, backward, step, numbers.

Axes: P examples of a micro-batch, S segments of their answers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from data.preference_ids import Ids
from pipeline.config import TrainerConfig
from pipeline.device import brought, device_of
from pipeline.losses.preference import kto_reference_point
from pipeline.optimizer import Optimizer
from pipeline.preference.answer_logps import pieces, segment_logps
from pipeline.preference.examples import Example
from pipeline.preference.objective import Sums, Whole, per_token, share, summed
from pipeline.preference_config import PreferenceLossConfig
from pipeline.tally import Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """What is learned, and in pieces of which size."""

    loss: PreferenceLossConfig
    trainer: TrainerConfig
    weights: tuple[float, float] = (1.0, 1.0)  # KTO: of desirable and undesirable answers


def learn(
    policy: Any,
    optimizer: Optimizer,
    examples: Sequence[Example],
    reference: Sequence[Tensor] | None,
    objective: Objective,
    *,
    progress: float,
    done: int,
) -> dict[str, float]:
    """Accumulate the gradient over micro-batches, step once; metrics under TRL's names.

    `reference` has the reference's segment log-probs of each example, None for a loss without.
    Rewards are unitless, logps in nats.
    """
    metrics = gradient(policy, examples, reference, objective)
    norm, rate = optimizer.step(progress, done)
    return metrics | {"grad_norm": norm, "learning_rate": rate}


def gradient(
    policy: Any,
    examples: Sequence[Example],
    reference: Sequence[Tensor] | None,
    objective: Objective,
) -> dict[str, float]:
    """The backward pass of `learn`: any split into micro-batches leaves the same gradient."""
    return _passed(policy, examples, reference, objective, backward=True)


@torch.no_grad()
def measure(
    policy: Any,
    examples: Sequence[Example],
    reference: Sequence[Tensor] | None,
    objective: Objective,
) -> dict[str, float]:
    """The metrics of examples that are not trained on."""
    return _passed(policy, examples, reference, objective, backward=False)


def _passed(
    policy: Any,
    examples: Sequence[Example],
    reference: Sequence[Tensor] | None,
    objective: Objective,
    *,
    backward: bool,
) -> dict[str, float]:
    whole = _whole(policy, examples, reference, objective)
    tally = Tally()
    for group in _pieces(examples, objective.trainer):
        here = [examples[i] for i in group]
        theirs = None if reference is None else _said(reference, group, here, policy)
        own = _scored(policy, here, objective)
        _note(tally, own, theirs, here, objective.loss)
        loss = share(own, theirs, here, objective.loss, whole)
        tally.add("loss", loss)
        if backward:
            loss.backward()
    return _means(tally.told(), whole, objective.loss)


def _said(
    reference: Sequence[Tensor], group: Sequence[int], here: Sequence[Example], policy: Any
) -> Sums:
    """What the reference says of a group of the examples, brought to the policy."""
    segments_S = torch.cat([reference[i] for i in group])
    return summed(brought(segments_S, device_of(policy)), here)


@torch.no_grad()
def _whole(
    policy: Any,
    examples: Sequence[Example],
    reference: Sequence[Tensor] | None,
    objective: Objective,
) -> Whole:
    """The counts of the step and, for KTO, its reference point over all of its examples."""
    whole = Whole(examples=len(examples), weights=objective.weights)
    if objective.loss.name != "kto" or reference is None:
        return whole
    own: list[Tensor] = []
    theirs: list[Tensor] = []
    for group in _pieces(examples, objective.trainer):
        here = [examples[i] for i in group]
        own.append(_one_segment(policy, [e.answers[1] for e in here], objective.trainer))
        theirs.append(_said(reference, group, here, policy).second_P)
    point = kto_reference_point(torch.cat(own), torch.cat(theirs))
    return replace(whole, reference_point=point.item())


def _scored(policy: Any, examples: Sequence[Example], objective: Objective) -> Sums:
    trainer = objective.trainer
    if objective.loss.name == "kto":  # mismatched answers have been read, and take no gradient
        first_P = _one_segment(policy, [e.answers[0] for e in examples], trainer)
        return Sums(first_P=first_P, second_P=first_P.detach(), segments_S=first_P)
    answers = [a for e in examples for a in e.answers]
    logp_S = segment_logps(policy, answers, trainer)
    return summed(logp_S, examples)


def _one_segment(policy: Any, answers: Sequence[Ids], trainer: TrainerConfig) -> Tensor:
    """Log-probs of answers that are not divided into segments, one each."""
    return segment_logps(policy, answers, trainer)


def _pieces(examples: Sequence[Example], trainer: TrainerConfig) -> Iterator[list[int]]:
    return pieces(examples, trainer.row * trainer.rows)


@torch.no_grad()
def _note(
    tally: Tally,
    own: Sums,
    theirs: Sums | None,
    examples: Sequence[Example],
    config: PreferenceLossConfig,
) -> None:
    """Implicit rewards: beta log(pi / ref), or beta log pi without a reference; of the mean
    log-probs where the loss takes those."""
    scale = config.tau if config.name == "ipo" else config.beta
    first_P, second_P = own.first_P, own.second_P
    by_token = config.name in ("simpo", "orpo") or config.length == "mean"
    ratios = own if theirs is None else Sums(
        first_P=own.first_P - theirs.first_P,
        second_P=own.second_P - theirs.second_P,
        segments_S=own.segments_S,
    )  # fmt: skip
    rewards = per_token(ratios, examples) if by_token else (ratios.first_P, ratios.second_P)
    good_P, bad_P = (scale * side for side in rewards)
    if config.name == "kto":
        liked_P = brought(torch.tensor([e.label for e in examples]), first_P.device)
        tally.add("chosen", good_P[liked_P].sum())
        tally.add("rejected", good_P[~liked_P].sum())
        tally.add("logps/chosen", first_P[liked_P].sum())
        tally.add("logps/rejected", first_P[~liked_P].sum())
        tally.add("liked", liked_P.sum())
        return
    tally.add("chosen", good_P.sum())
    tally.add("rejected", bad_P.sum())
    right = (good_P > bad_P).sum() + 0.5 * (good_P == bad_P).sum()  # at the start all are ties
    tally.add("right", right)
    tally.add("logps/chosen", first_P.sum())
    tally.add("logps/rejected", second_P.sum())


def _means(
    totals: dict[str, float], whole: Whole, config: PreferenceLossConfig
) -> dict[str, float]:
    """Means over the step. KTO's are over the answers of each kind, 0 where there is none."""
    paired = config.name != "kto"
    good = whole.examples if paired else totals["liked"]
    bad = whole.examples if paired else whole.examples - totals["liked"]
    chosen, rejected = totals["chosen"] / max(good, 1), totals["rejected"] / max(bad, 1)
    metrics = {
        "loss": totals["loss"],
        "rewards/chosen": chosen,
        "rewards/rejected": rejected,
        "rewards/margins": chosen - rejected,
        "logps/chosen": totals["logps/chosen"] / max(good, 1),
        "logps/rejected": totals["logps/rejected"] / max(bad, 1),
    }
    if paired:
        return metrics | {"rewards/accuracies": totals["right"] / whole.examples}
    return metrics | {"kl": whole.reference_point}
