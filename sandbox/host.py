"""What the sandbox requires of the operating system, and the settings that forbid namespaces."""

import ctypes
import importlib
import os
import platform
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

_ATTRIBUTES = """
os.memfd_create os.pidfd_open os.pipe2 os.O_PATH resource.prlimit select.poll socket.send_fds
socket.SOCK_SEQPACKET signal.pidfd_send_signal
"""
_LIBC = "syscall mount prctl sethostname umount2 unshare"
_SPACES = ("user", "mnt", "pid", "net", "ipc", "uts")
_FILTERED = "2"  # "Seccomp:" of /proc/self/status: a filter


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """A function of the operating system that the sandbox calls."""

    name: str
    present: bool
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restriction:
    """A setting of this machine that forbids namespaces to unprivileged processes."""

    setting: str
    value: str
    fix: str

    def __str__(self) -> str:
        return f"{self.setting} = {self.value}: {self.fix}"


def requirements() -> list[Requirement]:
    """Everything that the sandbox needs before its layers can be tested."""
    system = f"this is {platform.system()} {platform.release()}"
    libc = _libc()
    return [
        Requirement(name="Linux", present=sys.platform == "linux", detail=system),
        *(_of_python(name) for name in _ATTRIBUTES.split()),
        *(_of_libc(libc, name) for name in _LIBC.split()),
    ]


def restrictions(proc: Path = Path("/proc")) -> list[Restriction]:
    """The settings in `proc` that forbid namespaces, each with what to change."""
    return [*_sysctls(proc / "sys"), *_filters(proc)]


def affinity() -> set[int]:
    """The cores available to this process, by number."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def bind(cores: Collection[int]) -> None:
    """Keep this process on these cores, where the system can; otherwise it places them itself."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)


def cores() -> int:
    """Number of cores available to this process."""
    return len(affinity())


def kernel() -> tuple[int, int]:
    """Version of the running kernel, as (6, 1). (0, 0) if it has none."""
    major, _, rest = platform.release().partition(".")
    minor = "".join(char if char.isdecimal() else " " for char in rest).split(" ")[0]
    return (int(major), int(minor)) if major.isdecimal() and minor else (0, 0)


def _of_python(name: str) -> Requirement:
    module, _, attribute = name.partition(".")
    try:
        present = hasattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError:
        present = False
    return Requirement(name=name, present=present, detail="" if present else "not in this Python")


def _of_libc(libc: ctypes.CDLL | None, name: str) -> Requirement:
    present = libc is not None and hasattr(libc, name)
    detail = "" if present else "not in this C library"
    return Requirement(name=f"{name}()", present=present, detail=detail)


def _libc() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(None)
    except (OSError, TypeError):  # Windows
        return None


def _sysctls(root: Path) -> Iterator[Restriction]:
    """Restrictions by sysctl; a file that does not exist restricts nothing."""
    restricting = {"kernel.apparmor_restrict_unprivileged_userns": ("1", "0")}
    restricting["kernel.unprivileged_userns_clone"] = ("0", "1")
    restricting |= {f"user.max_{space}_namespaces": ("0", "15000") for space in _SPACES}
    for name, (value, better) in restricting.items():
        path = root / name.replace(".", "/")
        if path.is_file() and path.read_text().strip() == value:
            fix = f"sysctl -w {name}={better}, or run as root"
            if "apparmor" in name:  # Ubuntu from 23.10 on
                fix += ", or load an AppArmor profile with `userns,` for this Python"
            yield Restriction(setting=name, value=value, fix=fix)


def _filters(proc: Path) -> Iterator[Restriction]:
    status = proc / "self/status"
    lines = status.read_text().splitlines() if status.is_file() else []
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    if fields.get("Seccomp", "").strip() == _FILTERED:
        fix = "start the container with --security-opt seccomp=unconfined"
        yield Restriction(setting="seccomp filter of this process", value=_FILTERED, fix=fix)
