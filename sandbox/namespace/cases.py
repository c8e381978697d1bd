"""The inputs of one program, distributed to all free slots; the program is compiled once.

Each case runs in its own fork of the pristine zygote. Only compiled code passes from one case to
the next, and only through the parent: the first case returns it before any of the program runs.
"""

import threading
from collections.abc import Sequence

from veriloop.sandbox.executor import Dialogue, Invocation, Program
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.namespace.requests import (
    PreparedDialogue,
    PreparedRun,
    Setup,
    pack_arguments,
    pack_payload,
    prepare_dialogue,
    prepare_run,
)
from veriloop.sandbox.result import Execution

_SMALL = 1 << 20  # bytes of arguments that cannot exhaust the memory before compilation


class CaseQueue:
    """A thread-safe queue of cases and their results. Raises ValueError for input that is not
    plain data."""

    def __init__(self, program: Program, invocations: Sequence[Invocation], limits: Limits) -> None:
        self.program = program
        self.limits = limits
        self._invocations = invocations
        self._arguments = [pack_arguments(case) for case in invocations]
        self._compiled = b""
        self._results: list[Execution | None] = [None] * len(invocations)
        self._remaining = iter(range(len(invocations)))
        self._lock = threading.Lock()

    def take(self) -> int | None:
        """The number of the next case; None if there are no more."""
        with self._lock:
            return next(self._remaining, None)

    def prepare(self, setup: Setup, number: int) -> PreparedRun | PreparedDialogue:
        """Prepare a case, with the compiled code if an earlier case has returned it."""
        invocation, arguments = self._invocations[number], self._arguments[number]
        if isinstance(invocation, Dialogue):
            return prepare_dialogue(setup, self.program.source, invocation, self.limits)
        share = number == 0 and len(self._invocations) > 1 and len(arguments) <= _SMALL
        payload = pack_payload(
            self.program.source, invocation, arguments, compiled=self._compiled, share=share
        )
        return prepare_run(setup, payload, invocation, self.limits, share=share)

    def record(
        self, number: int, execution: Execution, run: PreparedRun | PreparedDialogue | None
    ) -> None:
        """Store a result. If the program did not compile, it is that of all remaining cases."""
        self._results[number] = execution
        if not isinstance(run, PreparedRun) or not run.share or execution.ended == "sandbox_error":
            return
        if run.compiled is not None:
            self._compiled = run.compiled
            return
        for remaining in iter(self.take, None):
            self._results[remaining] = execution

    def results(self) -> list[Execution]:
        """The results in order. Raises RuntimeError if a case has none."""
        results = [execution for execution in self._results if execution is not None]
        if len(results) < len(self._results):
            raise RuntimeError(f"only {len(results)} of {len(self._results)} cases were run")
        return results
