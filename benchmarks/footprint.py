"""Resources held by this process and its descendants, read from /proc."""

import ctypes
import gc
import os
import re
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import publish  # noqa: F401  puts this checkout on the path

from veriloop.sandbox.namespace import cgroup

_CHUNK = 1 << 22
EVERY_S = 3.0  # between two looks at memory, for a look takes 50 ms of a core


def footprint() -> dict[str, int]:
    """Counts of resources that must not grow, and kilobytes of memory: `own_kb` RSS, `slots_kb`
    PSS."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # freed memory that is kept for later is no leak
    started = descendants(os.getpid())
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "mounts": len(Path("/proc/self/mountinfo").read_text().splitlines()),
        "cgroups": len(own_cgroups()),
        "processes": len(started),
        "in_cgroups": sum(_members(folder) for folder in own_cgroups()),
        "own_kb": _kilobytes(os.getpid(), "status", "VmRSS"),
        "slots_kb": sum(_kilobytes(pid, "smaps_rollup", "Pss") for pid in started),
    }


def held_kb(ancestor: int) -> int:
    """Kilobytes held by a process and its descendants; shared memory is divided among its users."""
    return sum(_kilobytes(pid, "smaps_rollup", "Pss") for pid in (ancestor, *descendants(ancestor)))


def peak_kb(child: subprocess.Popen[bytes]) -> int:
    """The most that a child held with its descendants, seen every EVERY_S until it ended."""
    peak = 0
    while child.poll() is None:
        peak = max(peak, held_kb(child.pid))
        time.sleep(EVERY_S)
    return peak


def descendants(ancestor: int) -> list[int]:
    """Living processes below this one, zombies too: a zombie that stays is a leak."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    pids, waiting = list[int](), [ancestor]
    while waiting:
        below = children.get(waiting.pop(), [])
        pids += below
        waiting += below
    return pids


def own_cgroups() -> list[Path]:
    """cgroup folders created by executors of this process."""
    site, _ = cgroup.find()
    parents = dict.fromkeys(site.folders.values()) if site else {}
    name = f"{cgroup.PREFIX}{os.getpid()}-*"
    return [folder for parent in parents for folder in parent.glob(name)]


def _members(folder: Path) -> int:
    with suppress(OSError):
        return len((folder / "cgroup.procs").read_text().split())
    return 0


def _kilobytes(pid: int, file: str, name: str) -> int:
    with suppress(OSError):
        for line in Path("/proc", str(pid), file).read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1])
    return 0


def scan(pids: list[int], text: bytes) -> dict[str, Any]:
    """Search all writable memory of these processes; returns processes read, MiB and matches."""
    read, size, hits = 0, 0, list[str]()
    for pid in pids:
        with suppress(OSError), open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            before = size
            for start, end in _writable(pid):
                with suppress(OSError):  # a special mapping
                    addresses, count = _search(memory, start, end, text)
                    size += count
                    hits += [f"process {pid} at {address:#x}" for address in addresses]
            read += size > before
    return {"processes": read, "mib": size / (1 << 20), "hits": hits}


def _writable(pid: int) -> list[tuple[int, int]]:
    spans = []
    for line in Path("/proc", str(pid), "maps").read_text().splitlines():
        span, rights = line.split()[:2]
        if rights.startswith("rw"):
            start, end = span.split("-")
            spans.append((int(start, 16), int(end, 16)))
    return spans


def _search(memory: Any, start: int, end: int, text: bytes) -> tuple[list[int], int]:
    """The addresses of `text` between two addresses, and the number of bytes read."""
    addresses, position, kept = list[int](), start, b""
    while position < end:
        memory.seek(position)
        chunk = memory.read(min(_CHUNK, end - position))
        if not chunk:
            break
        window = kept + chunk
        first = position - len(kept)
        addresses += [first + match.start() for match in re.finditer(re.escape(text), window)]
        position += len(chunk)
        kept = window[-len(text) + 1 :]
    return addresses, position - start
