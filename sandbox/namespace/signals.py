"""Lets pid 1 die of its own signals: the kernel ignores those that it did not arrange for.

Only a few forced signals end the first process of a pid namespace; abort() would look like a
segmentation fault and a SIGTERM to itself would do nothing. So where the default would be death, a
few instructions leave with 128 plus the signal's number, as a shell tells it.
"""

import ctypes
import mmap
import os
import signal

from sandbox.namespace.syscalls import Machine, libc, machine

_SHELL_OFFSET = 128
_LEAVE = {
    "x86_64": bytes.fromhex("8dbf80000000 b8e7000000 0f05"),  # exit_group(signal + 128)
    "aarch64": bytes.fromhex("00000211 c80b80d2 010000d4"),
}
_NOT_DEADLY = {"KILL", "STOP", "TSTP", "TTIN", "TTOU", "CHLD", "CONT", "URG", "WINCH", "XCPU"}
DEADLY = frozenset(one for one in signal.valid_signals() if signal.strsignal(one)) - {
    getattr(signal, f"SIG{name}") for name in _NOT_DEADLY
}

_pages: list[mmap.mmap] = []  # must never be freed


def die_of_own_signals(on: Machine | None = None) -> None:
    """In a zygote that is pid 1, once: all its children inherit it. Handlers in place are kept."""
    code = _LEAVE[(on or machine()).name]
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS  # what a child writes into it is its own
    access = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
    page = mmap.mmap(-1, mmap.PAGESIZE, flags=private, prot=access)
    page.write(code)
    _pages.append(page)
    leave = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(page)))
    for number in DEADLY:
        if signal.getsignal(number) == signal.SIG_DFL:
            libc.signal(number, leave)


def as_waited(status: int) -> int:
    """The status of wait(), with such an exit told as the death it stands for."""
    number = os.WEXITSTATUS(status) - _SHELL_OFFSET if os.WIFEXITED(status) else 0
    return number if number in DEADLY else status
