"""What an attack left running: by its name, the environment it inherited, and where it lives."""

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sandbox.namespace.cgroup import PREFIX

MARK = "rlvrmark"  # how attacks name processes that shall outlive them
_SETTLE_S = 0.15  # a killed process may take this long to leave the table
_DEEP = 2  # pid namespaces below ours: a slot has one, each run another


@dataclass(frozen=True, slots=True, kw_only=True)
class _Process:
    """One living process, as /proc tells it; zombies do not live."""

    pid: int
    parent: int
    started: str  # clock ticks since boot: tells a pid that was used again
    name: str
    groups: frozenset[str]  # the cgroups of this process's executors that it is in

    @property
    def identity(self) -> tuple[int, str]:
        return self.pid, self.started


class Watch:
    """Remembers what runs; asked later, names what an attack left running since.

    `tag`: a secret in our own environment, which no sandboxed process may have inherited.
    """

    def __init__(self, tag: str) -> None:
        self._tag = tag.encode()
        before = _living()
        self._before = {process.identity for process in before.values()}
        self._groups = frozenset[str]().union(*(process.groups for process in before.values()))

    def survivors(self) -> list[int]:
        """Process ids. A process that is about to end is waited for."""
        if found := self._survivors():
            time.sleep(_SETTLE_S)
            found = self._survivors()
        return found

    def _survivors(self) -> list[int]:
        living = _living()
        return [pid for pid, process in living.items() if self._survives(process, living)]

    def _survives(self, process: _Process, living: dict[int, _Process]) -> bool:
        if process.name.startswith(MARK):
            return True
        if process.identity in self._before:
            return False
        if process.groups & self._groups:  # a slot that was there before has no new process
            return True
        if self._tag and self._tag in _read(process.pid, "environ"):
            return True
        return _descends(process, living) and _depth(process.pid) >= _depth(os.getpid()) + _DEEP


def _living() -> dict[int, _Process]:
    found = (_process(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return {process.pid: process for process in found if process is not None}


def _process(pid: str) -> _Process | None:
    before, _, rest = _read(int(pid), "stat").decode(errors="replace").rpartition(")")
    if not rest or rest.split()[0] in "ZX":
        return None
    words = rest.split()
    groups = _read(int(pid), "cgroup").decode(errors="replace").splitlines()
    ours = f"/{PREFIX}{os.getpid()}-"
    return _Process(
        pid=int(pid),
        parent=int(words[1]),
        started=words[19],
        name=before.partition("(")[2],
        groups=frozenset(line for line in groups if ours in line),
    )


def _descends(process: _Process, living: dict[int, _Process]) -> bool:
    """Whether this process is an ancestor of it."""
    parent = process.parent
    while parent in living and parent != os.getpid():
        parent = living[parent].parent
    return parent == os.getpid()


def _depth(pid: int) -> int:
    """Pid namespaces it is in, as far as we see them; 0 when it has gone."""
    lines = _read(pid, "status").splitlines()
    return next((len(line.split()) - 1 for line in lines if line.startswith(b"NSpid:")), 0)


def _read(pid: int, file: str) -> bytes:
    with suppress(OSError):  # it has gone meanwhile, or is not ours to read
        return Path("/proc", str(pid), file).read_bytes()
    return b""
