"""The embedded executor: a pool of slots, each running one execution at a time."""

import atexit
import os
import queue
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Self

from veriloop.sandbox.executor import Invocation, Program
from veriloop.sandbox.host import cores
from veriloop.sandbox.languages.polyglot import Polyglot
from veriloop.sandbox.limits import Limits
from veriloop.sandbox.namespace import cgroup
from veriloop.sandbox.namespace.bounds import address_ceiling
from veriloop.sandbox.namespace.cases import CaseQueue
from veriloop.sandbox.namespace.requests import PreparedDialogue, PreparedRun, Setup
from veriloop.sandbox.namespace.slot import LostSlotError, Slot
from veriloop.sandbox.probe import Probe, SandboxUnavailableError, choose_tier, probe
from veriloop.sandbox.result import Execution

ATTEMPTS = 2
_CLOSE_LIMIT_S = 30.0
_PEER_ENDS_S = 0.05  # after the first program of a dialogue, before it is killed
_CLOSED = "this NamespaceExecutor was closed"


class NamespaceExecutor:
    """Runs untrusted code in namespaces (tier 1), or behind Landlock and seccomp (tier 2).

    `slots`: concurrent executions; None: one per core. `tier`: required tier; None: tier 1, or
    with `allow_reduced` tier 2 if tier 1 is unavailable. `preload`: modules that are imported
    before every case; a program that names more restarts its slot with them, once.
    Raises SandboxUnavailableError if the machine cannot provide the required tier.
    """

    backend = "namespace"

    def __init__(
        self,
        slots: int | None = None,
        tier: int | None = None,
        allow_reduced: bool = False,
        preload: Sequence[str] = (),
    ) -> None:
        count = cores() if slots is None else slots
        if count < 1:
            raise ValueError(f"slots must be at least 1, got {slots}")
        self.probe = probe()
        self.tier = choose_tier(self.probe, tier, allow_reduced)
        self.table = str(self.probe)
        self._setup = _setup(self.probe, self.tier)
        self._polyglot = Polyglot(self)
        self._pid = os.getpid()
        self._closed = False
        self._holders = [_SlotHolder(self._setup, tuple(preload)) for _ in range(count)]
        self._holders[-1].ready(())  # start one slot now to raise errors here; others on demand
        self._idle: queue.LifoQueue[_SlotHolder] = queue.LifoQueue()
        for holder in self._holders:
            self._idle.put(holder)
        self._threads = ThreadPoolExecutor(count)  # for cases not run by the caller's thread
        atexit.register(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, program: Program, invocation: Invocation, limits: Limits) -> Execution:
        """One execution; see `veriloop.sandbox.executor.Executor`.

        Raises ValueError for an unknown language or arguments that are not plain data, and
        SandboxUnavailableError for `limits.processes` if no cgroup can bound them together.
        """
        return self.run_all(program, [invocation], limits)[0]

    def run_all(
        self, program: Program, invocations: Sequence[Invocation], limits: Limits
    ) -> list[Execution]:
        """Run each input in a fresh fork, on all free slots; results in order.

        The program is compiled once; if that fails, all its cases have the same result.
        """
        if program.language != "python":
            return self._polyglot.run_all(program, invocations, limits)
        self._check(limits)
        cases = CaseQueue(program, invocations, limits)
        if not invocations:
            return []
        first, *others = self._acquire(len(invocations))
        futures = [self._threads.submit(self._run_cases, holder, cases) for holder in others]
        self._run_cases(first, cases)
        for future in futures:
            future.result()
        if self._closed:
            raise RuntimeError(f"{_CLOSED} during the run")
        return cases.results()

    def close(self) -> None:
        """End all slots; runs in progress raise RuntimeError. May be called again."""
        if self._closed or os.getpid() != self._pid:  # a fork does not own the slots
            return
        self._closed = True
        atexit.unregister(self.close)
        for holder in self._holders:
            holder.interrupt()
        with ExitStack() as stack:  # closes all slots even if one fails to close
            for _ in self._holders:
                stack.callback(self._idle.get(timeout=_CLOSE_LIMIT_S).close)
        self._threads.shutdown(wait=False)
        for holder in self._holders:
            self._idle.put(holder)  # wakes threads that wait for a slot

    def _check(self, limits: Limits) -> None:
        grouped = limits.counted == "group"
        if (limits.processes or grouped) and (self.tier == 2 or not self.probe.cgroup):
            option = "counted='group'" if grouped else f"processes={limits.processes}"
            raise SandboxUnavailableError(
                f"Limits.{option} needs tier 1 and a cgroup\n{self.probe}"
            )
        ceiling = address_ceiling()
        if ceiling is not None and limits.memory_mb << 20 > ceiling:
            raise SandboxUnavailableError(
                f"Limits.memory_mb={limits.memory_mb} exceeds the hard limit on address space "
                f"of this process, {ceiling >> 20} MB, which programs inherit: raise `ulimit -Hv`"
            )

    def _acquire(self, most: int) -> "list[_SlotHolder]":
        """Wait for one slot and take as many more as are free, up to `most`."""
        if os.getpid() != self._pid:
            raise RuntimeError("this NamespaceExecutor was opened in another process")
        holders = [self._idle.get()]
        if self._closed:
            self._idle.put(holders[0])
            raise RuntimeError(_CLOSED)
        with suppress(queue.Empty):
            while len(holders) < most:
                holders.append(self._idle.get_nowait())
        return holders

    def _run_cases(self, holder: "_SlotHolder", cases: CaseQueue) -> None:
        """Run cases until there are no more, then release the slot."""
        try:
            while not self._closed and (number := cases.take()) is not None:
                cases.record(number, *self._run_case(holder, cases, number))
        finally:
            self._idle.put(holder)

    def _run_case(
        self, holder: "_SlotHolder", cases: CaseQueue, number: int
    ) -> tuple[Execution, PreparedRun | PreparedDialogue | None]:
        """Run a case; after an infrastructure failure retry it on a fresh slot."""
        why = ""
        for _ in range(ATTEMPTS):
            try:
                run = cases.prepare(self._setup, number)
                execution = holder.run(cases.program.preload, run)
            except LostSlotError as error:
                if error.out_of_memory:
                    return Execution(ended="memory", why="the kernel ended the whole slot"), None
                why = str(error)
            except (SandboxUnavailableError, OSError) as error:
                why = str(error)
            else:
                if execution.ended != "sandbox_error":
                    return execution, run
                why = execution.why
                holder.close()
            if self._closed:
                break
        return Execution(ended="sandbox_error", why=why), None


class _SlotHolder:
    """Holds one slot, which is started on demand and replaced when it is lost."""

    def __init__(self, setup: Setup, preload: tuple[str, ...]) -> None:
        self._setup = setup
        self._preload = preload
        self._slot: Slot | None = None
        self._peer: _SlotHolder | None = None  # for the other program of a dialogue
        self._interrupted = False

    def run(self, preload: tuple[str, ...], run: PreparedRun | PreparedDialogue) -> Execution:
        """Raises LostSlotError; the next run then starts a fresh slot."""
        if isinstance(run, PreparedDialogue):
            return self._converse(preload, run)
        return self.run_one(preload, run)

    def run_one(self, preload: tuple[str, ...], run: PreparedRun) -> Execution:
        """Raises LostSlotError; the next run then starts a fresh slot."""
        try:
            slot = self.ready(preload)
        except BaseException:
            run.close()
            raise
        try:
            execution = slot.run(run)
        except BaseException:
            self._close_slot()  # an interrupted slot may still be sending its answer
            raise
        if slot.spent:  # the next program must not pay for the memory of this one
            self._close_slot()
        return execution

    def ready(self, preload: tuple[str, ...]) -> Slot:
        """A slot with these modules imported; it is restarted if it lacks some.

        Raises LostSlotError after `interrupt`, also if that came while the slot started.
        """
        missing = tuple(name for name in preload if name not in self._preload)
        if missing:
            self._close_slot()
        if self._slot is None:
            modules = self._preload + missing
            self._slot = Slot(self._setup, modules)
            self._preload = modules  # only those that can be imported
        if self._interrupted:
            raise LostSlotError(_CLOSED)
        return self._slot

    def _converse(self, preload: tuple[str, ...], dialogue: PreparedDialogue) -> Execution:
        """Run a dialogue; the peer runs in its own slot, and ends after the first.

        Both slots are started before either clock.
        """
        peer = self._peer = self._peer or _SlotHolder(self._setup, self._preload)
        with ExitStack() as on_error:
            on_error.callback(dialogue.close)
            peer.ready(dialogue.peer_preload)
            self.ready(preload)
            on_error.pop_all()
        with ThreadPoolExecutor(1) as thread:
            future = thread.submit(peer.run_peer, dialogue.peer_preload, dialogue.peer)
            try:
                first = self.run_one(preload, dialogue.first)
            finally:
                while not wait([future], _PEER_ENDS_S).done:
                    peer.stop()
        return replace(first, peer=future.result())

    def run_peer(self, preload: tuple[str, ...], run: PreparedRun) -> Execution:
        """The same, but running out of the slot's memory is the fault of this program."""
        try:
            return self.run_one(preload, run)
        except LostSlotError as error:
            if error.out_of_memory:
                return Execution(ended="memory", why="the kernel ended the whole slot")
            raise

    def stop(self) -> None:
        """End the current run from another thread, if there is one."""
        if (slot := self._slot) is not None:
            slot.stop()

    def interrupt(self) -> None:
        """End the current run from another thread; no other run starts."""
        self._interrupted = True
        for slot in (self._slot, self._peer):
            if slot is not None:
                slot.interrupt()

    def close(self) -> None:
        self._close_slot()
        peer, self._peer = self._peer, None
        if peer is not None:
            peer.close()

    def _close_slot(self) -> None:
        slot, self._slot = self._slot, None
        if slot is not None:
            slot.close()


def _setup(probe: Probe, tier: int) -> Setup:
    """Raises SandboxUnavailableError if there is no Python to run."""
    if probe.python is None:
        raise SandboxUnavailableError(str(probe))
    site, _ = cgroup.find() if probe.cgroup else (None, "")
    if site is not None:
        cgroup.remove_stale(site)
    way = probe.way if tier == 1 else "root" if os.geteuid() == 0 else "user"
    return Setup(python=probe.python, tier=tier, way=way, site=site)
