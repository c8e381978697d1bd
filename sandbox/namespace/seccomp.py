"""The filter of system calls for untrusted code: an allow list, compiled to a search tree.

A call that `allowed_calls` does not list is refused: with EPERM if its number is known, else with
ENOSYS, as if the kernel lacked it. The kernel runs a filter once per call number when it is
installed, so the filter has two parts. Most of it restricts the zygote, once, and all its children;
the calls that the zygote needs itself, and those that name a process, are in a small second filter
that every child installs, and after which no filter can be added.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Callable, Mapping

from veriloop.sandbox.namespace.allowed_calls import ABSENT, ALLOWED, OWN_FILES, PROCESSES
from veriloop.sandbox.namespace.syscalls import Machine, failure, machine, numbers, prepared

Instruction = tuple[int, int, int, int]  # operation, jump if true, jump if false, constant
Body = list[Instruction]  # what the filter does with a call; ends with a return

_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_IF_EQUAL, _IF_AT_LEAST, _IF_ANY_BIT, _JUMP = 0x15, 0x35, 0x45, 0x05
_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_ARCH_OFFSET, _NUMBER_OFFSET, _ARGUMENTS_OFFSET = 4, 0, 16
_SET_MODE_FILTER = 1
_SELF = 0x7EADBEEF  # placeholder for the pid of the process that installs the filter

_OF_ZYGOTE = """
mount umount2 capset seccomp landlock_restrict_self pidfd_open sendmsg
"""  # calls that a program may not make, or only with processes
_LEFT_TO_CHILD = f"""
{_OF_ZYGOTE} clone fork vfork kill tgkill prctl prlimit64 sendmmsg
tkill pidfd_send_signal rt_sigqueueinfo rt_tgsigqueueinfo
"""  # needed by the zygote for its children; or naming the process itself; or for processes
_NEW_NAMESPACES = 0x7E020080
_REFUSED_SPACES = _NEW_NAMESPACES & ~0x20000000  # a zygote makes pid namespaces
_THREAD = 0x10F00  # CLONE_THREAD, and sharing memory, files, folders and signal handlers
_AF_UNIX, _SOCK_STREAM, _SOCK_TYPE_MASK = 1, 1, 0xF
_MSG_OOB = 1
_SOL_SOCKET = 1
# SO_TYPE, SO_ERROR, SO_SNDBUF, SO_RCVBUF, SO_LINGER, SO_PEERCRED, SO_RCVTIMEO, SO_SNDTIMEO,
# SO_ACCEPTCONN, SO_PROTOCOL, SO_DOMAIN, SO_RCVTIMEO_NEW, SO_SNDTIMEO_NEW
_SOCKET_STATE = (3, 4, 7, 8, 13, 17, 20, 21, 30, 38, 39, 66, 67)
_SOCKET_SETTINGS = (2, 9, 13, 20, 21, 66, 67)  # SO_REUSEADDR, SO_KEEPALIVE, SO_LINGER, timeouts
_BUFFER_SIZES = (7, 8)  # SO_SNDBUF, SO_RCVBUF: hints, ignored because no limit counts the memory
# TCGETS, TCSETS*, TIOCGPGRP, TIOCSPGRP, TIOCGWINSZ, FIONREAD, FIONBIO, FIOCLEX, FIONCLEX, TCGETS2
_STREAM_REQUESTS = (
    *(0x5401, 0x5402, 0x5403, 0x5404, 0x540F, 0x5410, 0x5413),
    *(0x541B, 0x5421, 0x5450, 0x5451, 0x802C542A),
)
_REFUSED_REQUESTS = (0x5412, 0x541C, 0x8901, 0x8902)  # TIOCSTI, TIOCLINUX, owners of signals
# F_DUPFD to F_SETFL, F_GETOWN, F_DUPFD_CLOEXEC, F_GETPIPE_SZ, F_ADD_SEALS, F_GET_SEALS,
# F_DUPFD_QUERY, F_GET_RW_HINT
_FILE_COMMANDS = (0, 1, 2, 3, 4, 9, 1030, 1032, 1033, 1034, 1027, 1035)
# locks, leases, F_NOTIFY, owners of signals, F_SETPIPE_SZ, write hints
_REFUSED_COMMANDS = (5, 6, 7, 8, 10, 15, 36, 37, 38, 1024, 1026, 1031, 1036, 1038)
# PR_GET_DUMPABLE, PR_SET_NAME, PR_GET_NAME, PR_GET_SECCOMP, PR_CAPBSET_READ, PR_GET_SECUREBITS,
# PR_SET_TIMERSLACK, PR_GET_TIMERSLACK, PR_SET_NO_NEW_PRIVS, PR_GET_NO_NEW_PRIVS,
# PR_GET_TID_ADDRESS, PR_SET_THP_DISABLE, PR_GET_THP_DISABLE, PR_SVE_*, PR_SME_*, PR_PAC_*,
# PR_SET_TAGGED_ADDR_CTRL, PR_GET_TAGGED_ADDR_CTRL, PR_GET_SPECULATION_CTRL
_PROCESS_SETTINGS = (
    *(3, 15, 16, 21, 23, 27, 29, 30, 38, 39, 40, 41, 42),
    *(50, 51, 52, 54, 55, 56, 60, 61, 63, 64),
)
_OF_CHILD_SETUP = (1, 4)  # PR_SET_PDEATHSIG, PR_SET_DUMPABLE
_REFUSED_SETTINGS = (*_OF_CHILD_SETUP, 22, 36, 0x59616D61)  # seccomp, subreaper, ptracer
_MEMBARRIERS = (0, 8, 16, 32, 64, 128, 256, 512)  # those of the own process, and queries
_THREAD_REGISTERS = (0x1001, 0x1002, 0x1003, 0x1004, 0x1021, 0x1022, 0x1023)  # ARCH_*
_RWF_NOWAIT, _FADV_DONTNEED = 8, 4  # reveal whether a page is cached, and evict it
_O_TMPFILE = 0x400000  # a file without a name leaves no trace in its folder (see `scratch`)
_CLOSE_RANGE_UNSHARE = 2  # another table of descriptors, which the limit on them does not count
_MAP_HUGETLB = 0x40000  # memory that a cgroup does not count
_MADV_MERGEABLE = 12  # shares equal pages of all processes, which reveals them by timing
_UNCOUNTED = 0x101  # MAP_SHARED (MAP_SHARED_VALIDATE holds its bit), MAP_GROWSDOWN


def zygote_filter(on: Machine, *, alone: bool) -> bytes:
    """The part that the zygote can run under, as an array of struct sock_filter."""
    rules = _rules(on, processes=True, alone=alone)
    known = numbers(on)
    for name in _LEFT_TO_CHILD.split():
        if name in known:
            rules[known[name]] = _allow()
    rules[known["clone"]] = _clone(_REFUSED_SPACES, processes=True)
    rules[known["prctl"]] = _settings(*_OF_CHILD_SETUP)
    return _assemble(on, rules, _deny(errno.ENOSYS))


def child_filter(on: Machine, *, processes: bool, alone: bool) -> bytes:
    """The rest, for a child of a zygote under `zygote_filter`. Needs `for_process` before use.

    `processes`: allow forks and passing descriptors; threads are always allowed. `alone`: without
    pid namespace and private file tree, so that signals may only name the process itself, and no
    file's owner, rights or times may change.
    """
    known = numbers(on)
    left = {known[name] for name in _LEFT_TO_CHILD.split() if name in known}
    rules = {n: r for n, r in _rules(on, processes=processes, alone=alone).items() if n in left}
    # All that the zygote's filter leaves to refuse.
    rules[known["prctl"]] = _argument(0, _OF_CHILD_SETUP, _deny(errno.EPERM), _allow())
    return _assemble(on, rules, _allow())


def private_memory(on: Machine) -> bytes:
    """An additional filter: no shared or stack mappings, which RLIMIT_DATA does not count."""
    countable = [_load(3), (_IF_ANY_BIT, 0, 1, _UNCOUNTED), *_deny(errno.EPERM), *_allow()]
    return _assemble(on, {numbers(on)["mmap"]: countable}, _allow())


def _assemble(on: Machine, rules: Mapping[int, Body], default: Body) -> bytes:
    """The program; calls of another instruction set end the process."""
    program: Body = [
        (_LOAD, 0, 0, _ARCH_OFFSET),
        (_IF_EQUAL, 1, 0, on.audit),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_OFFSET),
    ]
    program += _tree(_ranges(rules, default))
    return b"".join(struct.pack("HBBI", *instruction) for instruction in program)


def for_process(program: bytes, pid: int) -> bytes:
    """Insert the pid where the filter names the process itself."""
    return program.replace(struct.pack("I", _SELF), struct.pack("I", pid))


def installer(program: bytes) -> Callable[[], int]:
    """A call that restricts the calling thread and everything it starts; needs no_new_privs.

    It returns a negative number if it fails: see `syscalls.failure`.
    """
    record = _Program(len(program) // 8, program)
    return prepared("seccomp", _SET_MODE_FILTER, 0, ctypes.byref(record))


def installer_for_caller(program: bytes) -> Callable[[], int]:
    """The same for a filter that names the process that will make the call."""

    def install() -> int:
        return installer(for_process(program, os.getpid()))()

    return install


def install(program: bytes) -> None:
    """Install a filter now. Raises OSError."""
    if installer(program)() < 0:
        raise failure("seccomp")


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def _rules(on: Machine, *, processes: bool, alone: bool) -> dict[int, Body]:
    """What to do with each known call number."""
    allowed = ALLOWED | (PROCESSES if processes else set()) | (set() if alone else OWN_FILES)
    known = numbers(on)
    by_name = {name: _deny(errno.EPERM) for name in known}
    by_name |= {name: _deny(errno.ENOSYS) for name in ABSENT}
    by_name |= {name: _allow() for name in allowed}
    by_name |= _restricted_arguments(processes=processes)
    if not processes:
        by_name |= {"fork": _deny(errno.EAGAIN), "vfork": _deny(errno.EAGAIN)}
    if alone:
        to_self = _argument(0, (_SELF,), _allow(), _deny(errno.EPERM))
        by_name |= {"kill": to_self, "tgkill": to_self}
        # Timers are limited per account, which may be shared.
        by_name["timer_create"] = _deny(errno.EAGAIN)
    return {known[name]: body for name, body in by_name.items() if name in known}


def _restricted_arguments(*, processes: bool) -> dict[str, Body]:
    """The calls that are allowed with some arguments only, and the unusual refusals."""
    refused = _deny(errno.EPERM)
    return {
        "clone": _clone(_NEW_NAMESPACES, processes=processes),
        "socket": _deny(errno.EAFNOSUPPORT),
        "socketpair": _stream_pair(),
        "sendto": _flag(3, _MSG_OOB, _deny(errno.EOPNOTSUPP), _allow()),
        "recvfrom": _flag(3, _MSG_OOB, _deny(errno.EOPNOTSUPP), _allow()),
        "getsockopt": _socket_option(_SOCKET_STATE, ()),
        "setsockopt": _socket_option(_SOCKET_SETTINGS, _BUFFER_SIZES),
        "splice": _deny(errno.EINVAL),  # what a file system without splice answers
        "tee": _deny(errno.EINVAL),
        "ioctl": _command(1, _STREAM_REQUESTS, _REFUSED_REQUESTS, errno.ENOTTY),
        "fcntl": _command(1, _FILE_COMMANDS, _REFUSED_COMMANDS, errno.EINVAL),
        "prctl": _settings(),
        "arch_prctl": _argument(0, _THREAD_REGISTERS, _allow(), _deny(errno.EINVAL)),
        "membarrier": _argument(0, _MEMBARRIERS, _allow(), _deny(errno.EINVAL)),
        "open": _flag(1, _O_TMPFILE, _deny(errno.EOPNOTSUPP), _allow()),
        "openat": _flag(2, _O_TMPFILE, _deny(errno.EOPNOTSUPP), _allow()),
        "preadv2": _flag(5, _RWF_NOWAIT, _deny(errno.EOPNOTSUPP), _allow()),
        "fadvise64": _argument(3, (_FADV_DONTNEED,), refused, _allow()),
        "close_range": _flag(2, _CLOSE_RANGE_UNSHARE, _deny(errno.EINVAL), _allow()),
        "mmap": _flag(3, _MAP_HUGETLB, _deny(errno.ENOMEM), _allow()),
        "madvise": _argument(2, (_MADV_MERGEABLE,), _deny(errno.EINVAL), _allow()),
        "prlimit64": _argument(0, (0, _SELF), _allow(), refused),
    }


def _error(code: int) -> int:
    return 0x00050000 | code


def _deny(code: int) -> Body:
    """Refuse with this error number; 0: report success without doing anything."""
    return [(_RETURN, 0, 0, _error(code))]


def _allow() -> Body:
    return [(_RETURN, 0, 0, _ALLOW)]


def _load(index: int) -> Instruction:
    """Load the low word of an argument, all that the kernel reads of an int (little-endian)."""
    return (_LOAD, 0, 0, _ARGUMENTS_OFFSET + 8 * index)


def _argument(index: int, values: tuple[int, ...], hit: Body, miss: Body) -> Body:
    """`hit` if the argument is one of `values`, else `miss`."""
    last = len(values) - 1
    tests = [(_IF_EQUAL, last - i + len(miss), 0, value) for i, value in enumerate(values)]
    return [_load(index), *tests, *miss, *hit]


def _flag(index: int, bit: int, hit: Body, miss: Body) -> Body:
    """`hit` if the argument has this bit, else `miss`."""
    return [_load(index), (_IF_ANY_BIT, len(miss), 0, bit), *miss, *hit]


def _command(index: int, allowed: tuple[int, ...], refused: tuple[int, ...], code: int) -> Body:
    """Allow some commands, refuse some with EPERM, and others with `code`."""
    others = _argument(index, refused, _deny(errno.EPERM), _deny(code))
    return _argument(index, allowed, _allow(), others)


def _settings(*more: int) -> Body:
    """Allow the harmless operations of prctl, and `more`."""
    refused = tuple(value for value in _REFUSED_SETTINGS if value not in more)
    return _command(0, (*_PROCESS_SETTINGS, *more), refused, errno.EINVAL)


def _socket_option(allowed: tuple[int, ...], ignored: tuple[int, ...]) -> Body:
    """Allow some options of the socket level, ignore some, refuse the others."""
    refused = _deny(errno.ENOPROTOOPT)
    others = _argument(2, ignored, _deny(0), refused) if ignored else refused
    options = _argument(2, allowed, _allow(), others)
    return _argument(1, (_SOL_SOCKET,), options, refused)


def _stream_pair() -> Body:
    """Allow pairs of connected Unix streams; a datagram pair could send to other addresses."""
    streams = [_load(1), (_AND, 0, 0, _SOCK_TYPE_MASK), (_IF_EQUAL, 0, 1, _SOCK_STREAM)]
    refused = _deny(errno.EAFNOSUPPORT)
    return _argument(0, (_AF_UNIX,), [*streams, *_allow(), *refused], refused)


def _clone(spaces: int, *, processes: bool) -> Body:
    """Refuse these namespaces, and without `processes` everything but threads that share all."""
    body = [_load(0), (_IF_ANY_BIT, 0, 1, spaces), *_deny(errno.EPERM)]
    if not processes:
        body += [(_AND, 0, 0, _THREAD), (_IF_EQUAL, 1, 0, _THREAD), *_deny(errno.EAGAIN)]
    return body + _allow()


def _ranges(rules: Mapping[int, Body], default: Body) -> list[tuple[int, Body]]:
    """What to do with all numbers from each start to the next one; the last range has no end."""
    ranges: list[tuple[int, Body]] = [(0, rules.get(0, default))]
    for number in sorted({n + after for n in rules for after in (0, 1)} - {0}):
        body = rules.get(number, default)
        if body != ranges[-1][1]:
            ranges.append((number, body))
    return ranges


def _tree(ranges: list[tuple[int, Body]]) -> Body:
    """Binary search for the range of the call number, which is in the accumulator."""
    if len(ranges) == 1:
        return ranges[0][1]
    middle = len(ranges) // 2
    left, right = _tree(ranges[:middle]), _tree(ranges[middle:])
    split = ranges[middle][0]
    if len(left) < 256:
        return [(_IF_AT_LEAST, len(left), 0, split), *left, *right]
    return [(_IF_AT_LEAST, 0, 1, split), (_JUMP, 0, 0, len(left)), *left, *right]


def install_in_zygote(*, alone: bool) -> None:
    install(zygote_filter(machine(), alone=alone))
