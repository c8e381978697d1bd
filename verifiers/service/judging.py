"""Shared by all dialects: problems from labels, and verdicts with retries of failures."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from veriloop.data.problem import Problem
from veriloop.sandbox.remote.json_size import MAX_VALUES, json_values
from veriloop.sandbox.remote.refusal import Refusal
from veriloop.verifiers.labels import problem_for
from veriloop.verifiers.registry import Task, fingerprint, get
from veriloop.verifiers.service.queue import Desk
from veriloop.verifiers.verdict import Verdict

RETRY_S = 1.0  # Retry-After of a failure to judge
_LONG_LABEL = 4096  # characters
_BAD_LABEL = frozenset(
    {"ValueError", "TypeError", "KeyError", "IndexError", "AttributeError", "OverflowError"}
)  # exceptions that a bad reference causes
TRIES = 2  # of an item that could not be judged, before the client learns of it


def reward_hash(fingerprints: Mapping[str, str]) -> str:
    """16 hex digits that change when one of these verifiers does; `fingerprints` by name."""
    text = json.dumps(dict(fingerprints), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(kw_only=True)
class Judging:
    """The verifiers that a service offers, and the desk that queues their tasks."""

    desk: Desk
    names: Sequence[str]  # of the verifiers offered
    default: str = ""  # for labels that name none
    fingerprints: Mapping[str, str] = field(init=False)
    ready: bool = False

    def __post_init__(self) -> None:
        self.fingerprints = fingerprint(sorted(self.names))
        self.hash = reward_hash(self.fingerprints)

    def judged_by(self, names: Iterable[str]) -> dict[str, Any]:
        """Version and source of each verifier that took part, and one hash of them all."""
        fingerprints = {name: self.fingerprints[name] for name in sorted(set(names))}
        return {"verifiers": fingerprints, "hash": reward_hash(fingerprints)}

    def offered(self, name: str) -> str:
        """The name, if it is offered. Raises Refusal 422 with the nearest one otherwise."""
        try:
            get(name)
        except KeyError as unknown:
            raise Refusal(422, str(unknown.args[0])) from unknown
        if name not in self.names:
            offered = ", ".join(self.names)
            raise Refusal(422, f"verifier {name!r} is not offered here; offered: {offered}")
        return name

    def problem(
        self, label: Any, verifier: str = "", prompt: str = "", facts: Mapping[str, Any] = {}
    ) -> Problem:
        """The problem of a label; `verifier` overrides the default. Raises Refusal 422."""
        if isinstance(label, str) and len(label) > _LONG_LABEL:
            raw = label.encode("utf-8", "surrogatepass")
            if json_values(raw) > MAX_VALUES:
                raise Refusal(422, f"a label has more than {MAX_VALUES} JSON values")
        try:
            problem = problem_for(label, verifier or self.default, prompt=prompt, facts=facts)
        except KeyError as unknown:
            raise Refusal(422, str(unknown.args[0])) from unknown
        except (ValueError, TypeError) as mistake:
            raise Refusal(422, str(mistake)) from mistake
        self.offered(problem.verifier)
        return problem

    def problems(
        self, labels: Sequence[Any], verifier: str = "", prompts: Sequence[str] = ()
    ) -> list[Problem]:
        """The problems of several labels. Raises Refusal 422 naming the item."""
        problems: list[Problem] = []
        for n, label in enumerate(labels):
            try:
                problems.append(self.problem(label, verifier, prompts[n] if prompts else ""))
            except Refusal as refusal:
                raise Refusal(refusal.status, f"item {n}: {refusal.detail}") from refusal
        return problems

    async def attempt(self, tasks: Sequence[Task], *, strict: bool = True) -> list[Verdict]:
        """Verdicts in order. What could not be judged is tried again before it is an `error`.

        `strict`: raise Refusal 422 for a label that its verifier refuses, naming the item.
        """
        verdicts = await self.desk.submit(tasks).all()
        for _ in range(TRIES - 1):
            failed = [n for n, verdict in enumerate(verdicts) if verdict.score is None]
            suspects = [n for n in failed if _kind(verdicts[n]) in _BAD_LABEL] if strict else []
            if failed:
                probes = [_probe(tasks[n]) for n in suspects]
                retried = await self.desk.submit([*(tasks[n] for n in failed), *probes]).all()
                for n, verdict in zip(suspects, retried[len(failed) :], strict=True):
                    if _kind(verdict) == _kind(verdicts[n]):
                        detail = f"its label cannot be used: {verdicts[n].detail}"
                        raise Refusal(422, f"item {n}: {detail}")
                for n, verdict in zip(failed, retried[: len(failed)], strict=True):
                    verdicts[n] = verdict
        return verdicts

    async def scores(self, tasks: Sequence[Task]) -> list[float]:
        """Scores in order, for protocols without an error status.

        Raises Refusal 503 where any item has no score, so that no failure is sent as a 0.
        """
        verdicts = await self.attempt(tasks)
        failed = [verdict.detail for verdict in verdicts if verdict.score is None]
        if failed:
            raise Refusal(503, f"{len(failed)} items could not be judged: {failed[0]}", RETRY_S)
        return [verdict.score for verdict in verdicts if verdict.score is not None]


def _probe(task: Task) -> Task:
    """The same problem with the example's response: it fails alike where the label is at fault."""
    return task[0], get(task[0].verifier).example.accepts


def _kind(verdict: Verdict) -> str:
    """The type of the exception that an `error` verdict names."""
    return verdict.detail.partition(":")[0] if verdict.status == "error" else ""
