"""Finds processes that outlive a run: by name, inherited environment, cgroup or pid namespace."""

import multiprocessing
import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path

from veriloop.sandbox.namespace.cgroup import PREFIX

MARK = "rlvrmark"  # name prefix of processes that attacks leave running
_OWNER = re.compile(rf"/{PREFIX}(\d+)-")  # in the path of a cgroup
_SETTLE_S = 0.15  # for killed processes to leave the process table
_RUN_DEPTH = 2  # pid namespaces below ours: one of the slot, one of the run


@dataclass(frozen=True, slots=True, kw_only=True)
class _Process:
    """One process in /proc that is not a zombie."""

    pid: int
    parent: int
    started: str  # clock ticks since boot; distinguishes reused pids
    name: str
    groups: frozenset[str]  # its cgroups that belong to executors of this process
    elsewhere: bool  # whether it is in a cgroup of an executor of another living process

    @property
    def identity(self) -> tuple[int, str]:
        return self.pid, self.started


class ProcessSnapshot:
    """The current processes; `leaked_pids` later returns those that a run has left behind.

    `tag`: a secret in our environment, which no sandboxed process may inherit. Processes that this
    one starts through `multiprocessing` inherit it and are not sandboxed.
    """

    def __init__(self, tag: str) -> None:
        self._tag = tag.encode()
        resource_tracker.ensure_running()  # the first process started later would start it too
        before = _living()
        self._before = {process.identity for process in before.values()}
        self._groups = frozenset[str]().union(*(process.groups for process in before.values()))

    def leaked_pids(self) -> list[int]:
        """Ids of leaked processes; those about to end are given time to do so."""
        if pids := self._leaked_now():
            time.sleep(_SETTLE_S)
            pids = self._leaked_now()
        return pids

    def _leaked_now(self) -> list[int]:
        living = _living()
        ours = {child.pid for child in multiprocessing.active_children()}
        return [
            pid
            for pid, process in living.items()
            if pid not in ours and self._is_leaked(process, living)
        ]

    def _is_leaked(self, process: _Process, living: dict[int, _Process]) -> bool:
        if process.name.startswith(MARK):
            return not process.elsewhere
        if process.identity in self._before:
            return False
        if process.groups & self._groups:  # an idle slot has no new processes
            return True
        if self._tag and self._tag in _read(process.pid, "environ"):
            return True
        depth_of_runs = _depth(os.getpid()) + _RUN_DEPTH
        return _descends(process, living) and _depth(process.pid) >= depth_of_runs


def _living() -> dict[int, _Process]:
    pids = (entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return {process.pid: process for pid in pids if (process := _process(pid)) is not None}


def _process(pid: str) -> _Process | None:
    before, _, rest = _read(int(pid), "stat").decode(errors="replace").rpartition(")")
    words = rest.split()
    if not words or words[0] in "ZX":
        return None
    groups = _read(int(pid), "cgroup").decode(errors="replace").splitlines()
    owners = {int(owner) for line in groups for owner in _OWNER.findall(line)}
    ours = f"/{PREFIX}{os.getpid()}-"
    return _Process(
        pid=int(pid),
        parent=int(words[1]),
        started=words[19],
        name=before.partition("(")[2],
        groups=frozenset(line for line in groups if ours in line),
        elsewhere=any(Path("/proc", str(owner)).exists() for owner in owners - {os.getpid()}),
    )


def _descends(process: _Process, living: dict[int, _Process]) -> bool:
    """Whether the current process is an ancestor."""
    parent = process.parent
    while parent in living and parent != os.getpid():
        parent = living[parent].parent
    return parent == os.getpid()


def _depth(pid: int) -> int:
    """Number of visible pid namespaces that the process is in; 0 if it has ended."""
    lines = _read(pid, "status").splitlines()
    return next((len(line.split()) - 1 for line in lines if line.startswith(b"NSpid:")), 0)


def _read(pid: int, file: str) -> bytes:
    with suppress(OSError):  # it has ended, or may not be read
        return Path("/proc", str(pid), file).read_bytes()
    return b""
