"""One optimizer step on preference examples: log-probs, loss, backward, update, metrics.

Axes: P examples of a micro-batch, S segments of their answers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from veriloop.pipeline.cluster.deal import counted, gathered_values
from veriloop.pipeline.config.preference import PreferenceLossConfig
from veriloop.pipeline.config.sections import TrainerConfig
from veriloop.pipeline.losses.preference import kto_reference_point
from veriloop.pipeline.model.device import brought, device_of
from veriloop.pipeline.model.sharded import SINGLE, Ranks
from veriloop.pipeline.preference.examples import Example
from veriloop.pipeline.preference.logps import example_groups, segment_logps
from veriloop.pipeline.preference.objective import StepTotals, Sums, per_token, share, sum_segments
from veriloop.pipeline.training.accumulate import accumulated
from veriloop.pipeline.training.measurements import Tally
from veriloop.pipeline.training.optimizer import Optimizer


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceObjective:
    """The loss and the trainer settings."""

    loss: PreferenceLossConfig
    trainer: TrainerConfig
    weights: tuple[float, float]  # KTO: of desirable, undesirable answers


def learn(
    policy: Any,
    optimizer: Optimizer,
    examples: Sequence[Example],
    reference: Sequence[Tensor] | None,
    objective: PreferenceObjective,
    *,
    progress: float,
    done: int,
    ranks: Ranks = SINGLE,
) -> dict[str, float]:
    """Accumulate the gradient over micro-batches and step once; metrics under TRL's names.

    `reference` has the reference's segment log-probs of each example; None for reference-free
    losses. Rewards are unitless, logps in nats. All `ranks` take part.
    """
    metrics = ranks.together(gradient, policy, examples, reference, objective)
    ranks.command("step", progress, done)
    norm, rate = optimizer.step(progress, done)
    return metrics | {"grad_norm": norm, "learning_rate": rate}


@torch.no_grad()
def measure(
    policy: Any,
    examples: Sequence[Example],
    reference: Sequence[Tensor] | None,
    objective: PreferenceObjective,
    ranks: Ranks = SINGLE,
) -> dict[str, float]:
    """Metrics of examples, without a gradient."""
    return gradient(policy, examples, reference, objective, ranks, backward=False)


def gradient(
    policy: Any,
    examples: Sequence[Example],
    reference: Sequence[Tensor] | None,
    objective: PreferenceObjective,
    ranks: Ranks = SINGLE,
    *,
    backward: bool = True,
) -> dict[str, float]:
    """The backward pass of `learn`; the gradient does not depend on the micro-batches."""
    groups = example_groups(examples, objective.trainer, ranks.count)
    totals = _totals(policy, examples, groups, reference, objective, ranks)

    def group_share(group: Sequence[int], tally: Tally) -> Tensor:
        batch = [examples[i] for i in group]
        reference_sums = None if reference is None else _gathered(reference, group, batch, policy)
        policy_sums = _scored(policy, batch, objective)
        _add_metrics(tally, policy_sums, reference_sums, batch, objective.loss)
        return share(policy_sums, reference_sums, batch, objective.loss, totals)

    sums = accumulated(groups, group_share, ranks, backward=backward)
    return _means(sums, totals, objective.loss)


def _gathered(
    reference: Sequence[Tensor], group: Sequence[int], batch: Sequence[Example], policy: Any
) -> Sums:
    """The reference log-probs of a micro-batch, on the policy's device."""
    segments_S = torch.cat([reference[i] for i in group])
    return sum_segments(brought(segments_S, device_of(policy)), batch)


@torch.no_grad()
def _totals(
    policy: Any,
    examples: Sequence[Example],
    groups: Sequence[Sequence[int]],
    reference: Sequence[Tensor] | None,
    objective: PreferenceObjective,
    ranks: Ranks,
) -> StepTotals:
    """The totals of the step; for KTO this scores all mismatched answers."""
    totals = StepTotals(examples=len(examples), weights=objective.weights)
    if objective.loss.name != "kto" or reference is None:
        return totals
    policy_logps: list[Tensor] = []
    reference_logps: list[Tensor] = []
    for group, _ in counted(ranks, groups):
        answers = [examples[i].answers[1] for i in group]
        policy_logps.append(segment_logps(policy, answers, objective.trainer))
    for group in groups:
        batch = [examples[i] for i in group]
        reference_logps.append(_gathered(reference, group, batch, policy).second_P)
    policy_logps = gathered_values(ranks, [len(group) for group in groups], policy_logps)
    reference_N = torch.cat(reference_logps)
    policy_N = brought(torch.cat(policy_logps), reference_N.device)
    point = kto_reference_point(policy_N, reference_N)
    return replace(totals, reference_point=point.item())


def _scored(policy: Any, examples: Sequence[Example], objective: PreferenceObjective) -> Sums:
    trainer = objective.trainer
    if objective.loss.name == "kto":  # mismatched answers take no gradient; see _totals
        first_P = segment_logps(policy, [e.answers[0] for e in examples], trainer)
        return Sums(first_P=first_P, second_P=first_P, segments_S=first_P)
    answers = [a for e in examples for a in e.answers]
    logp_S = segment_logps(policy, answers, trainer)
    return sum_segments(logp_S, examples)


@torch.no_grad()
def _add_metrics(
    tally: Tally,
    policy: Sums,
    reference: Sums | None,
    examples: Sequence[Example],
    config: PreferenceLossConfig,
) -> None:
    """Add implicit rewards and log-probs: beta log(pi / ref), or beta log pi without a reference.

    Losses on mean log-probs have rewards of those.
    """
    scale = config.tau if config.name == "ipo" else config.beta
    first_P, second_P = policy.first_P, policy.second_P
    by_token = config.name in ("simpo", "orpo") or config.length == "mean"
    ratios = policy if reference is None else Sums(
        first_P=first_P - reference.first_P,
        second_P=second_P - reference.second_P,
        segments_S=policy.segments_S,
    )  # fmt: skip
    rewards = per_token(ratios, examples) if by_token else (ratios.first_P, ratios.second_P)
    good_P, bad_P = (scale * side for side in rewards)
    if config.name == "kto":
        desirable_P = brought(torch.tensor([e.label for e in examples]), first_P.device)
        tally.add("chosen", good_P[desirable_P].sum())
        tally.add("rejected", good_P[~desirable_P].sum())
        tally.add("logps/chosen", first_P[desirable_P].sum())
        tally.add("logps/rejected", first_P[~desirable_P].sum())
        tally.add("desirable", desirable_P.sum())
        return
    tally.add("chosen", good_P.sum())
    tally.add("rejected", bad_P.sum())
    right = (good_P > bad_P).sum() + 0.5 * (good_P == bad_P).sum()  # at the start all are ties
    tally.add("right", right)
    tally.add("logps/chosen", first_P.sum())
    tally.add("logps/rejected", second_P.sum())


def _means(
    sums: dict[str, float], totals: StepTotals, config: PreferenceLossConfig
) -> dict[str, float]:
    """Means over the step; KTO's are over the answers of each label, 0 if there are none."""
    paired = config.name != "kto"
    good = totals.examples if paired else sums["desirable"]
    bad = totals.examples if paired else totals.examples - sums["desirable"]
    chosen, rejected = sums["chosen"] / max(good, 1), sums["rejected"] / max(bad, 1)
    metrics = {
        "loss": sums["loss"],
        "rewards/chosen": chosen,
        "rewards/rejected": rejected,
        "rewards/margins": chosen - rejected,
        "logps/chosen": sums["logps/chosen"] / max(good, 1),
        "logps/rejected": sums["logps/rejected"] / max(bad, 1),
    }
    if paired:
        return metrics | {"rewards/accuracies": sums["right"] / totals.examples}
    return metrics | {"kl": totals.reference_point}
