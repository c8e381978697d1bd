"""What every adapter shares: one pool for this process, and what a failure of ours may become.

VERILOOP_SERVICE names a reward service to ask; otherwise VERILOOP_WORKERS (1) worker processes
judge here, so that no answer can hang or take down a trainer.
"""

import atexit
import os
import threading
from collections.abc import Sequence
from typing import Literal

from verifiers.pool import VerifierPool
from verifiers.service.client import ServicePool
from verifiers.verdict import Verdict
from verifiers.worker import Task

SERVICE_VARIABLE, WORKERS_VARIABLE = "VERILOOP_SERVICE", "VERILOOP_WORKERS"
OnError = Literal["raise", "zero"]

_opening = threading.Lock()
_pools: dict[int, VerifierPool | ServicePool] = {}  # by process id: a fork must not share


class RewardUnavailableError(RuntimeError):
    """A failure of ours, where a reward was asked for: it is no wrong answer."""


def pool() -> VerifierPool | ServicePool:
    """This process's pool, opened at the first call and closed at exit.

    Raises ValueError for variables of the environment that make no sense.
    """
    with _opening:
        if (owner := os.getpid()) not in _pools:
            service = os.environ.get(SERVICE_VARIABLE, "")
            made = ServicePool(service) if service else VerifierPool(_workers())
            _pools[owner] = made
            atexit.register(made.close)
        return _pools[owner]


def judged(tasks: Sequence[Task]) -> list[Verdict]:
    """Verdicts in order; what failed on our side has been tried twice."""
    verdicts = pool().judge_all(tasks)
    failed = [n for n, verdict in enumerate(verdicts) if verdict.score is None]
    if failed:
        again = pool().judge_all([tasks[n] for n in failed])
        for n, verdict in zip(failed, again, strict=True):
            verdicts[n] = verdict
    return verdicts


def score(verdict: Verdict, on_error: OnError) -> float:
    """The score. Without one: RewardUnavailableError, or 0.0 where the user asked for that."""
    if verdict.score is not None:
        return verdict.score
    if on_error == "zero":
        return 0.0
    raise RewardUnavailableError(verdict.detail)


def _workers() -> int:
    told = os.environ.get(WORKERS_VARIABLE, "1")
    if not told.isdigit() or not int(told):
        raise ValueError(f"{WORKERS_VARIABLE} must be a number of processes, got {told!r}")
    return int(told)
