"""An executor that records how runs ended and what they leaked, and can run a neighbour."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from veriloop.sandbox.executor import Executor, Invocation, Program
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.result import Execution

_JOIN_S = 60.0
_PAUSE_S = 0.02  # between runs of the neighbour, which may share the only slot


class RecordingExecutor:
    """Wraps an executor and records how the last run ended and what the runs leaked."""

    def __init__(self, executor: Executor) -> None:
        self.wrapped = executor
        self.backend = executor.backend
        self.tier = executor.tier
        self.reset("")

    def reset(self, secret: str) -> None:
        """Start a new record. `secret` must not appear in any output, in any spelling."""
        self.ended = "not run"
        self.leaked_secret = False
        self.leaked_controls = False  # control characters in a reason, which is logged
        self.waited_s = 0.0  # for a processor, which no attack causes
        raw = secret.encode()
        self._spellings = (raw, raw[::-1], raw.hex().encode()) if secret else ()

    def run(self, program: Program, invocation: Invocation, limits: Limits) -> Execution:
        """As Executor.run."""
        return self._record(self.wrapped.run(program, invocation, limits))

    def run_all(
        self, program: Program, invocations: Sequence[Invocation], limits: Limits
    ) -> list[Execution]:
        """As Executor.run_all."""
        return [self._record(run) for run in self.wrapped.run_all(program, invocations, limits)]

    def close(self) -> None:
        """As Executor.close."""
        self.wrapped.close()

    @contextmanager
    def running_neighbour(
        self, program: Program, invocation: Invocation, limits: Limits
    ) -> Iterator[list[Execution]]:
        """Run a program repeatedly in another slot until the block ends; yields its runs."""
        stop = threading.Event()
        runs: list[Execution] = []

        def neighbour() -> None:
            runs.append(self.wrapped.run(program, invocation, limits))
            while not stop.wait(_PAUSE_S):
                runs.append(self.wrapped.run(program, invocation, limits))

        thread = threading.Thread(target=neighbour, daemon=True)
        thread.start()
        try:
            yield runs
        finally:
            stop.set()
            thread.join(limits.wall + _JOIN_S)

    def _record(self, run: Execution) -> Execution:
        if run.peer is not None:
            self._record(run.peer)
        self.ended = run.ended
        self.waited_s += run.waited_s
        self.leaked_controls |= not run.why.isprintable()
        output = run.stdout + run.stderr + "\n".join(_texts(run.value)).encode(errors="replace")
        self.leaked_secret |= any(spelling in output for spelling in self._spellings)
        return run


def _texts(value: object) -> Iterator[str]:
    """Every text in plain data. Numbers are skipped: they may be too long to print."""
    pending = [value]
    while pending:
        match pending.pop():
            case str() as text:
                yield text
            case bytes() as raw:
                yield raw.decode(errors="replace")
            case dict() as pairs:
                pending += [*pairs.keys(), *pairs.values()]
            case list() | tuple() | set() | frozenset() as items:
                pending += items
            case _:
                pass
