"""What the kernel refuses to untrusted code: a deny list, compiled to a balanced search tree.

The kernel runs a filter once per call number when it is installed, so the list comes in two parts:
most of it binds the zygote, once, and all its children; what the zygote itself must be able to do,
and what names a process, is a small second filter that each child installs.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Callable

from sandbox.namespace.syscalls import Machine, failure, machine, numbers, prepared

Instruction = tuple[int, int, int, int]  # operation, jump if true, jump if false, constant

_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_IF_EQUAL, _IF_AT_LEAST, _IF_ANY_BIT, _JUMP = 0x15, 0x35, 0x45, 0x05
_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_ARCH_OFFSET, _NUMBER_OFFSET, _ARGUMENTS_OFFSET = 4, 0, 16
_SET_MODE_FILTER = 1
_SELF = 0x7EADBEEF  # stands for the pid of the process that installs the filter

_ABSENT = """
clone3 openat2 io_uring_setup io_uring_enter io_uring_register keyctl add_key request_key
memfd_secret
"""  # programs look for these and do without
_REFUSED = """
ptrace process_vm_readv process_vm_writev process_madvise process_mrelease kcmp pidfd_getfd bpf
perf_event_open userfaultfd fanotify_init fanotify_mark inotify_init inotify_init1
inotify_add_watch mount umount2 pivot_root chroot move_mount open_tree open_tree_attr fsopen
fsconfig fsmount fspick mount_setattr unshare setns swapon swapoff reboot kexec_load
kexec_file_load init_module finit_module delete_module acct quotactl quotactl_fd settimeofday
clock_settime clock_adjtime adjtimex sethostname setdomainname iopl ioperm modify_ldt
lookup_dcookie syslog vhangup name_to_handle_at open_by_handle_at personality migrate_pages
move_pages memfd_create shmget shmat shmctl shmdt msgget msgsnd msgrcv msgctl semget semop
semtimedop semctl mq_open mq_unlink mq_notify nfsservctl uselib _sysctl sysfs ustat
landlock_create_ruleset landlock_add_rule landlock_restrict_self remap_file_pages io_setup vmsplice
mknod mknodat setuid setgid setreuid setregid setresuid setresgid setgroups setfsuid setfsgid
capset statmount listmount sync syncfs cachestat flock bind connect listen accept accept4
pidfd_open pidfd_send_signal tkill rt_sigqueueinfo rt_tgsigqueueinfo sched_setaffinity
sched_setscheduler sched_setparam sched_setattr ioprio_set setpriority sysinfo
"""
_BEYOND_LANDLOCK = """
chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat utime utimes futimesat utimensat
setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat
file_setattr truncate statfs fstatfs
"""  # changes to files that it lets through, and how full the machine's disks are
_SIGNALS_OF_A_TREE = "pidfd_open pidfd_send_signal tkill rt_sigqueueinfo rt_tgsigqueueinfo"

_LEFT_TO_CHILD = f"""
clone fork vfork mount umount2 capset prctl prlimit64 kill tgkill landlock_restrict_self
sendmsg sendmmsg {_SIGNALS_OF_A_TREE}
"""  # all but clone: the zygote needs them for its children, or they speak of the process itself
_NEW_NAMESPACES = 0x7E020080
_SPACES_OF_OTHERS = _NEW_NAMESPACES & ~0x20000000  # a zygote makes pid namespaces
_CLONE_THREAD = 0x10000
_AF_UNIX, _SOCK_STREAM, _SOCK_TYPE_MASK = 1, 1, 0xF
_TERMINAL_INJECTION = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
_SIGNAL_OWNERS = (0x8901, 0x8902)  # FIOSETOWN, SIOCSPGRP
_LOCKS = (5, 6, 7, 36, 37, 38, 1024, 1026)  # record locks of both kinds, leases, F_NOTIFY
_WRITE_HINTS = (1036, 1038)  # they stay with a shared file
_SOCKET_NUMBERS = (57, 71)  # SO_COOKIE, SO_NETNS_COOKIE: counters of the whole machine
_RWF_NOWAIT, _FADV_DONTNEED = 8, 4  # to ask whether a page is in the cache, and to evict it
_O_TMPFILE = 0x400000  # a file without a name leaves no trace in its folder (see `scratch`)
_OWNERS = (8, 10, 15, 1031)  # F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETPIPE_SZ
_PR_SET_PDEATHSIG = 1
_UNCOUNTED = 0x101  # MAP_SHARED (MAP_SHARED_VALIDATE holds its bit), MAP_GROWSDOWN


def zygote_filter(on: Machine, *, alone: bool) -> bytes:
    """The part that does not hinder a zygote, as an array of struct sock_filter."""
    rules = _rules(on, processes=False, alone=alone)
    known = numbers(on)
    for name in _LEFT_TO_CHILD.split():
        rules.pop(known.get(name, -1), None)
    return _assemble(on, rules | {known["clone"]: _clone(_SPACES_OF_OTHERS, processes=True)})


def child_filter(on: Machine, *, processes: bool, alone: bool) -> bytes:
    """The rest, for a child of a zygote under `zygote_filter`. Needs `for_process` before use.

    `processes`: may fork and pass descriptors; threads are always allowed. `alone`: there is no
    pid namespace and no private file tree, so signals may name only the process itself and no
    file's owner, rights, times or attributes may change.
    """
    known = numbers(on)
    left = {known[name] for name in _LEFT_TO_CHILD.split() if name in known}
    rules = _rules(on, processes=processes, alone=alone)
    return _assemble(on, {number: body for number, body in rules.items() if number in left})


def private_memory(on: Machine) -> bytes:
    """A filter beside the other: no memory that RLIMIT_DATA does not count, shared or a stack's."""
    countable = [_load(3), (_IF_ANY_BIT, 0, 1, _UNCOUNTED), *_deny(errno.EPERM), *_allow()]
    return _assemble(on, {numbers(on)["mmap"]: countable})


def _assemble(on: Machine, rules: dict[int, list[Instruction]]) -> bytes:
    program: list[Instruction] = [
        (_LOAD, 0, 0, _ARCH_OFFSET),
        (_IF_EQUAL, 1, 0, on.audit),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_OFFSET),
    ]
    if on.compat_bit is not None:
        program += [(_IF_AT_LEAST, 0, 1, on.compat_bit), (_RETURN, 0, 0, _error(errno.ENOSYS))]
    program += _tree(sorted(rules.items()))
    return b"".join(struct.pack("HBBI", *instruction) for instruction in program)


def for_process(program: bytes, pid: int) -> bytes:
    """Put the pid where the filter speaks of the process itself."""
    return program.replace(struct.pack("I", _SELF), struct.pack("I", pid))


def installer(program: bytes) -> Callable[[], int]:
    """Binds the thread that calls it and all it starts, which needs no_new_privs.

    The result is negative when it fails: see `syscalls.failure`.
    """
    record = _Program(len(program) // 8, program)
    return prepared("seccomp", _SET_MODE_FILTER, 0, ctypes.byref(record))


def installer_for_caller(program: bytes) -> Callable[[], int]:
    """The same where the filter speaks of the process that will make the call."""

    def install() -> int:
        return installer(for_process(program, os.getpid()))()

    return install


def install(program: bytes) -> None:
    """The same at once. Raises OSError."""
    if installer(program)() < 0:
        raise failure("seccomp")


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def _rules(on: Machine, *, processes: bool, alone: bool) -> dict[int, list[Instruction]]:
    """What happens at each call number; every body ends in a return."""
    by_name = {name: _deny(errno.EPERM) for name in _REFUSED.split()}
    if processes:
        for name in _SIGNALS_OF_A_TREE.split():
            del by_name[name]
    by_name |= {name: _deny(errno.ENOSYS) for name in _ABSENT.split()}
    by_name |= {
        "socket": _deny(errno.EAFNOSUPPORT),
        "socketpair": _stream_pair(),
        "clone": _clone(_NEW_NAMESPACES, processes=processes),
        "ioctl": _argument(1, _TERMINAL_INJECTION + _SIGNAL_OWNERS, _deny(errno.EPERM), _allow()),
        "fcntl": _argument(1, _LOCKS + _OWNERS + _WRITE_HINTS, _deny(errno.EPERM), _allow()),
        "getsockopt": _argument(2, _SOCKET_NUMBERS, _deny(errno.ENOPROTOOPT), _allow()),
        "open": _flag(1, _O_TMPFILE, _deny(errno.EOPNOTSUPP), _allow()),
        "openat": _flag(2, _O_TMPFILE, _deny(errno.EOPNOTSUPP), _allow()),
        "preadv2": _flag(5, _RWF_NOWAIT, _deny(errno.EOPNOTSUPP), _allow()),
        "fadvise64": _argument(3, (_FADV_DONTNEED,), _deny(errno.EPERM), _allow()),
        "prctl": _argument(0, (_PR_SET_PDEATHSIG,), _deny(errno.EPERM), _allow()),
        "prlimit64": _argument(0, (0, _SELF), _allow(), _deny(errno.EPERM)),
    }
    if not processes:
        by_name |= {"fork": _deny(errno.EAGAIN), "vfork": _deny(errno.EAGAIN)}
        by_name |= {"sendmsg": _deny(errno.EPERM), "sendmmsg": _deny(errno.EPERM)}
    if alone:
        to_self = _argument(0, (_SELF,), _allow(), _deny(errno.EPERM))
        by_name |= {"kill": to_self, "tgkill": to_self}
        by_name["timer_create"] = _deny(errno.EAGAIN)  # bounded for a whole account at once
        by_name |= {name: _deny(errno.EPERM) for name in _BEYOND_LANDLOCK.split()}
    known = numbers(on)
    return {known[name]: body for name, body in by_name.items() if name in known}


def _error(code: int) -> int:
    return 0x00050000 | code


def _deny(code: int) -> list[Instruction]:
    return [(_RETURN, 0, 0, _error(code))]


def _allow() -> list[Instruction]:
    return [(_RETURN, 0, 0, _ALLOW)]


def _load(index: int) -> Instruction:
    """The low word of an argument: all the kernel reads of an int, on both (little-endian)."""
    return (_LOAD, 0, 0, _ARGUMENTS_OFFSET + 8 * index)


def _argument(
    index: int, values: tuple[int, ...], hit: list[Instruction], miss: list[Instruction]
) -> list[Instruction]:
    """`hit` where the argument is one of `values`, else `miss`."""
    last = len(values) - 1
    tests = [(_IF_EQUAL, last - place + len(miss), 0, value) for place, value in enumerate(values)]
    return [_load(index), *tests, *miss, *hit]


def _flag(
    index: int, bit: int, hit: list[Instruction], miss: list[Instruction]
) -> list[Instruction]:
    """`hit` where the argument has this bit, else `miss`."""
    return [_load(index), (_IF_ANY_BIT, len(miss), 0, bit), *miss, *hit]


def _stream_pair() -> list[Instruction]:
    """Pairs of connected Unix streams; a datagram pair could send to other addresses."""
    streams = [_load(1), (_AND, 0, 0, _SOCK_TYPE_MASK), (_IF_EQUAL, 0, 1, _SOCK_STREAM)]
    refused = _deny(errno.EAFNOSUPPORT)
    return _argument(0, (_AF_UNIX,), [*streams, *_allow(), *refused], refused)


def _clone(spaces: int, *, processes: bool) -> list[Instruction]:
    """None of these namespaces; without `processes`, threads only."""
    body = [_load(0), (_IF_ANY_BIT, 0, 1, spaces), *_deny(errno.EPERM)]
    if not processes:
        body += [(_IF_ANY_BIT, 1, 0, _CLONE_THREAD), *_deny(errno.EAGAIN)]
    return body + _allow()


def _tree(rules: list[tuple[int, list[Instruction]]]) -> list[Instruction]:
    """Search by call number, three rules to a leaf; a number not found is allowed."""
    if len(rules) <= 3:
        leaf = [i for number, body in rules for i in [(_IF_EQUAL, 0, len(body), number), *body]]
        return leaf + _allow()
    middle = len(rules) // 2
    left, right = _tree(rules[:middle]), _tree(rules[middle:])
    split = rules[middle][0]
    if len(left) < 256:
        return [(_IF_AT_LEAST, len(left), 0, split), *left, *right]
    return [(_IF_AT_LEAST, 0, 1, split), (_JUMP, 0, 0, len(left)), *left, *right]


def install_in_zygote(*, alone: bool) -> None:
    install(zygote_filter(machine(), alone=alone))
