"""The embedded executor: slots in a queue, each lent to one execution at a time."""

import atexit
import os
import queue
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Self

from sandbox.executor import Given, Program
from sandbox.languages.polyglot import Polyglot
from sandbox.limits import Limits
from sandbox.namespace import cgroup
from sandbox.namespace.cases import Cases
from sandbox.namespace.slot import LostSlotError, Slot
from sandbox.namespace.tickets import Setup, Ticket
from sandbox.probe import Probe, SandboxUnavailableError, probe
from sandbox.result import Execution

ATTEMPTS = 2
_CLOSE_LIMIT_S = 30.0
_CLOSED = "this NamespaceExecutor was closed"


class NamespaceExecutor:
    """Runs untrusted code in namespaces (tier 1), or behind Landlock and seccomp (tier 2).

    `slots`: executions at a time; None: one per core. `tier`: the one wanted; None: tier 1, or
    with `allow_reduced` tier 2 where that is all there is. `preload`: modules every case finds
    imported; a program that names more makes its slot start again with them, once.
    Raises SandboxUnavailableError when the machine gives less than what was asked for.
    """

    backend = "namespace"

    def __init__(
        self,
        slots: int | None = None,
        tier: int | None = None,
        allow_reduced: bool = False,
        preload: Sequence[str] = (),
    ) -> None:
        count = len(os.sched_getaffinity(0)) if slots is None else slots
        if count < 1:
            raise ValueError(f"slots must be at least 1, got {slots}")
        self.probe = probe()
        self.tier = chosen_tier(self.probe, tier, allow_reduced)
        self._setup = _setup(self.probe, self.tier)
        self._preload = tuple(preload)
        self._others = Polyglot(self)
        self._pid = os.getpid()
        self._closed = False
        self._places = [_Place(_setup(self.probe, self.tier), tuple(preload)) for _ in range(count)]
        self._places[-1].ready(())  # one at once, so that failure shows here; the rest when needed
        self._idle: queue.LifoQueue[_Place] = queue.LifoQueue()
        for place in self._places:
            self._idle.put(place)
        self._threads = ThreadPoolExecutor(count)  # for cases beside those of the caller's thread
        atexit.register(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, program: Program, given: Given, limits: Limits) -> Execution:
        """One execution; see `sandbox.executor.Executor`.

        Raises ValueError for an unknown language or arguments that are not plain data,
        SandboxUnavailableError for `limits.processes` where nothing can bound them together.
        """
        return self.run_all(program, [given], limits)[0]

    def run_all(self, program: Program, given: Sequence[Given], limits: Limits) -> list[Execution]:
        """Each input in a fresh fork, on as many slots as are free; results in order.

        The program is compiled once: one that does not compile ends all its cases alike.
        """
        if program.language != "python":
            return self._others.run_all(program, given, limits)
        self._check(limits)
        cases = Cases(program, given, limits)
        if not given:
            return []
        places = self._take(len(given))
        others = [self._threads.submit(self._work, place, cases) for place in places[1:]]
        self._work(places[0], cases)
        for other in others:
            other.result()
        if self._closed:
            raise RuntimeError(f"{_CLOSED} during the run")
        return cases.results()

    def close(self) -> None:
        """End all slots; runs in progress raise RuntimeError. Harmless when repeated."""
        if self._closed or os.getpid() != self._pid:
            return  # in a fork of ours the slots are not its own
        self._closed = True
        atexit.unregister(self.close)
        for place in self._places:
            place.interrupt()
        with ExitStack() as stack:  # one that fails to close keeps no other open
            for _ in self._places:
                stack.callback(self._idle.get(timeout=_CLOSE_LIMIT_S).close)
        self._threads.shutdown(wait=False)
        for place in self._places:
            self._idle.put(place)  # whoever still waits for one learns that we are closed

    def _check(self, limits: Limits) -> None:
        grouped = limits.counted == "group"
        if (limits.processes or grouped) and (self.tier == 2 or not self.probe.cgroup):
            asked = "counted='group'" if grouped else f"processes={limits.processes}"
            raise SandboxUnavailableError(f"Limits.{asked} needs tier 1 and a cgroup\n{self.probe}")

    def _take(self, wanted: int) -> "list[_Place]":
        """One place, when there is one, and as many more as are free, up to `wanted`."""
        if os.getpid() != self._pid:
            raise RuntimeError("this NamespaceExecutor was opened in another process")
        places = [self._idle.get()]
        if self._closed:
            self._idle.put(places[0])
            raise RuntimeError(_CLOSED)
        with suppress(queue.Empty):
            while len(places) < wanted:
                places.append(self._idle.get_nowait())
        return places

    def _work(self, place: "_Place", cases: Cases) -> None:
        """Run cases, one after the other, until there are no more; then the place is free."""
        try:
            while not self._closed and (number := cases.take()) is not None:
                cases.done(number, *self._tried(place, cases, number))
        finally:
            self._idle.put(place)

    def _tried(self, place: "_Place", cases: Cases, number: int) -> tuple[Execution, Ticket | None]:
        """Run a case; a failure of ours is tried again on a fresh slot."""
        why = ""
        for _ in range(ATTEMPTS):
            try:
                used = cases.ticket(self._setup, number)
                done = place.run(cases.program.preload, used)
            except LostSlotError as failure:
                if failure.out_of_memory:
                    return Execution(ended="memory", why="the kernel ended the whole slot"), None
                why = str(failure)
            except (SandboxUnavailableError, OSError) as failure:
                why = str(failure)
            else:
                if done.ended != "sandbox_error":
                    return done, used
                why = done.why
                place.close()
            if self._closed:
                break
        return Execution(ended="sandbox_error", why=why), None


class _Place:
    """Room for one slot, which is started when it is needed and replaced when it is lost."""

    def __init__(self, setup: Setup, preload: tuple[str, ...]) -> None:
        self._setup = setup
        self._preload = preload
        self._slot: Slot | None = None

    def run(self, preload: tuple[str, ...], used: Ticket) -> Execution:
        """Raises LostSlotError; the next run then starts a fresh slot."""
        try:
            slot = self.ready(preload)
        except BaseException:
            used.close()
            raise
        try:
            return slot.run(used)
        except BaseException:
            self.close()  # an interrupted slot may still be in the middle of its answer
            raise

    def ready(self, preload: tuple[str, ...]) -> Slot:
        """A slot with these modules imported; one that lacks some is started again with them."""
        missing = tuple(name for name in preload if name not in self._preload)
        if missing:
            self.close()
            self._preload += missing
        if self._slot is None:
            self._slot = Slot(self._setup, self._preload)
        return self._slot

    def interrupt(self) -> None:
        if self._slot is not None:
            self._slot.interrupt()

    def close(self) -> None:
        slot, self._slot = self._slot, None
        if slot is not None:
            slot.close()


def chosen_tier(found: Probe, wanted: int | None, allow_reduced: bool) -> int:
    """The tier to run at. Raises SandboxUnavailableError with the table, never takes less."""
    if wanted not in (None, 1, 2):
        raise ValueError(f"tier must be 1, 2 or None, got {wanted}")
    if wanted == 2 and found.tier and found.works("landlock"):
        return 2
    if found.tier == 1 and wanted != 2:
        return 1
    if found.tier == 2 and wanted is None and allow_reduced:
        return 2
    hint = "; allow_reduced=True would accept tier 2" if found.tier == 2 and wanted is None else ""
    raise SandboxUnavailableError(f"tier {wanted or 1} is not to be had here{hint}\n{found}")


def _setup(found: Probe, tier: int) -> Setup:
    """Raises SandboxUnavailableError where there is no Python to run."""
    if found.python is None:
        raise SandboxUnavailableError(str(found))
    site, _ = cgroup.find() if found.cgroup else (None, "")
    if site is not None:
        cgroup.remove_stale(site)
    way = found.way if tier == 1 else "root" if os.geteuid() == 0 else "user"
    return Setup(python=found.python, tier=tier, way=way, site=site)
