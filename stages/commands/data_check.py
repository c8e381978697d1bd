"""Check a data set: its own answers must pass its verifiers, answers of other problems must not."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from veriloop.data.hub.load import Entry
from veriloop.data.hub.reference_answers import given_answers, reference_answers
from veriloop.data.problem import Problem
from veriloop.pipeline.rollouts.grade import Judges
from veriloop.verifiers.registry import get
from veriloop.verifiers.verdict import Verdict

Task = tuple[Problem, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """Counts, and the ids of problems that failed a check."""

    problems: int
    answers: int  # own answers that were verified
    unanswered: int  # problems whose row has no answer
    refused: tuple[str, ...]  # "id: reason" of own answers that the verifier rejects
    failed: tuple[str, ...]  # "id: reason" of problems on which the verifier failed
    strangers: int  # answers of other problems that were verified
    mistaken: tuple[str, ...]  # problems that accept another's answer, but not the reverse
    duplicates: tuple[str, ...]  # problems with the question of an earlier one
    too_long: tuple[str, ...]  # problems whose prompt is too long

    @property
    def sound(self) -> bool:
        """Whether own answers were verified, all are accepted and every other problem's is not."""
        return self.answers > 0 and not (self.refused or self.failed or self.mistaken)


def check(
    entries: Sequence[Entry],
    judges: Judges,
    fits: Callable[[Problem], bool] = lambda _: True,
    most: int = 1,
    *,
    given: bool = False,
) -> Checked:
    """Verify at most `most` own answers of each problem, and one answer of another problem. Of the
    problems without an own answer one for each verifier shows whether it can read the references.

    The own answers are made from the reference or, if they are `given`, are the row's responses.
    """
    answers = given_answers if given else reference_answers
    owns = [answers(entry, most) for entry in entries]
    tasks = [
        (entry.problem, answer) for entry, own in zip(entries, owns, strict=True) for answer in own
    ]
    judged = list(zip(tasks, judges.judge_all(tasks), strict=True))
    unanswered = [entry.problem for entry, own in zip(entries, owns, strict=True) if not own]
    probes = [(p, get(p.verifier).example.accepts) for p in _one_of_each_verifier(unanswered)]
    probed = zip(probes, judges.judge_all(probes), strict=True)
    pairs = _neighbours([(e.problem, own[0]) for e, own in zip(entries, owns, strict=True) if own])
    return Checked(
        problems=len(entries),
        answers=len(tasks),
        unanswered=len(unanswered),
        refused=tuple(_reason(p, v) for (p, _), v in judged if v.score is not None and v.score < 1),
        failed=tuple(_reason(p, v) for (p, _), v in (*judged, *probed) if v.score is None),
        strangers=len(pairs),
        mistaken=_mistaken(pairs, judges),
        duplicates=_repeated([entry.problem for entry in entries]),
        too_long=tuple(entry.problem.id for entry in entries if not fits(entry.problem)),
    )


def _one_of_each_verifier(problems: Iterable[Problem]) -> list[Problem]:
    first: dict[str, Problem] = {}
    for problem in problems:
        first.setdefault(problem.verifier, problem)
    return list(first.values())


def _neighbours(own: Iterable[Task]) -> list[tuple[Task, Task]]:
    """Pair each problem with the next one of its verifier that has another reference."""
    pairs: list[tuple[Task, Task]] = []
    ordered = sorted(own, key=lambda task: task[0].verifier)
    for _, same in groupby(ordered, key=lambda task: task[0].verifier):
        ring = list(same)
        adjacent = zip(ring, ring[1:] + ring[:1], strict=True)
        pairs += [(a, b) for a, b in adjacent if a[0].reference != b[0].reference]
    return pairs


def _mistaken(pairs: Sequence[tuple[Task, Task]], judges: Judges) -> tuple[str, ...]:
    """Problems that accept their neighbour's answer.

    Two problems that accept each other's answers have equivalent answers, which is no mistake.
    """
    verdicts = judges.judge_all([(a, answer) for (a, _), (_, answer) in pairs])
    accepted = [pair for pair, verdict in zip(pairs, verdicts, strict=True) if verdict.score == 1.0]
    reverse = judges.judge_all([(b, answer) for (_, answer), (b, _) in accepted])
    return tuple(
        f"{a.id}: accepts {answer[:60]!r}, the answer to {b.id}"
        for ((a, _), (b, answer)), verdict in zip(accepted, reverse, strict=True)
        if verdict.score != 1.0
    )


def _repeated(problems: Iterable[Problem]) -> tuple[str, ...]:
    prompts: set[str] = set()
    duplicates: list[str] = []
    for problem in problems:
        prompt = " ".join(problem.prompt.split())
        if prompt in prompts:
            duplicates.append(problem.id)
        prompts.add(prompt)
    return tuple(duplicates)


def _reason(problem: Problem, verdict: Verdict) -> str:
    return f"{problem.id}: {verdict.status}, {verdict.detail[:80] or verdict.answer or ''}"
