"""Bounds for all processes of a slot together: memory, swap and tasks, with cgroup v1 or v2."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PREFIX = "veriloop-"
_REMOVE_TRIES, _REMOVE_WAIT_S = 50, 0.02  # the kernel needs a moment after the last process
_NEEDED = {1: {"memory": "memory.limit_in_bytes", "pids": "pids.max"}}
_NEEDED[2] = {"memory": "memory.max", "pids": "pids.max"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where we may make cgroups. In v2 both controllers have the same folder."""

    version: int
    folders: Mapping[str, Path]  # controller: an existing cgroup


class Cgroup:
    """One cgroup per controller, below the site. Raises OSError where it cannot be made."""

    def __init__(self, site: Site, name: str) -> None:
        self.site = site
        full = f"{PREFIX}{os.getpid()}-{name}"
        self.folders = {controller: at / full for controller, at in site.folders.items()}
        for folder in dict.fromkeys(self.folders.values()):
            folder.mkdir(exist_ok=True)
        self._bounds: tuple[int, int] | None = None

    def bound(self, memory_bytes: int, tasks: int) -> None:
        """Set the limits; free when they are the ones in force."""
        if self._bounds == (memory_bytes, tasks):
            return
        (self.folders["pids"] / "pids.max").write_text(str(tasks))
        self._bound_memory(memory_bytes)
        self._bounds = (memory_bytes, tasks)

    def _bound_memory(self, memory_bytes: int) -> None:
        folder, text = self.folders["memory"], str(memory_bytes)
        if self.site.version == 2:
            (folder / "memory.max").write_text(text)
            _write_if_there(folder / "memory.swap.max", "0")
            return
        limit, with_swap = folder / "memory.limit_in_bytes", folder / "memory.memsw.limit_in_bytes"
        try:
            limit.write_text(text)
            _write_if_there(with_swap, text)
        except OSError:  # the limit with swap may never be the smaller one: raise it first
            _write_if_there(with_swap, text)
            limit.write_text(text)

    def entrances(self) -> list[str]:
        """Files to write a pid into."""
        return [str(folder / "cgroup.procs") for folder in dict.fromkeys(self.folders.values())]

    def oom_kills(self) -> int:
        """Processes the kernel killed here for memory, so far."""
        file = "memory.events" if self.site.version == 2 else "memory.oom_control"
        lines = (self.folders["memory"] / file).read_text().splitlines()
        counts = dict(line.split() for line in lines)
        return int(counts.get("oom_kill", 0))

    def remove(self) -> None:
        """Take the cgroups away once their processes have ended."""
        for folder in dict.fromkeys(self.folders.values()):
            remove_folder(folder)


def remove_folder(folder: Path) -> None:
    """Waits for the last process to leave; raises OSError if it never does."""
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
    """A place where this process may bound memory and tasks, or why there is none."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        own = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError as failure:
        return None, str(failure)
    reasons = []
    for site in _candidates(mounts, own):
        refused = _trial(site)
        if refused is None:
            return site, f"v{site.version} at {site.folders['memory']}"
        reasons.append(refused)
    return None, "; ".join(reasons) or "no memory and pids controllers are mounted"


def remove_stale(site: Site) -> None:
    """Remove the empty cgroups of processes that died before they could."""
    for parent in dict.fromkeys(site.folders.values()):
        for folder in parent.glob(f"{PREFIX}*-*"):
            pid = folder.name.removeprefix(PREFIX).split("-")[0]
            if pid.isdigit() and not Path("/proc", pid).exists():
                try:
                    folder.rmdir()
                except OSError:
                    continue  # in use after all, by another pid namespace


def _candidates(mounts: list[str], own: list[str]) -> list[Site]:
    """v1 below our own cgroups; v2 below our own cgroup, or beside it where it holds processes."""
    places = _mounted(mounts)
    paths = dict[str, str]()
    for line in own:
        _, controllers, path = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(",") if controllers else ["v2"], path)
    sites = []
    if all(name in places and name in paths for name in ("memory", "pids")):
        folders = {name: _inside(places[name], paths[name]) for name in ("memory", "pids")}
        sites.append(Site(version=1, folders=folders))
    if "v2" in places and "v2" in paths:
        here = _inside(places["v2"], paths["v2"])
        above = [here.parent] if here != places["v2"][1] else []
        sites += [Site(version=2, folders={"memory": at, "pids": at}) for at in [here, *above]]
    return sites


def _mounted(mounts: list[str]) -> dict[str, tuple[str, Path]]:
    """Controller ("v2" for the unified tree): which cgroup is mounted, and where."""
    found = dict[str, tuple[str, Path]]()
    for line in mounts:
        before, _, after = line.partition(" - ")
        root, target = before.split()[3:5]
        kind, _, options = after.split()[:3]
        if kind == "cgroup2":
            found["v2"] = (root, Path(target))
        elif kind == "cgroup":
            found |= dict.fromkeys(options.split(","), (root, Path(target)))
    return found


def _inside(place: tuple[str, Path], path: str) -> Path:
    root, target = place
    below = os.path.relpath(path, root)
    return target if below == "." or below.startswith("..") else target / below


def _trial(site: Site) -> str | None:
    """Make a cgroup, look for its limits, remove it. None when all is well."""
    made: list[Path] = []
    try:
        for controller, parent in site.folders.items():
            folder = parent / f"{PREFIX}{os.getpid()}-trial"
            folder.mkdir(exist_ok=True)
            made.append(folder)
            file = folder / _NEEDED[site.version][controller]
            if not os.access(file, os.W_OK):
                return f"v{site.version}: no writable {file.name} below {parent}"
    except OSError as failure:
        return f"v{site.version}: {failure}"
    finally:
        for folder in dict.fromkeys(made):
            folder.rmdir()
    return None


def _write_if_there(path: Path, text: str) -> None:
    if path.exists():
        path.write_text(text)
