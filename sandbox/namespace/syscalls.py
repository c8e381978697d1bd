"""System calls by name, with their numbers on x86-64 and arm64."""

import ctypes
import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from veriloop.sandbox.namespace.syscall_table import TABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One instruction set, by its kernel name."""

    name: str
    audit: int  # AUDIT_ARCH_* as seccomp filters see it
    column: int  # in TABLE


MACHINES = {
    "x86_64": Machine(name="x86_64", audit=0xC000003E, column=0),
    "aarch64": Machine(name="aarch64", audit=0xC00000B7, column=1),
}

libc = ctypes.CDLL(None, use_errno=True)
_libc_with_gil = ctypes.PyDLL(None, use_errno=True)


def machine(name: str | None = None) -> Machine:
    """This machine, or the named one. Raises OSError(ENOSYS) for an unknown instruction set."""
    name = name or os.uname().machine
    if name not in MACHINES:
        known = ", ".join(MACHINES)
        raise OSError(errno.ENOSYS, f"no system call numbers for {name!r}; known: {known}")
    return MACHINES[name]


def numbers(on: Machine) -> dict[str, int]:
    """Call numbers by name, without those the machine lacks."""
    rows = [entry.split(":") for entry in TABLE.split()]
    return {row[0]: int(row[1 + on.column]) for row in rows if row[1 + on.column] != "-"}


_NUMBERS = numbers(MACHINES.get(os.uname().machine, MACHINES["x86_64"]))


def call(name: str, *arguments: Any) -> int:
    """Make a system call. Integers and ctypes pointers only. Raises OSError."""
    machine()
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = libc.syscall(ctypes.c_long(_NUMBERS[name]), *words)
    if result < 0:
        raise failure(name)
    return result


def prepared(name: str, *arguments: Any) -> Callable[..., int]:
    """A system call with prepared arguments, which touches few pages, as a new fork requires.

    It keeps the interpreter's lock. It returns a negative number if it fails: see `failure`.
    """
    return partial(_libc_with_gil.syscall, ctypes.c_long(_NUMBERS[name]), *arguments)


def failure(what: str) -> OSError:
    """The error of the last C call, prefixed with `what`."""
    code = ctypes.get_errno()
    return OSError(code, f"{what}: {os.strerror(code)}")
