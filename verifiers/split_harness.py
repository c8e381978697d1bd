"""Tests that are code, run without letting what they expect come near the program.

The tests run in one sandbox against a stub, the program in another. Where the tests call the
function, the stub has no result yet, and the run ends by asking for one; the program is run on
those arguments, and the tests start again with all results so far. Only arguments and results
cross, as plain data, so the program reaches neither the tests nor their verdict.

What cannot cross is not supported: callables, generators and objects as arguments or results,
and arguments changed in place. Every call finds a freshly loaded program.
"""

import re
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sandbox.executor import Call, Executor, Program
from sandbox.limits import Limits
from sandbox.result import Execution
from verifiers.code_outcome import OURS, Outcome

MAX_CALLS = 200  # of the function under test, in one test

_RAISED = re.compile(r"^(?:\w+\.)*([A-Z]\w*)(?=:|$)", re.MULTILINE)  # as a traceback ends
_UNLOADED = {  # there is no such function: no test may count this as the error it waits for
    "SyntaxError", "IndentationError", "TabError", "NameError", "ImportError",
    "ModuleNotFoundError",
}  # fmt: skip

_TESTS_SIDE = '''
import builtins, copy, random

class _Ask(BaseException):
    """No result yet: leave the tests."""

def _failure(kind):
    found = getattr(builtins, kind, None)
    if not (isinstance(found, type) and issubclass(found, Exception)):
        found = RuntimeError
    try:
        return found("raised by the program under test")
    except TypeError:
        return RuntimeError("raised by the program under test")

def trial(function, setup, tests, log):
    random.seed(0)
    asked, raised, strayed, calls = [], [], [], []

    def stub(*args, **kwargs):
        if asked:
            raise _Ask
        if len(calls) == len(log):
            asked.append(["call", list(copy.deepcopy(args)), copy.deepcopy(kwargs)])
            raise _Ask
        was_args, was_kwargs, kind, result = log[len(calls)]
        calls.append(None)
        now = list(args), kwargs
        if (was_args, was_kwargs) != now and repr((was_args, was_kwargs)) != repr(now):
            strayed.append(None)
        if kind:
            raised.append(_failure(kind))
            raise raised[-1]
        return result

    def run():
        names = {"__name__": "tests"}
        exec(compile(setup, "setup.py", "exec"), names)
        names[function] = names["candidate"] = stub
        names["Solution"] = type("Solution", (), {function: staticmethod(stub)})
        exec(compile(tests, "tests.py", "exec"), names)
        check = names.get("check")
        if callable(check) and check is not stub and not (calls or asked):
            check(stub)

    ended = ["passed"]
    try:
        run()
    except BaseException as failure:
        theirs = any(failure is one for one in raised)
        broken = isinstance(failure, (NameError, ImportError, SyntaxError, SystemExit))
        ended = ["broken", type(failure).__name__] if broken and not theirs else ["wrong"]
    if asked:
        return asked[0]
    if strayed:
        return ["broken", "calls differ from one run to the next"]
    if not calls and ended == ["passed"]:
        return ["broken", "the function is never called"]
    return ended
'''


def run_trial(
    box: Executor, program: Program, function: str, tests: str, limits: Limits, setup: str = ""
) -> Outcome:
    """Whether `tests` pass on the program's `function`.

    `limits` hold for each run of either side, their wall time for the whole trial. Tests that
    call `check(candidate)` by themselves or leave it to us both work. "broken" when the tests
    cannot be used: they fail without any call, never call, pass what is not plain data, differ
    from run to run, or call more than MAX_CALLS times.
    """
    ends = time.monotonic() + limits.wall
    log: list[tuple[list[Any], dict[str, Any], str, Any]] = []

    def run(what: Program, call: Call) -> Execution:
        left = ends - time.monotonic()
        if left <= 0:
            return Execution(ended="wall")
        return box.run(what, call, replace(limits, wall_s=left))

    tests_side = Program(source=_TESTS_SIDE, preload=program.preload)
    for _ in range(MAX_CALLS + 1):
        told = run(tests_side, Call(function="trial", args=(function, setup, tests, log)))
        asked = _asked(told, begun=bool(log))
        if isinstance(asked, Outcome):
            return asked
        answered = _answer(run, program, Call(function=function, args=asked[0], kwargs=asked[1]))
        if isinstance(answered, Outcome):
            return answered
        log.append((*asked, *answered))
    return Outcome("broken", f"the tests call the function more than {MAX_CALLS} times")


def _asked(told: Execution, *, begun: bool) -> tuple[list[Any], dict[str, Any]] | Outcome:
    """The arguments the tests ask a result for, or how they ended."""
    if told.ended in OURS:
        return Outcome(told.ended, told.why)
    if told.ended in ("protocol", "error"):  # `trial` itself never raises
        return Outcome("broken", "the tests pass arguments that are not plain data")
    if told.ended != "ok":  # with no result yet, the program has no part in it
        return Outcome(told.ended) if begun else Outcome("broken", f"ended {told.ended} unasked")
    match told.value:
        case ["call", list() as args, dict() as kwargs]:
            return args, kwargs
        case ["broken", str() as why]:
            return Outcome("broken", why)
        case ["passed" | "wrong" as ended]:
            return Outcome(ended)
        case _:
            return Outcome("broken", "the harness lost its place")


def _answer(
    run: Callable[[Program, Call], Execution], program: Program, call: Call
) -> tuple[str, Any] | Outcome:
    """("", result) or (name of the exception, None); an outcome where the trial is over."""
    ran = run(program, call)
    if ran.ended == "ok":
        return "", ran.value
    if ran.ended in OURS:
        return Outcome(ran.ended, ran.why)
    if ran.ended != "error":
        return Outcome(ran.ended)
    named = _RAISED.findall(ran.stderr.decode("utf-8", "replace"))
    kind = named[-1] if named else "RuntimeError"
    return Outcome("error") if kind in _UNLOADED else (kind, None)
