"""Metrics of one step, under TRL's names where TRL has one."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any

import torch
from torch import Tensor

from veriloop.data.sources import source_of
from veriloop.pipeline.losses.advantages import ZeroVariance, praised_failures, zero_variance
from veriloop.pipeline.rl.update import LENGTHS
from veriloop.pipeline.rollouts.grade import Verdicts, count_failed
from veriloop.pipeline.rollouts.reward_terms import VALUE
from veriloop.pipeline.sampling.sampler import CountsTokens, Sampler
from veriloop.pipeline.sampling.sync import SyncReport
from veriloop.pipeline.types import Graded, Update

MACHINE_METRICS = ("time/", "memory/", "system/")  # prefixes of metrics that depend on the machine

# The reflective words counted in DeepSeek-R1's Figure 9, and Chinese equivalents.
ENGLISH = ("wait", "mistake", "however", "but", "retry", "error", "verify", "wrong", "evaluate",
           "check")  # fmt: skip
CHINESE = ("等等", "等一下", "错", "但", "然而", "不过", "重试", "重新", "验证", "检验", "检查",
           "评估")  # fmt: skip

_WORD = re.compile(rf"\b(?:{'|'.join(ENGLISH)})\b|{'|'.join(CHINESE)}", re.IGNORECASE)
_CHECK = re.compile(r"\b(?:check|verify)\b|验证|检验|检查", re.IGNORECASE)
_NUMBERS = r"\d+(?:[+-]\d+)*"
_CORRECTION = re.compile(
    rf"(?P<wrong>{_NUMBERS})\s*[.。][^.。]*?(?:wrong|错)\s*[.。]\s*(?:wait|等等)\s*[,，]\s*"
    rf"(?P<instead>{_NUMBERS})",
    re.IGNORECASE,
)


def of_rollouts(
    graded: Sequence[Graded], advantages_N: Tensor, dropped: Sequence[Verdicts] = ()
) -> dict[str, float]:
    """Rewards, lengths and learning signal of a step. Only failed verifiers are counted in the
    answers of `dropped` groups too."""
    rewards = [g.reward for g in graded if g.reward is not None]
    lengths = [len(g.rollout.response_ids) for g in graded]
    ended = [len(g.rollout.response_ids) for g in graded if g.rollout.finish == "stop"]
    metrics = {
        "reward": fmean(rewards) if rewards else 0.0,
        "reward_std": pstdev(rewards) if rewards else 0.0,
        "completions/mean_length": fmean(lengths),
        "completions/min_length": float(min(lengths)),
        "completions/max_length": float(max(lengths)),
        "completions/mean_terminated_length": fmean(ended) if ended else 0.0,
        "completions/clipped_ratio": 1.0 - len(ended) / len(graded),
        "num_tokens": float(sum(len(g.rollout.prompt_ids) for g in graded) + sum(lengths)),
        "unscored": float(len(graded) - len(rewards) + count_failed(dropped)),
    }
    for component in dict.fromkeys(name for g in graded for name in g.verdicts):
        scores = _scores(graded, component)
        metrics[f"rewards/{component}/mean"] = fmean(scores) if scores else 0.0
        metrics[f"rewards/{component}/std"] = pstdev(scores) if scores else 0.0
        metrics |= _parts(graded, component) | _values(graded, component)
    metrics |= reflections(g.rollout.response for g in graded)
    return metrics | _signal(graded, advantages_N)


def _scores(graded: Sequence[Graded], component: str) -> list[float]:
    """The scores of the rollouts that the component judged."""
    verdicts = (g.verdicts[component] for g in graded if component in g.verdicts)
    return [v.score for v in verdicts if v.score is not None]


def _values(graded: Sequence[Graded], component: str) -> dict[str, float]:
    """The mean unbounded score of a reward term that is a function of the user."""
    verdicts = [g.verdicts[component] for g in graded if component in g.verdicts]
    values = [v.components[VALUE] for v in verdicts if VALUE in v.components]
    return {f"rewards/{component}/{VALUE}": fmean(values)} if values else {}


def _parts(graded: Sequence[Graded], component: str) -> dict[str, float]:
    """A component's mean by source and by language, where the step has several of them."""
    means: dict[str, float] = {}
    for key in (source_of, lambda problem: str(problem.facts.get("language", ""))):
        parts: dict[str, list[Graded]] = {}
        for g in graded:
            parts.setdefault(key(g.rollout.problem), []).append(g)
        if len(parts) > 1:
            scores = {name: _scores(part, component) for name, part in parts.items() if name}
            means |= {f"rewards/{component}/mean/{n}": fmean(s) for n, s in scores.items() if s}
    return means


def _signal(graded: Sequence[Graded], advantages_N: Tensor) -> dict[str, float]:
    """Shares of groups without reward variance, of those all right or all wrong by accuracy, and of
    failures with a positive advantage."""
    index = {group: i for i, group in enumerate(dict.fromkeys(g.rollout.group for g in graded))}
    groups_N = torch.tensor([index[g.rollout.group] for g in graded])

    def shares(scores: Sequence[float | None]) -> ZeroVariance:
        return zero_variance(
            torch.tensor([score or 0.0 for score in scores]),
            groups_N,
            torch.tensor([score is not None for score in scores]),
            lowest=0.0,
            highest=1.0,
        )

    accuracies = [g.verdicts["accuracy"].score for g in graded]
    decided = shares(accuracies)
    correct_N = torch.tensor([accuracy == 1.0 for accuracy in accuracies])
    return {
        "frac_reward_zero_std": shares([g.reward for g in graded]).tied,
        "frac_groups_all_right": decided.at_highest,
        "frac_groups_all_wrong": decided.at_lowest,
        "frac_praised_failures": praised_failures(advantages_N, correct_N),
    }


def of_staleness(graded: Sequence[Graded], done: int) -> dict[str, float]:
    """Optimizer steps by which the weights that sampled a token are older than those of `done`
    steps, which learn from it: the mean over the tokens, and the largest."""
    ages = [
        done - version
        for r in (g.rollout for g in graded)
        for version in r.versions or [r.policy_version] * len(r.response_ids)
    ]
    return {"staleness": fmean(ages), "staleness/max": float(max(ages))}


def of_updates(updates: Sequence[Update]) -> dict[str, float]:
    """Means over the optimizer steps of one turn; empty if no rollout could be trained on."""
    if not updates:
        return {}
    return {
        "loss": fmean(u.loss for u in updates),
        "kl": fmean(u.kl for u in updates),
        "entropy": fmean(u.entropy for u in updates),
        "clip_ratio/low_mean": fmean(u.clipped_low for u in updates),
        "clip_ratio/high_mean": fmean(u.clipped_high for u in updates),
        "clip_ratio/region_mean": fmean(u.clipped_low + u.clipped_high for u in updates),
        "importance_ratio/mean": fmean(u.ratio_mean for u in updates),
        "old_kl": fmean(u.old_kl for u in updates),
        "value_loss": fmean(u.value_loss for u in updates),
        "trust_region/kept": fmean(u.kept for u in updates),
        "grad_norm": fmean(u.grad_norm for u in updates),
        "learning_rate": updates[-1].learning_rate,
        "frac_tokens_scored": _scored(updates),
        # Only the first update scores with the policy that sampled.
        "sampling/sampling_logp_difference/mean": updates[0].mismatch_mean,
        "sampling/sampling_logp_difference/max": updates[0].mismatch_max,
        **_pretraining(updates),
        **_dropped(updates),
    }


def _pretraining(updates: Sequence[Update]) -> dict[str, float]:
    """The loss on text, of the updates that had one."""
    losses = [u.ptx_loss for u in updates if u.ptx_loss is not None]
    return {"ptx_loss": fmean(losses)} if losses else {}


def _scored(updates: Sequence[Update]) -> float:
    """Share of the response tokens that went through the forward pass."""
    return sum(u.scored for u in updates) / max(sum(u.tokens for u in updates), 1)


def _dropped(updates: Sequence[Update]) -> dict[str, float]:
    """Shares of the turn's tokens that a mismatch mask dropped, by response length.

    A mask that mostly drops long responses would train the policy to be short.
    """
    names = [f"below_{edge}" for edge in LENGTHS] + [f"from_{LENGTHS[-1]}"]
    columns = zip(*(u.dropped for u in updates if u.dropped), strict=True)
    shares = dict[str, float]()
    for name, column in zip(names, columns, strict=False):
        dropped, tokens = (sum(counts) for counts in zip(*column, strict=True))
        if dropped:
            shares[f"mismatch/dropped/{name}"] = dropped / tokens
    return shares


def reproducible(row: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics a repeated or resumed run reproduces: all but times and the machine's use."""
    return {n: v for n, v in row.items() if n != "step_time" and not n.startswith(MACHINE_METRICS)}


def of_sync(report: SyncReport) -> dict[str, float]:
    moved = {} if report.moved is None else {"sync/moved": report.moved}
    return {"sync/max": report.max, "sync/mean": report.mean, **moved}


def of_servers(sampler: Sampler) -> dict[str, float]:
    """Tokens that each of several servers has sampled since the last call; empty for one engine."""
    if not isinstance(sampler, CountsTokens):
        return {}
    counts = sampler.take_tokens().items()
    return {f"system/sampled/{url.partition('://')[2]}": float(count) for url, count in counts}


@dataclass(frozen=True, slots=True)
class Reflection:
    verifies: bool  # announces a check
    corrects: bool  # calls a value wrong and continues with another
    words: int  # reflective words


def reflection(response: str) -> Reflection:
    """Reflective behaviour in one response; English words match whole ("button" has no "but")."""
    corrections = _CORRECTION.finditer(response)
    return Reflection(
        verifies=_CHECK.search(response) is not None,
        corrects=any(match["wrong"] != match["instead"] for match in corrections),
        words=len(_WORD.findall(response)),
    )


def reflections(responses: Iterable[str]) -> dict[str, float]:
    """Shares of the responses (at least one) that verify and correct; mean reflective words."""
    per_response = [reflection(response) for response in responses]
    return {
        "reflection/verify": fmean(r.verifies for r in per_response),
        "reflection/correct": fmean(r.corrects for r in per_response),
        "reflection/words": fmean(r.words for r in per_response),
    }
