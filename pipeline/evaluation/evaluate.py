"""Evaluate a policy on held-out problems, over all of them and per source."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import Any, Protocol

from veriloop.data.problem import GENERAL, Problem
from veriloop.data.sources import source_of
from veriloop.pipeline.errors import StageError
from veriloop.pipeline.evaluation.gains import Scores, by_problem
from veriloop.pipeline.evaluation.statistics import Estimate, estimate, pass_at_k, vote_at_k
from veriloop.pipeline.rollouts.generate import RolloutGenerator
from veriloop.pipeline.rollouts.grade import (
    Judges,
    Verifiers,
    check_failures,
    commonest,
    failure_reasons,
    grade,
    verdicts_of,
    verifier_names,
)
from veriloop.pipeline.sampling.sampler import Sampler, Sampling
from veriloop.pipeline.types import Graded

MEASURED: Verifiers = {"accuracy": None, "format": "think_format", "language": "language"}
SHARES = ("format", "language")  # components reported as their mean score
KEPT_PROBLEMS, KEPT_SAMPLES = 64, 2  # samples that are stored for reading

BySource = Mapping[str, Sequence[Sequence[Graded]]]  # source -> problems -> judged samples
Keep = Callable[[Sequence[Graded]], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One evaluation. Estimates are over problems; lengths are in tokens.

    "pass@1", "pass@k", "maj@k" and "greedy" cover the problems that have a right answer, those at k
    only problems whose k samples were all judged, and are left out where there is none;
    "pass@1/SOURCE" and "greedy/SOURCE" cover one source, if there are several. "general" is the
    share of good answers to general prompts, judged by an exact rule. "format" and "language" (the
    share of words in the language of the question) cover all problems.
    """

    problems: int
    samples: int  # per problem, at `temperature`
    temperature: float
    estimates: Mapping[str, Estimate]
    mean_length: float
    truncated: float  # share of the samples cut off by max_tokens
    failed: int  # answers, greedy ones too, that a verifier could not judge; in no estimate
    by_problem: Mapping[str, Any]  # as `gains.by_problem` makes it

    def flat(self) -> dict[str, Any]:
        """JSON values for records: each estimate by name, its interval as "NAME 95%"."""
        values: dict[str, Any] = {name: e.value for name, e in self.estimates.items()}
        values |= {f"{name} 95%": [e.low, e.high] for name, e in self.estimates.items()}
        rest = asdict(self)
        del rest["estimates"]
        return values | rest


class EvaluationStore(Protocol):
    """The evaluations of a run, so that a checkpoint is not asked the same twice."""

    def find(self, asked: Mapping[str, Any]) -> dict[str, Any] | None:
        """The evaluation of the current weights that `asked` this, as JSON values, if there is one;
        its samples are then kept for reading, as `keep` of `evaluate` would."""
        ...

    def add(self, asked: Mapping[str, Any], evaluation: Mapping[str, Any]) -> None:
        """Store an evaluation of the current weights, whose samples were kept."""
        ...


def evaluate(
    sampler: Sampler,
    generator: RolloutGenerator,
    problems: Sequence[Problem],
    verifiers: Verifiers,
    pool: Judges,
    sampling: Sampling,
    *,
    error_share: float,
    greedy: bool = True,
    keep: Keep | None = None,
    on_problem: Callable[[], object] = lambda: None,
    store: EvaluationStore | None = None,
) -> Evaluation:
    """Sample and judge, unless `store` has the result; one in which a verifier failed is not
    stored. `verifiers` must have the component "accuracy" and may have SHARES.

    `keep` receives a few samples of evenly spaced problems of each source, the same ones for the
    same `problems`. `on_problem` is called whenever a problem is sampled, `passes` times in all.

    Raises VerifierFailuresError if more than `error_share` of the samples could not be judged, and
    StageError if none of a source could be. Those that could not be judged count in no estimate.
    """
    asked: dict[str, Any] = {}
    if store is not None:
        asked = _asked(sampler, generator, problems, verifiers, pool, sampling, greedy=greedy)
        if stored := store.find(asked):
            return _restored(stored)
    graded = _graded(sampler, generator, problems, verifiers, pool, sampling, on_problem)
    if keep is not None:
        keep([g for group in _spread(graded) for g in group[:KEPT_SAMPLES]])
    flat = [g for group in graded for g in group]
    check_failures("evaluation", verdicts_of(flat), error_share)
    by_source = _judged_by_source(graded)
    if unjudged := [source for source, part in by_source.items() if not any(part)]:
        raise _none_judged(f"sample of {', '.join(unjudged)}", flat)
    scores = _sampled(by_source)
    best: list[Graded] = []
    if greedy and (reasoning := _reasoning(problems)):
        once = replace(sampling, per_prompt=1, temperature=0.0)
        groups = _graded(sampler, generator, reasoning, verifiers, pool, once, on_problem)
        best = [g for group in groups for g in group]
        check_failures("evaluation, greedy answers", verdicts_of(best), error_share)
        greedy_by_source = _judged_by_source(groups)
        if not any(any(part) for part in greedy_by_source.values()):
            raise _none_judged("greedy answer", best)
        scores |= _accuracy("greedy", greedy_by_source)
    result = Evaluation(
        problems=len(problems),
        samples=sampling.per_prompt,
        temperature=sampling.temperature,
        estimates=_means(scores) | _votes(by_source, sampling.per_prompt),
        by_problem=by_problem(problems, scores),
        mean_length=sum(len(g.rollout.response_ids) for g in flat) / len(flat),
        truncated=sum(g.rollout.finish == "length" for g in flat) / len(flat),
        failed=sum(g.reward is None for g in [*flat, *best]),
    )
    if store is not None and not result.failed:
        store.add(asked, asdict(result))
    return result


def _asked(
    sampler: Sampler,
    generator: RolloutGenerator,
    problems: Sequence[Problem],
    verifiers: Verifiers,
    pool: Judges,
    sampling: Sampling,
    *,
    greedy: bool,
) -> dict[str, Any]:
    """What decides an evaluation besides the weights and the code, as JSON values: of problems and
    their prompts, as the model reads them, a hash."""
    lines = (json.dumps([asdict(p), generator.prompt(p)], sort_keys=True) for p in problems)
    return {
        "problems": sha256("\n".join(lines).encode()).hexdigest(),
        "ends": sorted(generator.eos_ids),
        "sampling": asdict(sampling),
        "greedy": greedy,
        "sampler": [sampler.name, sampler.dtype],
        "measured": sorted(verifiers),
        "verifiers": pool.fingerprint(verifier_names(verifiers, problems)),
    }


def _restored(stored: Mapping[str, Any]) -> Evaluation:
    """The evaluation whose `asdict` was stored as JSON."""
    estimates = {name: Estimate(**values) for name, values in stored["estimates"].items()}
    return Evaluation(**{**stored, "estimates": estimates})


def passes(problems: Sequence[Problem], *, greedy: bool = True) -> int:
    """How many problems an evaluation samples; those of the greedy pass count again."""
    return len(problems) + (len(_reasoning(problems)) if greedy else 0)


def _spread(graded: Sequence[Sequence[Graded]]) -> Sequence[Sequence[Graded]]:
    """At most KEPT_PROBLEMS problems, in equal steps. Sources can alternate, so that equal steps
    through the list itself could always meet the same source."""
    by_source = sorted(graded, key=lambda group: source_of(group[0].rollout.problem))
    return by_source[:: -(-len(graded) // KEPT_PROBLEMS)]


def _reasoning(problems: Sequence[Problem]) -> list[Problem]:
    return [problem for problem in problems if source_of(problem) != GENERAL]


def _graded(
    sampler: Sampler,
    generator: RolloutGenerator,
    problems: Sequence[Problem],
    verifiers: Verifiers,
    pool: Judges,
    sampling: Sampling,
    on_problem: Callable[[], object],
) -> list[list[Graded]]:
    """The graded samples of each problem, including those that could not be judged."""
    groups = [(str(n), p) for n, p in enumerate(problems)]  # sources may share ids
    rollouts = generator.rollouts(sampler, groups, sampling, lambda _: on_problem())
    graded = grade(rollouts, verifiers, pool, lambda _, verdicts: verdicts["accuracy"].score or 0.0)
    n = sampling.per_prompt
    return [graded[i : i + n] for i in range(0, len(graded), n)]


def _sampled(by_source: BySource) -> Scores:
    """Each problem's scores: means over its samples."""
    parts = dict(by_source)
    everything = [group for part in parts.values() for group in part]
    general = parts.pop(GENERAL, [])
    scores = _accuracy("pass@1", parts)
    if general:
        scores["general"] = _shares_right(general)
    for component in SHARES:
        if component in next(filter(None, everything))[0].verdicts:
            scores[component] = [_mean(group, component) for group in everything]
    return scores


def _accuracy(name: str, parts: BySource) -> Scores:
    """Shares of right samples: NAME over all sources, and NAME/SOURCE where there are several."""
    scores: Scores = {f"{name}/{source}": _shares_right(part) for source, part in parts.items()}
    if not scores:
        return {}
    everything = [share for shares in scores.values() for share in shares]
    return {name: everything} | (scores if len(scores) > 1 else {})


def _votes(by_source: BySource, k: int) -> dict[str, Estimate]:
    """pass@k and maj@k over the problems that have a right answer and k judged samples; {} without
    any, or for k = 1. Where a verifier calls samples right without naming an answer, as for
    constraints, its problems have none to vote on, and no maj@k."""
    parts = [part for source, part in by_source.items() if source != GENERAL]
    judged = [group for part in parts for group in part if len(group) >= k]
    if k == 1 or not judged:
        return {}
    pass_k = [pass_at_k(len(group), sum(map(_is_right, group)), k) for group in judged]
    unnamed = {
        g.rollout.problem.verifier
        for group in judged
        for g in group
        if _is_right(g) and g.verdicts["accuracy"].answer is None
    }
    votes = [
        _vote(group, k) for group in judged if group[0].rollout.problem.verifier not in unnamed
    ]
    voted = {f"maj@{k}": estimate(votes)} if votes else {}
    return {f"pass@{k}": estimate(pass_k), **voted}


def _vote(group: Sequence[Graded], k: int) -> float:
    """maj@k of one problem. All right answers count as one, whatever their spelling; wrong ones
    are equal if they are spelled alike; samples without an answer do not vote."""
    named = [g for g in group if g.verdicts["accuracy"].answer is not None]
    right = sum(map(_is_right, named))
    wrong = Counter(g.verdicts["accuracy"].answer for g in named if not _is_right(g))
    return vote_at_k(right, list(wrong.values()), len(group) - len(named), k)


def _judged_by_source(groups: Sequence[Sequence[Graded]]) -> dict[str, list[list[Graded]]]:
    """The judged samples of each problem, of some problems none, by source."""
    by_source: dict[str, list[list[Graded]]] = {}
    for group in groups:
        part = by_source.setdefault(source_of(group[0].rollout.problem), [])
        part.append([g for g in group if g.reward is not None])
    return by_source


def _none_judged(what: str, graded: Sequence[Graded]) -> StageError:
    reasons = commonest(failure_reasons(verdicts_of(graded)))
    return StageError(f"evaluation: the verifiers failed on every {what}: {reasons}")


def _means(scores: Scores) -> dict[str, Estimate]:
    """The estimates of the metrics, of which at least one problem could be judged."""
    judged = {name: [s for s in values if s is not None] for name, values in scores.items()}
    return {name: estimate(values) for name, values in judged.items() if values}


def _shares_right(groups: Sequence[Sequence[Graded]]) -> list[float | None]:
    return [sum(map(_is_right, group)) / len(group) if group else None for group in groups]


def _mean(group: Sequence[Graded], component: str) -> float | None:
    return sum(_score(g, component) for g in group) / len(group) if group else None


def _is_right(graded: Graded) -> bool:
    return _score(graded, "accuracy") == 1.0


def _score(graded: Graded, component: str) -> float:
    return graded.verdicts[component].score or 0.0
