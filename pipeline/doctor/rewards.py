"""Checks that verifiers score their examples as declared, and identically in every process."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from veriloop.pipeline.doctor.checkpoint_under_test import CheckpointUnderTest
from veriloop.pipeline.doctor.finding import Finding, fail, ok, skipped
from veriloop.verifiers.pool import VerifierPool
from veriloop.verifiers.registry import Task, Verifier, all_verifiers, judge
from veriloop.verifiers.verdict import Verdict

LOCAL_RUNS = 2  # judgements in this process; every pool adds one in another process
EXAMPLES, SAME = "verifiers, examples", "verifiers, same verdict"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    task: Task
    score: float  # declared by its verifier


def rewards(checkpoint: CheckpointUnderTest) -> Iterator[Finding]:
    """Each registered verifier on its own examples, then all of them again in other processes."""
    del checkpoint
    usable: dict[str, Verifier] = {}
    findings = []
    for name, verifier in sorted(all_verifiers().items()):
        finding = _check_examples(verifier)
        if finding is None:
            usable[name] = verifier
        else:
            findings.append(finding)
    count = sum(len(cases(verifier)) for verifier in usable.values())
    yield ok(EXAMPLES, f"{len(usable)} verifiers score {count} examples as declared", count)
    yield from findings
    yield from _check_repeatability(usable)


def cases(verifier: Verifier) -> list[_Case]:
    """The verifier's examples with their declared scores."""
    problem, example = verifier.example_problem(), verifier.example
    examples = [_Case(task=(problem, example.accepts), score=1.0)]
    examples += [_Case(task=(problem, response), score=0.0) for response in example.rejects]
    if example.other is not None:
        reference, accepts = example.other
        other = verifier.problem(reference, f"example/{verifier.name}/other")
        examples.append(_Case(task=(other, accepts), score=1.0))
    return examples


def _check_examples(verifier: Verifier) -> Finding | None:
    """The finding of a verifier that scores an example wrongly or cannot run; None if all pass."""
    name = f"verifier {verifier.name}"
    for case in cases(verifier):
        verdict = judge(*case.task)
        if verdict.status == "error" and verifier.needs:
            return skipped(name, verdict.detail, f"provide {verifier.needs}")
        if verdict.score != case.score:
            measured = f"{case.task[1][:40]!r} scores {verdict.score}, declared {case.score} "
            measured += f"({verdict.status}: {verdict.detail})"
            return fail(name, measured, f"veriloop verifier check {verifier.name}")
    return None


def _check_repeatability(usable: Mapping[str, Verifier]) -> Iterator[Finding]:
    tasks = [case.task for verifier in usable.values() for case in cases(verifier)]
    runs = [[judge(*task) for task in tasks] for _ in range(LOCAL_RUNS)]
    # Two pools in opposite orders, since a worker may carry state from one judgement to the next.
    for order in (1, -1):
        with VerifierPool(1, plugins=plugin_files(usable.values())) as pool:
            runs.append(pool.judge_all(tasks[::order])[::order])
    differing = {
        problem.verifier: sorted({_describe(verdict) for verdict in verdicts})
        for (problem, _), verdicts in zip(tasks, zip(*runs, strict=True), strict=True)
        if len({_key(verdict) for verdict in verdicts}) > 1
    }
    for name, verdicts in differing.items():
        yield fail(f"verifier {name}", f"several verdicts on one answer: {'; '.join(verdicts)}",
                   "seed its random numbers, sort what it reads, and avoid clocks")  # fmt: skip
    if not differing:
        processes = 1 + len(runs) - LOCAL_RUNS
        measured = f"{len(tasks)} answers, {len(runs)} times in {processes} processes"
        yield ok(SAME, measured, len(tasks))


def plugin_files(verifiers: Iterable[Verifier]) -> list[str]:
    """Files of the plugins that registered verifiers, for workers to load."""
    modules = {verifier.check.__module__ for verifier in verifiers}
    plugins = [m for m in modules if m.startswith("veriloop_plugin_")]
    return sorted(str(sys.modules[m].__file__) for m in plugins)


def _key(verdict: Verdict) -> tuple[Any, ...]:
    parts = tuple(sorted(verdict.components.items()))
    return verdict.score, verdict.status, verdict.answer, parts


def _describe(verdict: Verdict) -> str:
    return f"{verdict.score} {verdict.status}, answer {verdict.answer!r}"
