"""Limits memory, swap and tasks of all processes of a slot together, with cgroup v1 or v2.

It also counts their CPU time, including that of processes that were not waited for.
"""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

PREFIX = "veriloop-"
_REMOVE_TRIES, _REMOVE_WAIT_S = 50, 0.02  # the kernel needs a moment after the last process
_PEAKS = ("memory.max_usage_in_bytes", "memory.memsw.max_usage_in_bytes")  # of v1
_NEAR_BYTES = 1 << 20  # of the limit: the kernel charges memory in pieces
_NEEDED = {1: {"memory": "memory.limit_in_bytes", "pids": "pids.max", "cpuacct": "cpuacct.usage"}}
_NEEDED[2] = {"memory": "memory.max", "pids": "pids.max"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Existing cgroups in which new ones can be created. In v2 all controllers share a folder."""

    version: int
    folders: Mapping[str, Path]  # by controller


class Kills(NamedTuple):
    """How many processes the kernel has killed for memory, and how often it found a cgroup at its
    own limit: a kill without that is due to an outer cgroup or to the whole machine."""

    killed: int
    at_limit: int


class Cgroup:
    """One cgroup per controller, below the site. Raises OSError if it cannot be created."""

    def __init__(self, site: Site, name: str) -> None:
        self.site = site
        folder_name = f"{PREFIX}{os.getpid()}-{name}"
        self.folders = {key: parent / folder_name for key, parent in site.folders.items()}
        for folder in dict.fromkeys(self.folders.values()):
            folder.mkdir(exist_ok=True)
        self._bounds: tuple[int, int] | None = None

    def bound(self, memory_bytes: int, tasks: int) -> None:
        """Set the limits; does nothing if they are in force."""
        if self._bounds == (memory_bytes, tasks):
            return
        (self.folders["pids"] / "pids.max").write_text(str(tasks))
        self._bound_memory(memory_bytes)
        self._bounds = (memory_bytes, tasks)

    def _bound_memory(self, memory_bytes: int) -> None:
        folder, text = self.folders["memory"], str(memory_bytes)
        if self.site.version == 2:
            (folder / "memory.max").write_text(text)
            _write_if_present(folder / "memory.swap.max", "0")
            return
        self._bound_v1(folder, text)
        for peak in _PEAKS:
            _write_if_present(folder / peak, "0")  # starts anew

    def _bound_v1(self, folder: Path, text: str) -> None:
        limit, with_swap = folder / "memory.limit_in_bytes", folder / "memory.memsw.limit_in_bytes"
        try:
            limit.write_text(text)
            _write_if_present(with_swap, text)
        except OSError:  # memsw must never be below the memory limit: raise it first
            _write_if_present(with_swap, text)
            limit.write_text(text)

    def entrances(self) -> list[str]:
        """Files to which a pid is written to add the process."""
        return [str(folder / "cgroup.procs") for folder in dict.fromkeys(self.folders.values())]

    def kills(self) -> Kills:
        """Since it was created."""
        folder = self.folders["memory"]
        if self.site.version == 2:
            events = _numbers(folder / "memory.events")
            return Kills(events.get("oom_kill", 0), events.get("oom", 0))
        killed = _numbers(folder / "memory.oom_control").get("oom_kill", 0)
        return Kills(killed, killed if self._was_full() else 0)

    def _was_full(self) -> bool:
        """Whether v1 has been at its limit since that was set; with swap, if that is counted."""
        peaks = [self.folders["memory"] / name for name in _PEAKS]
        peak = max((int(path.read_text()) for path in peaks if path.exists()), default=0)
        return self._bounds is not None and peak >= self._bounds[0] - _NEAR_BYTES

    def cpu_s(self) -> float | None:
        """CPU seconds of all its processes since it was created; None if they are not counted."""
        if self.site.version == 2:
            return _numbers(self.folders["memory"] / "cpu.stat")["usage_usec"] / 1e6
        if "cpuacct" in self.folders:
            return int((self.folders["cpuacct"] / "cpuacct.usage").read_text()) / 1e9
        return None

    def processes(self) -> list[int]:
        """The pids of its processes, as our /proc names them."""
        return [int(pid) for pid in (self.folders["pids"] / "cgroup.procs").read_text().split()]

    def remove(self) -> None:
        """Remove the cgroups after their processes have ended."""
        for folder in dict.fromkeys(self.folders.values()):
            remove_folder(folder)


def kills_of_machine(statistics: Path = Path("/proc/vmstat")) -> Kills:
    """Of all processes since the machine started; nothing where the kernel does not count them."""
    try:
        return Kills(_numbers(statistics).get("oom_kill", 0), 0)
    except OSError:
        return Kills(0, 0)


def remove_folder(folder: Path) -> None:
    """Remove a cgroup, waiting for its last process. Raises OSError if it stays."""
    for attempt in range(_REMOVE_TRIES):
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            if attempt == _REMOVE_TRIES - 1:
                raise
            time.sleep(_REMOVE_WAIT_S)
        else:
            return


def find() -> tuple[Site | None, str]:
    """A site with memory and pids controllers, and where it is; or None, and why."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        own = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError as error:
        return None, str(error)
    reasons = []
    for site in _candidates(mounts, own):
        reason = _check(site)
        if reason is None:
            return site, f"v{site.version} at {site.folders['memory']}{_uncounted(site)}"
        reasons.append(reason)
    return None, "; ".join(dict.fromkeys(reasons)) or "no memory and pids controllers are mounted"


def _uncounted(site: Site) -> str:
    counted = site.version == 2 or "cpuacct" in site.folders
    return "" if counted else "; no cpuacct, so CPU time is read from /proc"


def remove_stale(site: Site) -> None:
    """Remove the empty cgroups of processes that ended without removing them."""
    for parent in dict.fromkeys(site.folders.values()):
        for folder in parent.glob(f"{PREFIX}*-*"):
            pid = folder.name.removeprefix(PREFIX).split("-")[0]
            if pid.isdigit() and not Path("/proc", pid).exists():
                try:
                    folder.rmdir()
                except OSError:
                    continue  # in use by a process of another pid namespace


def _candidates(mounts: list[str], own: list[str]) -> list[Site]:
    """v1 below our own cgroups; v2 below our own cgroup, or next to it if it holds processes."""
    mounted = _mounted(mounts)
    paths = dict[str, str]()
    for line in own:
        _, controllers, path = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(",") if controllers else ["v2"], path)
    sites = []
    for names in (("memory", "pids", "cpuacct"), ("memory", "pids")):
        if all(name in mounted and name in paths for name in names):
            folders = {name: _folder_of(mounted[name], paths[name]) for name in names}
            sites.append(Site(version=1, folders=folders))
    if "v2" in mounted and "v2" in paths:
        folder = _folder_of(mounted["v2"], paths["v2"])
        parents = [folder.parent] if folder != mounted["v2"][1] else []
        sites += [Site(version=2, folders={"memory": f, "pids": f}) for f in [folder, *parents]]
    return sites


def _mounted(mounts: list[str]) -> dict[str, tuple[str, Path]]:
    """By controller ("v2" for the unified tree): the mounted cgroup and its mount point."""
    mounted = dict[str, tuple[str, Path]]()
    for line in mounts:
        before, _, after = line.partition(" - ")
        root, target = before.split()[3:5]
        kind, _, options = after.split()[:3]
        if kind == "cgroup2":
            mounted["v2"] = (root, Path(target))
        elif kind == "cgroup":
            mounted |= dict.fromkeys(options.split(","), (root, Path(target)))
    return mounted


def _folder_of(mounted: tuple[str, Path], path: str) -> Path:
    """The folder of the cgroup `path`, or the mount point if it lies outside the mount."""
    root, target = mounted
    below = os.path.relpath(path, root)
    return target if below == "." or below.startswith("..") else target / below


def _check(site: Site) -> str | None:
    """Create a cgroup, look for its limits, remove it. The error, or None."""
    created: list[Path] = []
    try:
        for controller, parent in site.folders.items():
            folder = parent / f"{PREFIX}{os.getpid()}-trial"
            folder.mkdir(exist_ok=True)
            created.append(folder)
            file = folder / _NEEDED[site.version][controller]
            if not os.access(file, os.W_OK):
                return f"v{site.version}: no writable {file.name} below {parent}"
    except OSError as error:
        return f"v{site.version}: {error}"
    finally:
        for folder in dict.fromkeys(created):
            folder.rmdir()
    return None


def _numbers(path: Path) -> dict[str, int]:
    """The numbers of a file with a name and a number on each line."""
    rows = (line.split() for line in path.read_text().splitlines())
    return {name: int(number) for name, number in rows}


def _write_if_present(path: Path, text: str) -> None:
    if path.exists():
        path.write_text(text)
