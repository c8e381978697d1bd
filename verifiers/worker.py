"""The worker's side of the pool: what runs inside a process that may be killed at any time."""

import os
import pickle
import resource
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import replace

from data.problem import Problem
from verifiers.registry import get, judge, load_plugin
from verifiers.verdict import Verdict

Task = tuple[Problem, str]  # a problem and the response to it

_WAKE_S = 0.5  # how often a worker looks whether its parent is still there


def judge_chunk(payload: bytes, began: float, budget_s: float) -> bytes:
    """In the worker: verdicts of the first items, at least one, until the budget is spent.

    `began` is the caller's monotonic clock, which is one for all processes of the machine.
    """
    tasks: list[Task] = pickle.loads(payload)
    started = time.monotonic()
    verdicts: list[Verdict] = []
    for problem, response in tasks:
        now = time.monotonic()
        if verdicts and now - started > budget_s:
            break
        verdicts.append(replace(judge(problem, response), queue_s=now - began))
    return pickle.dumps(verdicts)


def warm_up(names: Sequence[str]) -> None:
    """Judge the examples of these verifiers, so that all they import is here before the work."""
    for name in names:
        one = get(name)
        verdict = judge(one.example_problem(), one.example.accepts)
        if verdict.status == "error":
            raise RuntimeError(f"{name}: {verdict.detail}")


def prepare(parent: int, memory_mb: int, plugins: Sequence[str], warm: Sequence[str]) -> None:
    """In a new worker, before it takes work: bounds, plugins, imports."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent to handle
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a handler would wait for C code to return
    os.environ |= {"SYMPY_GROUND_TYPES": "python", "MPMATH_NOGMPY": "1"}  # GMP defers signals
    resource.setrlimit(resource.RLIMIT_AS, (memory_mb << 20, memory_mb << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    threading.Thread(target=_die_with, args=(parent,), daemon=True).start()
    for plugin in plugins:
        load_plugin(plugin)
    warm_up(warm)


def _die_with(parent: int) -> None:
    # The kernel's own parent-death signal fires when the starting *thread* ends: no use here.
    while os.getppid() == parent:
        time.sleep(_WAKE_S)
    os._exit(1)
