"""An executor under watch: how runs ended, what they told, and a neighbour kept running beside."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sandbox.executor import Executor, Given, Program
from sandbox.limits import Limits
from sandbox.result import Execution

_JOIN_S = 60.0
_PAUSE_S = 0.02  # where there is one slot for both, the other one gets its turn


class Watched:
    """Passes everything on, and remembers how the last run ended and what else was seen."""

    def __init__(self, box: Executor) -> None:
        self.box = box
        self.backend = box.backend
        self.tier = box.tier
        self.forget("")

    def forget(self, secret: str) -> None:
        """Before the next case; `secret` is what none of its runs may tell, in any spelling."""
        self.ended = "not run"
        self.told_secret = False
        self.told_controls = False  # a reason, which goes to a log, holds what a terminal obeys
        self.waited_s = 0.0  # for a processor, on a busy machine: no attack's doing
        raw = secret.encode()
        self._spellings = (raw, raw[::-1], raw.hex().encode()) if secret else ()

    def run(self, program: Program, given: Given, limits: Limits) -> Execution:
        """As Executor.run."""
        return self._seen(self.box.run(program, given, limits))

    def run_all(self, program: Program, given: Sequence[Given], limits: Limits) -> list[Execution]:
        """As Executor.run_all."""
        return [self._seen(ran) for ran in self.box.run_all(program, given, limits)]

    def close(self) -> None:
        """As Executor.close."""
        self.box.close()

    @contextmanager
    def beside(self, program: Program, given: Given, limits: Limits) -> Iterator[list[Execution]]:
        """Run a neighbour again and again, in a slot of its own, until the block ends; its runs."""
        over = threading.Event()
        runs: list[Execution] = []

        def neighbour() -> None:
            runs.append(self.box.run(program, given, limits))
            while not over.wait(_PAUSE_S):
                runs.append(self.box.run(program, given, limits))

        thread = threading.Thread(target=neighbour, daemon=True)
        thread.start()
        try:
            yield runs
        finally:
            over.set()
            thread.join(limits.wall + _JOIN_S)

    def _seen(self, ran: Execution) -> Execution:
        self.ended = ran.ended
        self.waited_s += ran.waited_s
        self.told_controls |= not ran.why.isprintable()
        told = ran.stdout + ran.stderr + "\n".join(_texts(ran.value)).encode(errors="replace")
        self.told_secret |= any(spelling in told for spelling in self._spellings)
        return ran


def _texts(value: object) -> Iterator[str]:
    """Every text in a piece of plain data; its numbers may be too long to print."""
    waiting = [value]
    while waiting:
        match waiting.pop():
            case str() as text:
                yield text
            case bytes() as raw:
                yield raw.decode(errors="replace")
            case dict() as pairs:
                waiting += [*pairs.keys(), *pairs.values()]
            case list() | tuple() | set() | frozenset() as many:
                waiting += many
            case _:
                pass
