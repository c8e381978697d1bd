"""The answer is a program: it runs in a sandbox, and its results are compared in this process.

Expected values never enter the sandbox of the program; only bytes and plain data leave it. With the
scoring "all", the first failing test ends the judgement. All tests together use at most
`CodeReference.work_s` of CPU time and take at most `CodeReference.seconds`, which the verifier
declares so that a VerifierPool adds them to its own limit: a program that hangs is a `timeout`, not
an error.
"""

import atexit
import os
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from veriloop.data.problem import Problem
from veriloop.sandbox.backends import open_backend, resolve
from veriloop.sandbox.executor import Call, Executor, Program, Stdin
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.result import Execution
from veriloop.sandbox.suite import Case
from veriloop.verifiers.code.answer import extract_program
from veriloop.verifiers.code.budget import Budget
from veriloop.verifiers.code.compare import same_output, same_value
from veriloop.verifiers.code.outcome import NO_PROGRAM, OURS, Outcome, to_verdict
from veriloop.verifiers.code.reference import AssertTest, CodeReference, DataTest, worst_seconds
from veriloop.verifiers.code.soundness import (
    REFUSED,
    REFUSED_EXPECTED,
    refuse_expected,
    refuse_solution,
)
from veriloop.verifiers.code.split_harness import run_trial
from veriloop.verifiers.registry import verifier
from veriloop.verifiers.verdict import Verdict, no_answer

_lock = threading.Lock()
_executors: dict[int, Executor] = {}  # by process id: a fork must not share its parent's executor


def executor() -> Executor:
    """This process's sandbox, from the backend that VERILOOP_SANDBOX names, else `namespace`.

    Opened by the first call and closed at exit. Raises what `open_backend` raises.
    """
    with _lock:
        if (owner := os.getpid()) not in _executors:
            _executors[owner] = open_backend(resolve(), slots=1)
            atexit.register(_executors[owner].close)
        return _executors[owner]


def judge_program(box: Executor, source: str, reference: CodeReference) -> Verdict:
    """Run a program against its tests.

    A failure of the sandbox, of the tests or of a special checker is an `error` verdict, as are
    assert tests that the reference's solution fails; any behaviour of the program leads to another
    status.
    """
    try:
        source.encode("utf-8")
    except UnicodeEncodeError:
        outcomes = [Outcome("error")]
    else:
        program = Program(
            source=source, language=reference.language, preload=tuple(reference.preload)
        )
        outcomes = _run_tests(box, program, reference)
        failed = any(outcome.ended not in ("passed", *OURS) for outcome in outcomes)
        if failed and refuse_solution(reference, lambda own: _run_tests(box, own, reference)):
            outcomes = [REFUSED]
    tests = len(reference.tests)
    return to_verdict(outcomes, tests=tests, scoring=reference.scoring, answer=source)


def grade(box: Executor, case: Case) -> tuple[float | None, str]:
    """(reward, detail) of a case of the attack suite, judged like a program of a model."""
    reference = CodeReference.read(
        {
            "tests": case.tests,
            "function": case.function,
            "language": case.language,
            "limits": asdict(case.limits),
        }
    )
    verdict = judge_program(box, case.source, reference)
    return verdict.score, verdict.detail


def _run_tests(box: Executor, program: Program, reference: CodeReference) -> list[Outcome]:
    """Outcomes in the order of the tests.

    Tests run in batches of doubling size; a batch starts only if the time suffices for its worst
    case. The outcome of tests that never ran is "no_time" after too much CPU time, and "wall" after
    the time of the clock, which a busy host may have spent.
    """
    budget = Budget(reference.work_s, reference.program_s)
    runs = 2 if reference.checker else 1  # per test
    outcomes: list[Outcome] = []
    size = 1
    while remaining := list(reference.tests[len(outcomes) :]):
        if spent := budget.spent:
            late = Outcome("no_time" if spent == "cpu" else "wall")
            return outcomes + [late] * len(remaining)
        seconds = budget.left_s
        affordable = max(1, int(seconds / (runs * reference.limits.wall)))
        limits = replace(reference.limits, wall_s=min(reference.limits.wall, seconds / runs))
        batch = remaining[: min(size, affordable)]
        batch_outcomes = _Trial(box, program, limits, reference, budget).outcomes(batch)
        outcomes += batch_outcomes
        if any(_is_decisive(outcome, reference) for outcome in batch_outcomes):
            return outcomes
        size *= 2
    return outcomes


def _is_decisive(outcome: Outcome, reference: CodeReference) -> bool:
    """Whether later outcomes cannot change the verdict."""
    return outcome.ended in OURS or (reference.scoring == "all" and outcome.ended != "passed")


@dataclass(frozen=True, slots=True)
class _Trial:
    """A program under test, and what its tests may use."""

    box: Executor
    program: Program
    limits: Limits
    reference: CodeReference
    budget: Budget

    def outcomes(self, tests: Sequence[DataTest | AssertTest]) -> list[Outcome]:
        """In the order of the tests, which are all of one kind."""
        asserts = [test for test in tests if isinstance(test, AssertTest)]
        data = [test for test in tests if isinstance(test, DataTest)]
        if asserts:
            needed, setup = (self.reference.function, *self.reference.names), self.reference.setup
            return [
                run_trial(
                    self.box, self.program, needed, test.code, self.limits, setup, self.budget
                )
                for test in asserts
            ]
        executions = self.box.run_all(self.program, [test.invocation for test in data], self.limits)
        for execution in executions:
            self.budget.charge(execution, self.limits.wall)
        return [
            self._outcome(test, execution) for test, execution in zip(data, executions, strict=True)
        ]

    def _outcome(self, test: DataTest, execution: Execution) -> Outcome:
        if execution.ended != "ok":
            return Outcome(execution.ended, execution.why if execution.ended in OURS else "")
        reference = self.reference
        if reference.checker:
            return self._checked(test, execution)
        if isinstance(test.invocation, Stdin):
            right = same_output(
                execution.stdout, test.expected, reference.mode, reference.tolerance
            )
        else:
            right = same_value(execution.value, test.expected, reference.tolerance)
        return Outcome("passed" if right else "wrong")

    def _checked(self, test: DataTest, execution: Execution) -> Outcome:
        """By the special checker, which is untrusted code and runs in its own sandbox.

        A checker that ends without a value has not accepted the output. One that fails on the
        expected output too is at fault itself.
        """
        output = execution.value
        if isinstance(test.invocation, Stdin):
            try:
                output = execution.stdout.decode("utf-8")
            except UnicodeDecodeError:
                return Outcome("wrong")
        checked = self._check(test, output, self.limits)
        if checked.ended in OURS:
            return Outcome(checked.ended, checked.why)
        if checked.ended != "ok" and refuse_expected(self.reference.checker, test, self._again):
            return REFUSED_EXPECTED
        if checked.ended == "ok" and not isinstance(checked.value, bool):
            kind = type(checked.value).__name__
            return Outcome("broken", f"the checker must return a bool, got {kind}")
        return Outcome("passed" if checked.ended == "ok" and checked.value else "wrong")

    def _check(self, test: DataTest, output: Any, limits: Limits) -> Execution:
        call = Call(function="check", args=(test.checker_input, output, test.expected))
        checked = self.box.run(Program(source=self.reference.checker), call, limits)
        self.budget.charge(checked, limits.wall)
        return checked

    def _again(self, test: DataTest) -> str:
        """How the checker ends on the expected output; "wall" if no time is left."""
        if self.budget.spent:
            return "wall"
        limits = replace(self.limits, wall_s=min(self.limits.wall, self.budget.left_s))
        return self._check(test, test.expected, limits).ended


@verifier(
    "code_tests",
    version="4",
    components=tuple(NO_PROGRAM),
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
    parts=("veriloop.verifiers.code.split",),  # loaded as files, so not found by their imports
)
def check(problem: Problem, response: str) -> Verdict:
    """The program in the response, judged by the tests of the reference; see CodeReference."""
    reference = CodeReference.read(problem.reference)
    prefilled = problem.facts.get("prefilled_think", False)
    source = extract_program(
        response,
        language=reference.language,
        function=reference.function,
        prefilled_think=prefilled,
    )
    if source is None:
        return replace(no_answer("no program in the response"), components=NO_PROGRAM)
    return judge_program(executor(), source, reference)
