"""How good a policy is on problems it has never seen: pass@1, pass@k, maj@k, greedy, format."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from data.problem import Problem
from pipeline.grade import Judges, Verifiers, grade
from pipeline.records import Graded
from pipeline.sampling.sampler import Sampler, Sampling
from pipeline.scribe import Scribe
from pipeline.statistics import Estimate, estimate, majority, pass_at_k


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One evaluation. Estimates are over problems; lengths are in tokens."""

    problems: int
    samples: int  # per problem, at `temperature`
    temperature: float
    estimates: Mapping[str, Estimate]  # "pass@1", "pass@k", "maj@k", "greedy", "format"
    mean_length: float
    truncated: float  # share of the samples cut by max_tokens
    failed: int  # samples that a verifier could not judge; left out

    def flat(self) -> dict[str, Any]:
        """For records: every estimate by name, its interval beside it."""
        values: dict[str, Any] = {name: e.value for name, e in self.estimates.items()}
        values |= {f"{name} 95%": [e.low, e.high] for name, e in self.estimates.items()}
        rest = asdict(replace(self, estimates={}))
        del rest["estimates"]
        return values | rest


def evaluate(
    sampler: Sampler,
    scribe: Scribe,
    problems: Sequence[Problem],
    verifiers: Verifiers,
    pool: Judges,
    sampling: Sampling,
    *,
    greedy: bool = True,
) -> Evaluation:
    """Sample and judge. `verifiers` needs the component "accuracy" and may have "format"."""
    graded = _graded(sampler, scribe, problems, verifiers, pool, sampling)
    estimates = _estimates(graded, sampling.per_prompt)
    if greedy:
        once = replace(sampling, per_prompt=1, temperature=0.0)
        best = _graded(sampler, scribe, problems, verifiers, pool, once)
        estimates["greedy"] = estimate([_score(g, "accuracy") for (g,) in best])
    flat = [g for group in graded for g in group]
    return Evaluation(
        problems=len(problems),
        samples=sampling.per_prompt,
        temperature=sampling.temperature,
        estimates=estimates,
        mean_length=sum(len(g.rollout.response_ids) for g in flat) / len(flat),
        truncated=sum(g.rollout.finish == "length" for g in flat) / len(flat),
        failed=sum(g.reward is None for g in flat),
    )


def _graded(
    sampler: Sampler,
    scribe: Scribe,
    problems: Sequence[Problem],
    verifiers: Verifiers,
    pool: Judges,
    sampling: Sampling,
) -> list[list[Graded]]:
    """The judged samples of each problem, those that could not be judged left in place."""
    groups = [(p.id, p) for p in problems]
    rollouts = scribe.rollouts(sampler, groups, sampling)
    graded = grade(rollouts, verifiers, pool, lambda _, verdicts: verdicts["accuracy"].score or 0.0)
    n = sampling.per_prompt
    return [graded[i : i + n] for i in range(0, len(graded), n)]


def _estimates(groups: Iterable[Sequence[Graded]], k: int) -> dict[str, Estimate]:
    judged = [[g for g in group if g.reward is not None] for group in groups]
    judged = [group for group in judged if group]
    right = [[_score(g, "accuracy") == 1.0 for g in group] for group in judged]
    found = {"pass@1": estimate([sum(r) / len(r) for r in right])}
    if k > 1:
        answers = [[g.verdicts["accuracy"].answer for g in group] for group in judged]
        found[f"pass@{k}"] = estimate([pass_at_k(len(r), sum(r), min(k, len(r))) for r in right])
        found[f"maj@{k}"] = estimate([majority(a, r) for a, r in zip(answers, right, strict=True)])
    if judged and "format" in judged[0][0].verdicts:
        found["format"] = estimate(
            [sum(_score(g, "format") for g in group) / len(group) for group in judged]
        )
    return found


def _score(graded: Graded, component: str) -> float:
    return graded.verdicts[component].score or 0.0
