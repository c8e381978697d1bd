"""Runs assert-style tests on a backend that runs one program at a time.

A run cannot wait for the other side, so each message takes one run: the side whose turn it is
restarts with all messages received so far and ends with its next message.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from veriloop.sandbox.executor import Call, Executor, Program
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.result import Execution
from veriloop.verifiers.code.budget import Budget
from veriloop.verifiers.code.outcome import OURS, Outcome
from veriloop.verifiers.code.split.protocol import digest
from veriloop.verifiers.code.split_code import side_call, side_program

MAX_QUESTIONS = 300  # requests of the tests to the program, in one trial
MAX_CALLBACKS = 300  # requests of the program to the tests


def run_replayed(
    box: Executor,
    program: Program,
    needed: Sequence[str],
    tests: str,
    limits: Limits,
    setup: str,
    budget: Budget,
) -> Outcome:
    """The outcome of `tests` on the program, as `split_harness.run_trial` has it.

    The `limits` hold for each message of either side, with CPU time for the repeated part; all runs
    together may use the wall limit as CPU time, which is charged to `budget`. More than
    MAX_QUESTIONS requests take too much time: the outcome is "wall".
    """
    return _Trial(box, program, needed, (setup, tests), limits, budget.part(limits.wall)).run()


class _Trial:
    def __init__(
        self,
        box: Executor,
        program: Program,
        needed: Sequence[str],
        tests: tuple[str, str],
        limits: Limits,
        budget: Budget,
    ) -> None:
        self._box = box
        self._limits = limits
        self._budget = budget
        self._program = _Side(program.preload, "replay", (program.source, list(needed)))
        self._tests = _Side(program.preload, "trial", (list(needed), *tests))

    def run(self) -> Outcome:
        while True:
            if outcome := self._tests_turn() or self._program_turn():
                return outcome

    def _tests_turn(self) -> Outcome | None:
        execution = self._run_side(self._tests, received=self._program.sent)
        if execution.ended in OURS:
            return Outcome(execution.ended, execution.why)
        if execution.ended != "ok":
            return self._ended_by_tests(execution.ended)
        if not self._tests.accept(execution.value):
            return self._fault("the requests differ between runs")
        match self._tests.sent[-1]:
            case ["over", ended]:
                return Outcome(ended)
            case ["over", "broken" as ended, reason]:
                return Outcome(ended, reason)
        return Outcome("wall") if self._tests.requests > MAX_QUESTIONS else None

    def _ended_by_tests(self, ended: str) -> Outcome:
        """The outcome if the tests' run ended without a message."""
        if ended in ("protocol", "error"):  # `trial` itself never raises
            return self._fault("the tests pass a value that cannot cross")
        if not self._program.sent:  # no answer of the program can be the cause
            return self._fault(f"the tests ended with {ended} before any request")
        return Outcome(ended)

    def _fault(self, reason: str) -> Outcome:
        """A fault of the tests; "wrong" once the program has spoken, which could cause it."""
        return Outcome("wrong") if self._program.sent else Outcome("broken", reason)

    def _program_turn(self) -> Outcome | None:
        execution = self._run_side(self._program, received=self._tests.sent)
        if execution.ended in OURS:
            return Outcome(execution.ended, execution.why)
        if execution.ended != "ok":
            return Outcome(execution.ended)
        if not self._program.accept(execution.value):
            return Outcome("wrong")
        return Outcome("wall") if self._program.requests > MAX_CALLBACKS else None

    def _run_side(self, side: "_Side", received: Sequence[Any]) -> Execution:
        """One run of a side. The CPU time of its previous run is added to its limit."""
        if spent := self._budget.spent:
            return Execution(ended="cpu" if spent == "cpu" else "wall")
        wall_s = min(self._limits.wall, self._budget.left_s)
        limits = replace(self._limits, cpu_s=self._limits.cpu_s + side.cpu_s, wall_s=wall_s)
        execution = self._box.run(side.program, side.call(received), limits)
        self._budget.charge(execution, wall_s)
        side.cpu_s = execution.cpu_s
        return execution


class _Side:
    """The messages that one side has sent, and how to run it."""

    def __init__(self, preload: tuple[str, ...], entry: str, args: tuple[Any, ...]) -> None:
        self.program = side_program(preload)
        self.sent: list[Any] = []
        self.cpu_s = 0.0  # of the last run
        self.requests = 0
        self._entry = entry
        self._args = args

    def call(self, received: Sequence[Any]) -> Call:
        return side_call(self._entry, *self._args, list(received))

    def accept(self, turn: Any) -> bool:
        """Append the message of a turn; False if it does not continue the previous messages."""
        match turn:
            case [int() as count, str() as before, [str() as kind, *_] as message]:
                if count != len(self.sent) + 1 or before != digest(self.sent):
                    return False
                self.sent.append(message)
                self.requests += kind == "ask"
                return True
            case _:
                return False
