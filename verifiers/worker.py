"""The worker's side of the pool: code of a process that may be killed at any time."""

import os
import pickle
import resource
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b

from veriloop.data.problem import Problem
from veriloop.sandbox.backends import AUTO, VARIABLE
from veriloop.sandbox.child_signals import leave_to_parent
from veriloop.verifiers.registry import Task, get, judge, load_plugin
from veriloop.verifiers.verdict import Verdict

CACHE_SIZE = 4096  # verdicts
_ANSWER_CHARS = 2000  # longest answer of a cached verdict
_WAKE_S = 0.5  # how often a worker checks that its parent is alive

_cache: dict[bytes, Verdict] = {}  # by digest of problem and response, the oldest first


def judge_chunk(payload: bytes, began: float, budget_s: float) -> bytes:
    """Judge the first items, at least one, until the budget is spent.

    `began` is the caller's monotonic clock, which all processes of a machine share.
    """
    tasks: list[Task] = pickle.loads(payload)
    started = time.monotonic()
    verdicts: list[Verdict] = []
    for problem, response in tasks:
        now = time.monotonic()
        if verdicts and now - started > budget_s:
            break
        verdicts.append(replace(_judge(problem, response), queue_s=now - began))
    return pickle.dumps(verdicts)


def _judge(problem: Problem, response: str) -> Verdict:
    """Judge each pair of problem and response once, since samples of a group are often equal.

    Timeouts and errors are not cached.
    """
    start = time.perf_counter()
    key = blake2b(pickle.dumps((problem, response)), digest_size=16).digest()
    cached = _cache.get(key)
    if cached is not None:
        return replace(cached, exec_s=time.perf_counter() - start)
    verdict = judge(problem, response)
    if verdict.status in ("graded", "no_answer") and len(verdict.answer or "") <= _ANSWER_CHARS:
        _cache[key] = verdict
        if len(_cache) > CACHE_SIZE:
            del _cache[next(iter(_cache))]
    return verdict


def warm_up(names: Sequence[str]) -> None:
    """Judge the examples of these verifiers, which imports all that they need."""
    for name in names:
        verifier = get(name)
        verdict = judge(verifier.example_problem(), verifier.example.accepts)
        if verdict.status == "error":
            raise RuntimeError(f"{name}: {verdict.detail}")


def prepare(
    parent: int, memory_mb: int, plugins: Sequence[str], warm: Sequence[str], sandbox: str
) -> None:
    """Initialise a new worker: limits, backend of the sandbox, plugins, imports."""
    leave_to_parent()
    os.environ |= {"SYMPY_GROUND_TYPES": "python", "MPMATH_NOGMPY": "1"}  # GMP defers signals
    if sandbox != AUTO:
        os.environ[VARIABLE] = sandbox
    _bound_memory(memory_mb << 20)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    threading.Thread(target=_die_with, args=(parent,), daemon=True).start()
    os.dup2(2, 1)  # standard output belongs to the command; what verifiers print is a log
    for plugin in plugins:
        load_plugin(plugin)
    warm_up(warm)


def _bound_memory(size: int) -> None:
    """Limit the address space to `size` bytes, which macOS refuses to do.

    Only the soft limit: the sandbox of a program, which this process starts, has its own limits.
    """
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    soft = size if hard == resource.RLIM_INFINITY else min(size, hard)
    try:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    except (OSError, ValueError):
        if sys.platform == "linux":
            raise


def _die_with(parent: int) -> None:
    # PR_SET_PDEATHSIG would fire when the *thread* that started this process ends.
    while os.getppid() == parent:
        time.sleep(_WAKE_S)
    os._exit(1)
