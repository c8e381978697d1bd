"""Makes fatal signals end pid 1, for which the kernel ignores signals without a handler.

Only a few forced signals end the first process of a pid namespace: abort() would look like a
segmentation fault, and a SIGTERM to itself would do nothing. So every signal whose default action
is fatal gets a handler of a few instructions, which exits with 128 plus the signal's number.
"""

import ctypes
import mmap
import os
import signal

from veriloop.sandbox.namespace.syscalls import libc, machine

_SHELL_OFFSET = 128
_EXIT_CODE = {
    "x86_64": bytes.fromhex("8dbf80000000 b8e7000000 0f05"),  # exit_group(signal + 128)
    "aarch64": bytes.fromhex("00000211 c80b80d2 010000d4"),
}
_NOT_DEADLY = {"KILL", "STOP", "TSTP", "TTIN", "TTOU", "CHLD", "CONT", "URG", "WINCH", "XCPU"}
DEADLY = frozenset(filter(signal.strsignal, signal.valid_signals())) - {
    getattr(signal, f"SIG{name}") for name in _NOT_DEADLY
}

_pages: list[mmap.mmap] = []  # handlers must never be freed


def enable_fatal_signals() -> None:
    """Install the handlers, once in a zygote that is pid 1; existing handlers are kept."""
    code = _EXIT_CODE[machine().name]
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS  # a child's writes stay in the child
    access = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
    page = mmap.mmap(-1, mmap.PAGESIZE, flags=private, prot=access)
    page.write(code)
    _pages.append(page)
    handler = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(page)))
    for number in DEADLY:
        if signal.getsignal(number) == signal.SIG_DFL:
            libc.signal(number, handler)


def signalled_status(status: int) -> int:
    """The status of wait(), with the exit code of a handler replaced by its signal."""
    number = os.WEXITSTATUS(status) - _SHELL_OFFSET if os.WIFEXITED(status) else 0
    return number if number in DEADLY else status
