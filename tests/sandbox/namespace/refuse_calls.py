"""Run a command in a process whose system calls fail: refuse_calls.py NAME=ERRNO,... COMMAND."""

import errno
import os
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from veriloop.sandbox.namespace import linux, seccomp
from veriloop.sandbox.namespace.syscalls import machine, numbers

_SINCE_5_5 = """
mount_setattr close_range openat2 clone3 pidfd_getfd process_madvise fchmodat2 cachestat
landlock_create_ruleset landlock_add_rule landlock_restrict_self memfd_secret statmount
"""
LINUX_5_4 = dict.fromkeys(_SINCE_5_5.split(), "ENOSYS")
_LOAD, _IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER_OFFSET, _ERROR, _ALLOW = 0, 0x00050000, 0x7FFF0000
INITRAMFS = {"pivot_root": "EINVAL"}


def command(refused: Mapping[str, str], *words: str) -> list[str]:
    """The command line that runs `words` without these calls. Errors are by name of the call."""
    calls = ",".join(f"{name}={error}" for name, error in refused.items())
    return [sys.executable, str(Path(__file__)), calls, *words]


def main(calls: str, words: Sequence[str]) -> None:
    known = numbers(machine())
    program = [(_LOAD, 0, 0, _NUMBER_OFFSET)]
    for name, _, error in (call.partition("=") for call in calls.split(",") if call):
        refusal = (_RETURN, 0, 0, _ERROR | getattr(errno, error))
        program += [(_IF_EQUAL, 0, 1, known[name]), refusal]
    program.append((_RETURN, 0, 0, _ALLOW))
    linux.no_new_privileges()
    seccomp.install(b"".join(struct.pack("HBBI", *instruction) for instruction in program))
    os.execvp(words[0], words)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
