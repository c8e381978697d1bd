"""Checks a task's assert tests on its reference solution: tests that it fails are at fault.

Once a program has answered, tests cannot show whether a failure is theirs or the program's. The
reference solution shows it, at the first failure of a program, once per task and process. A special
checker is tried on the expected output in the same way.
"""

import hashlib
import threading
from collections.abc import Callable, Sequence

from veriloop.sandbox.executor import Program
from veriloop.verifiers.code.outcome import OUT_OF_TIME, Outcome
from veriloop.verifiers.code.reference import AssertTest, CodeReference, DataTest

REFUSED = Outcome("broken", "the tests refuse the reference solution")
REFUSED_EXPECTED = Outcome("broken", "the checker fails on the expected output too")
_MAX_TASKS = 100_000

_lock = threading.Lock()
_refused: dict[bytes, bool] = {}  # by digest of a task


def refuse_solution(reference: CodeReference, run: Callable[[Program], Sequence[Outcome]]) -> bool:
    """Whether assert tests refuse the reference's solution; False without one.

    `run` returns the outcomes of the tests on a program. A solution that runs out of time, or whose
    sandbox fails, decides nothing, and is tried again at the next failure.
    """
    if not reference.solution or not isinstance(reference.tests[0], AssertTest):
        return False
    task = _digest(reference)
    with _lock:
        if task in _refused:
            return _refused[task]
    program = Program(source=reference.solution, preload=tuple(reference.preload))
    ends = {outcome.ended for outcome in run(program)}
    if ends & {*OUT_OF_TIME, "sandbox_error"}:
        return False
    return _kept(task, ends != {"passed"})


def refuse_expected(checker: str, test: DataTest, run: Callable[[DataTest], str]) -> bool:
    """Whether a special checker fails on a test's expected output: it raises, exits, returns no
    plain data, or needs too much CPU time, memory or output.

    `run` returns how the checker ends on it. Running out of the time of the clock, and a failure of
    the sandbox, decide nothing.
    """
    parts = (checker, repr(test.checker_input), repr(test.expected))
    task = hashlib.sha256("\0".join(parts).encode("utf-8", "backslashreplace")).digest()
    with _lock:
        if task in _refused:
            return _refused[task]
    ended = run(test)
    return False if ended in ("wall", "sandbox_error") else _kept(task, ended != "ok")


def _kept(task: bytes, refused: bool) -> bool:
    with _lock:
        if len(_refused) >= _MAX_TASKS:
            _refused.clear()
        _refused[task] = refused
    return refused


def _digest(reference: CodeReference) -> bytes:
    tests = [test.code for test in reference.tests if isinstance(test, AssertTest)]
    parts = (reference.solution, reference.setup, reference.function, *reference.names, *tests)
    return hashlib.sha256("\0".join(parts).encode("utf-8", "backslashreplace")).digest()
