"""How good a policy is on problems it has never seen, on all of them and by their sources."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from data.problem import GENERAL, Problem, source_of
from pipeline.failures import StageError
from pipeline.grade import Judges, Verifiers, grade
from pipeline.records import Graded
from pipeline.sampling.sampler import Sampler, Sampling
from pipeline.scribe import Scribe
from pipeline.statistics import Estimate, estimate, majority, pass_at_k

MEASURED: Verifiers = {"accuracy": None, "format": "think_format", "language": "language"}
SHARES = ("format", "language")  # components whose mean is an estimate of its own
KEPT_PROBLEMS, KEPT_SAMPLES = 64, 2  # whose samples are kept, to be read then and later

Keep = Callable[[Sequence[Graded]], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One evaluation. Estimates are over problems; lengths are in tokens.

    "pass@1", "pass@k", "maj@k" and "greedy" are over the problems that have a right answer, and
    "pass@1/SOURCE" over those of one source, where there are several. "general" is the share of
    good answers to general prompts, by their exact rule. "format" and "language" (the share of
    words in the language of the question) are over all problems.
    """

    problems: int
    samples: int  # per problem, at `temperature`
    temperature: float
    estimates: Mapping[str, Estimate]
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
    keep: Keep | None = None,
) -> Evaluation:
    """Sample and judge. `verifiers` needs the component "accuracy" and may have those of SHARES.

    `keep` is given a few samples of problems spread evenly over all, the same ones every time.

    Raises StageError where no sample of a source could be judged.
    """
    graded = _graded(sampler, scribe, problems, verifiers, pool, sampling)
    if keep is not None:
        spread = graded[:: -(-len(graded) // KEPT_PROBLEMS)]
        keep([g for group in spread for g in group[:KEPT_SAMPLES]])
    estimates = _estimates(graded, sampling.per_prompt)
    reasoning = [problem for problem in problems if source_of(problem) != GENERAL]
    if greedy and reasoning:
        once = replace(sampling, per_prompt=1, temperature=0.0)
        best = _graded(sampler, scribe, reasoning, verifiers, pool, once)
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
    by_source = _judged(groups)
    judged = [group for part in by_source.values() for group in part]
    general = by_source.pop(GENERAL, [])
    found = _right_answers([group for part in by_source.values() for group in part], k)
    if len(by_source) > 1:
        for source, part in by_source.items():
            found[f"pass@1/{source}"] = estimate(_shares_right(part))
    if general:
        found["general"] = estimate(_shares_right(general))
    for component in SHARES:
        if component in judged[0][0].verdicts:
            scores = ([_score(g, component) for g in group] for group in judged)
            found[component] = estimate([sum(s) / len(s) for s in scores])
    return found


def _judged(groups: Iterable[Sequence[Graded]]) -> dict[str, list[list[Graded]]]:
    """By source: the samples of each problem that could be judged, where there are any."""
    found: dict[str, list[list[Graded]]] = {}
    for group in groups:
        part = found.setdefault(source_of(group[0].rollout.problem), [])
        if judged := [g for g in group if g.reward is not None]:
            part.append(judged)
    lost = [source for source, part in found.items() if not part]
    if lost:
        raise StageError(f"evaluation: the verifiers failed on every sample of {', '.join(lost)}")
    return found


def _right_answers(judged: Sequence[Sequence[Graded]], k: int) -> dict[str, Estimate]:
    """What several samples of each problem say; nothing where there is no problem."""
    if not judged:
        return {}
    found = {"pass@1": estimate(_shares_right(judged))}
    if k > 1:
        right = [[_is_right(g) for g in group] for group in judged]
        answers = [[g.verdicts["accuracy"].answer for g in group] for group in judged]
        found[f"pass@{k}"] = estimate([pass_at_k(len(r), sum(r), min(k, len(r))) for r in right])
        found[f"maj@{k}"] = estimate([majority(a, r) for a, r in zip(answers, right, strict=True)])
    return found


def _shares_right(judged: Sequence[Sequence[Graded]]) -> list[float]:
    return [sum(map(_is_right, group)) / len(group) for group in judged]


def _is_right(graded: Graded) -> bool:
    return _score(graded, "accuracy") == 1.0


def _score(graded: Graded, component: str) -> float:
    return graded.verdicts[component].score or 0.0
