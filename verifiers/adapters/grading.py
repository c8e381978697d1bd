"""Shared by all adapters: the verifier pool of this process, and the treatment of failures.

VERILOOP_SERVICE is the address of a reward service. Without it, VERILOOP_WORKERS (1) worker
processes judge, so that no response can hang or kill a trainer. VERILOOP_PLUGINS names files and
modules with further verifiers.
"""

import os
import threading
from collections.abc import Sequence
from multiprocessing.util import Finalize
from typing import Literal

from veriloop.verifiers.pool import VerifierPool
from veriloop.verifiers.registry import Task
from veriloop.verifiers.service.client import ServicePool
from veriloop.verifiers.verdict import Verdict

SERVICE_VARIABLE, WORKERS_VARIABLE = "VERILOOP_SERVICE", "VERILOOP_WORKERS"
OnError = Literal["raise", "zero"]

_opening = threading.Lock()
_pools: dict[int, VerifierPool | ServicePool] = {}  # by process id: a fork must not share one


class RewardUnavailableError(RuntimeError):
    """A response could not be judged. It has no reward, which is not a reward of 0."""


def pool() -> VerifierPool | ServicePool:
    """This process's pool, opened at the first call and closed at exit.

    Raises ValueError for an invalid environment variable.
    """
    with _opening:
        if (owner := os.getpid()) not in _pools:
            service = os.environ.get(SERVICE_VARIABLE, "")
            opened = ServicePool(service) if service else VerifierPool(_workers())
            _pools[owner] = opened
            # At exit, also of a process of multiprocessing: it joins its children before atexit.
            Finalize(None, opened.close, exitpriority=0)
        return _pools[owner]


def judge_tasks(tasks: Sequence[Task]) -> list[Verdict]:
    """Verdicts in order; tasks that could not be judged are tried twice."""
    verdicts = pool().judge_all(tasks)
    failed = [n for n, verdict in enumerate(verdicts) if verdict.score is None]
    if failed:
        retried = pool().judge_all([tasks[n] for n in failed])
        for n, verdict in zip(failed, retried, strict=True):
            verdicts[n] = verdict
    return verdicts


def score(verdict: Verdict, on_error: OnError) -> float:
    """The score. Without one: 0.0 if `on_error` is "zero", else RewardUnavailableError."""
    if verdict.score is not None:
        return verdict.score
    if on_error == "zero":
        return 0.0
    raise RewardUnavailableError(verdict.detail)


def _workers() -> int:
    workers = os.environ.get(WORKERS_VARIABLE, "1")
    if not workers.isdigit() or not int(workers):
        raise ValueError(f"{WORKERS_VARIABLE} must be a number of processes, got {workers!r}")
    return int(workers)
