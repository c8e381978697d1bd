"""The answer is a program, judged by tests: it runs in a sandbox, the verdict is reached here.

Expected values never enter the sandbox that holds the program; what comes out of it is bytes and
plain data, and is compared in this process. The first failing test ends an all-or-nothing
judgement. All tests together take at most `CodeReference.seconds`, which the verifier states, so
that a VerifierPool adds them to its own limit: a program that hangs is a `timeout`, not an error.
"""

import atexit
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import replace

from data.problem import Problem
from sandbox.backends import DEFAULT, VARIABLE, open_backend
from sandbox.executor import Call, Executor, Program, Stdin
from sandbox.languages.polyglot import compile_seconds
from sandbox.limits import Limits
from sandbox.result import Execution
from verifiers.code_answer import program
from verifiers.code_outcome import NOTHING, OURS, Outcome, to_verdict
from verifiers.code_reference import AssertTest, CodeReference, DataTest, worst_seconds
from verifiers.compare import same_output, same_value
from verifiers.registry import verifier
from verifiers.split_harness import run_trial
from verifiers.verdict import Verdict

_opening = threading.Lock()
_opened: dict[int, Executor] = {}  # by process id: a forked process must not share its parent's


def executor() -> Executor:
    """This process's sandbox: the backend that VERILOOP_SANDBOX names, else namespaces. Opened at
    the first call, closed at exit. Raises what `open_backend` raises."""
    with _opening:
        if (owner := os.getpid()) not in _opened:
            _opened[owner] = open_backend(os.environ.get(VARIABLE) or DEFAULT, slots=1)
            atexit.register(_opened[owner].close)
        return _opened[owner]


def judge_program(box: Executor, source: str, reference: CodeReference) -> Verdict:
    """Run a program against its tests. Whatever the program does is a verdict; a failure of the
    sandbox, of the tests or of a special checker is an `error`."""
    tests = len(reference.tests)
    try:
        source.encode("utf-8")
    except UnicodeEncodeError:
        outcomes = [Outcome("error")]
    else:
        written = Program(
            source=source, language=reference.language, preload=tuple(reference.preload)
        )
        outcomes = _run_tests(box, written, reference)
    return to_verdict(outcomes, tests=tests, scoring=reference.scoring, answer=source)


def _run_tests(box: Executor, written: Program, reference: CodeReference) -> list[Outcome]:
    """Outcomes in the order of the tests: in batches that double, each with time for its worst."""
    ends = time.monotonic() + reference.seconds
    runs = 2 if reference.checker else 1  # for each test
    outcomes: list[Outcome] = []
    size = 1
    while left := list(reference.tests[len(outcomes) :]):
        compiling = 0.0 if outcomes else compile_seconds(reference.language)  # in the first batch
        seconds = ends - time.monotonic() - compiling
        if seconds <= 0:
            return outcomes + [Outcome("no_time")] * len(left)
        room = max(1, int(seconds / (runs * reference.limits.wall)))
        limits = replace(reference.limits, wall_s=min(reference.limits.wall, seconds / runs))
        done = _batch(box, written, left[: min(size, room)], limits, reference)
        outcomes += done
        if any(_decides(outcome, reference) for outcome in done):
            return outcomes
        size *= 2
    return outcomes


def _decides(outcome: Outcome, reference: CodeReference) -> bool:
    """Whether the verdict cannot change any more."""
    return outcome.ended in OURS or (reference.scoring == "all" and outcome.ended != "passed")


def _batch(
    box: Executor,
    written: Program,
    tests: Sequence[DataTest | AssertTest],
    limits: Limits,
    reference: CodeReference,
) -> list[Outcome]:
    asserts = [test for test in tests if isinstance(test, AssertTest)]
    data = [test for test in tests if isinstance(test, DataTest)]
    if asserts:
        needed = (reference.function, *reference.names)
        return [
            run_trial(box, written, needed, one.code, limits, reference.setup) for one in asserts
        ]
    ran = box.run_all(written, [test.given for test in data], limits)
    return [
        _outcome(box, test, execution, limits, reference)
        for test, execution in zip(data, ran, strict=True)
    ]


def _outcome(
    box: Executor, test: DataTest, ran: Execution, limits: Limits, reference: CodeReference
) -> Outcome:
    if ran.ended != "ok":
        return Outcome(ran.ended, ran.why if ran.ended in OURS else "")
    if reference.checker:
        return _special(box, test, ran, limits, reference)
    if isinstance(test.given, Stdin):
        right = same_output(ran.stdout, test.expected, reference.mode, reference.tolerance)
    else:
        right = same_value(ran.value, test.expected, reference.tolerance)
    return Outcome("passed" if right else "wrong")


def _special(
    box: Executor, test: DataTest, ran: Execution, limits: Limits, reference: CodeReference
) -> Outcome:
    """What the special checker says: foreign code, so it runs in a sandbox of its own.

    A checker that raises or hangs on an output has not accepted it.
    """
    output = ran.value
    if isinstance(test.given, Stdin):
        try:
            output = ran.stdout.decode("utf-8")
        except UnicodeDecodeError:
            return Outcome("wrong")
    asked = Call(function="check", args=(test.shown, output, test.expected))
    said = box.run(Program(source=reference.checker), asked, limits)
    if said.ended in OURS:
        return Outcome(said.ended, said.why)
    if said.ended == "ok" and not isinstance(said.value, bool):
        kind = type(said.value).__name__
        return Outcome("broken", f"the checker must return a bool, got {kind}")
    return Outcome("passed" if said.ended == "ok" and said.value else "wrong")


@verifier(
    "code_tests",
    components=tuple(NOTHING),
    reference={
        "tests": [{"args": [2, 3], "expected": 5}, {"args": [-1, 1], "expected": 0}],
        "function": "add",
        "limits": {"cpu_s": 1.0, "memory_mb": 128},
    },
    accepts="<think>Sum.</think><answer>```python\ndef add(a, b):\n    return a + b\n```</answer>",
    rejects=(
        "<answer>\n```python\ndef add(a, b):\n    return a - b\n```\n</answer>",
        "<answer>\n```python\ndef plus(a, b):\n    return a + b\n```\n</answer>",
        "<answer>\n```python\ndef add(a, b)\n    return a + b\n```\n</answer>",
        "<answer>\n```python\ndef add(a, b):\n    raise SystemExit(0)\n```\n</answer>",
        "<answer>def add(a, b): return a + b</answer><answer>def add(a, b): return 5</answer>",
        "<think>```python\ndef add(a, b):\n    return a + b\n```</think>",
        "<answer>5</answer>",
    ),
    other=(
        {"tests": [{"args": [2, 3], "expected": 6}], "function": "product"},
        "<answer>```python\ndef product(a, b):\n    return a * b\n```</answer>",
    ),
    seconds=lambda problem: worst_seconds(problem.reference),
)
def check(problem: Problem, response: str) -> Verdict:
    """The program in the response against the tests of the reference; see CodeReference."""
    reference = CodeReference.read(problem.reference)
    source = program(
        response,
        language=reference.language,
        prefilled_think=problem.facts.get("prefilled_think", False),
    )
    if source is None:
        return Verdict(
            score=0.0, status="no_answer", detail="no program in the response", components=NOTHING
        )
    return judge_program(executor(), source, reference)
