"""The inputs of one program, taken one by one by as many slots as are free; compiled once.

Each case runs in a fork of its own from the pristine zygote. Only compiled code passes from one
to the next, and only through the parent: the first case hands it out before any of the program
runs.
"""

import threading
from collections.abc import Sequence

from sandbox.executor import Given, Program
from sandbox.limits import Limits
from sandbox.namespace import tickets
from sandbox.namespace.inputs import arguments, payload
from sandbox.namespace.tickets import Setup, Ticket
from sandbox.result import Execution

_SMALL = 1 << 20  # bytes of arguments that cannot be what a program fails to compile for


class Cases:
    """Raises ValueError at once for an input that is not plain data. Safe to share by threads."""

    def __init__(self, program: Program, given: Sequence[Given], limits: Limits) -> None:
        self.program = program
        self.limits = limits
        self._given = given
        self._packed = [arguments(one) for one in given]
        self._compiled = b""
        self._results: list[Execution | None] = [None] * len(given)
        self._left = iter(range(len(given)))
        self._lock = threading.Lock()

    def take(self) -> int | None:
        """The next case to run; None when there are no more."""
        with self._lock:
            return next(self._left, None)

    def ticket(self, setup: Setup, number: int) -> Ticket:
        """To run a case, with the compiled code where an earlier one has handed it out."""
        given, packed = self._given[number], self._packed[number]
        several = len(self._given) > 1
        share = number == 0 and several and len(packed) <= _SMALL
        source = self.program.source
        work = payload(source, given, packed, compiled=self._compiled, share=share)
        return tickets.ticket(setup, work, given, self.limits, share=share)

    def done(self, number: int, ended: Execution, used: Ticket | None) -> None:
        """Keep a result. A program that does not compile ends all cases not yet begun alike."""
        self._results[number] = ended
        if used is None or not used.share or ended.ended == "sandbox_error":
            return
        if used.compiled is not None:
            self._compiled = used.compiled
            return
        for rest in iter(self.take, None):
            self._results[rest] = ended

    def results(self) -> list[Execution]:
        """In order; to be called when all are done."""
        done = [one for one in self._results if one is not None]
        if len(done) < len(self._results):
            raise RuntimeError(f"only {len(done)} of {len(self._results)} cases were run")
        return done
