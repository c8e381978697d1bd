"""What every dialect needs: problems out of labels, verdicts that are none of our failures."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from data.problem import Problem
from verifiers.labels import problem_for
from verifiers.registry import fingerprint, get
from verifiers.service.desk import Desk
from verifiers.service.refusal import Refusal
from verifiers.verdict import Verdict
from verifiers.worker import Task

RETRY_S = 1.0  # what a peer is told to wait after a failure of ours
TRIES = 2  # for an item that met a failure of ours, before a peer hears of it


def reward_hash(fingerprints: Mapping[str, str]) -> str:
    """16 hex digits that change when one of these verifiers does; `fingerprints` by name."""
    told = json.dumps(dict(fingerprints), sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()[:16]


@dataclass(kw_only=True)
class Judging:
    """The verifiers a service offers and the desk they work at."""

    desk: Desk
    names: Sequence[str]  # of the verifiers offered
    default: str = ""  # for labels that name none
    fingerprints: Mapping[str, str] = field(init=False)
    ready: bool = False

    def __post_init__(self) -> None:
        self.fingerprints = fingerprint(sorted(self.names))
        self.hash = reward_hash(self.fingerprints)

    def judged_by(self, names: Iterable[str]) -> dict[str, Any]:
        """Who judged: version and source of each verifier, and one hash of them all."""
        found = {name: self.fingerprints[name] for name in sorted(set(names))}
        return {"verifiers": found, "hash": reward_hash(found)}

    def offered(self, name: str) -> str:
        """The name, if it is offered. Raises Refusal 422 with the nearest one otherwise."""
        try:
            get(name)
        except KeyError as unknown:
            raise Refusal(422, str(unknown.args[0])) from unknown
        if name not in self.names:
            told = f"verifier {name!r} is not offered here; offered: {', '.join(self.names)}"
            raise Refusal(422, told)
        return name

    def problem(
        self, label: Any, verifier: str = "", prompt: str = "", facts: Mapping[str, Any] = {}
    ) -> Problem:
        """The problem of a label; `verifier` before the service's default. Raises Refusal 422."""
        try:
            found = problem_for(label, verifier or self.default, prompt=prompt, facts=facts)
        except KeyError as unknown:
            raise Refusal(422, str(unknown.args[0])) from unknown
        except ValueError as mistake:
            raise Refusal(422, str(mistake)) from mistake
        self.offered(found.verifier)
        return found

    async def attempt(self, tasks: Sequence[Task]) -> list[Verdict]:
        """Verdicts in order. A failure of ours is tried again before it stands as an `error`."""
        verdicts = await self.desk.submit(tasks).all()
        for _ in range(TRIES - 1):
            failed = [n for n, verdict in enumerate(verdicts) if verdict.score is None]
            if failed:
                again = await self.desk.submit([tasks[n] for n in failed]).all()
                for n, verdict in zip(failed, again, strict=True):
                    verdicts[n] = verdict
        return verdicts

    async def scores(self, tasks: Sequence[Task]) -> list[float]:
        """Scores in order, for peers that know nothing else. Raises Refusal 503 where one of the
        items has no score: none of them is then told, least of all a 0."""
        verdicts = await self.attempt(tasks)
        failed = [verdict.detail for verdict in verdicts if verdict.score is None]
        if failed:
            raise Refusal(503, f"{len(failed)} items could not be judged: {failed[0]}", RETRY_S)
        return [verdict.score for verdict in verdicts if verdict.score is not None]
