"""Typed wrappers of C calls that Python lacks."""

import ctypes
import os
from collections.abc import Callable

from veriloop.sandbox.namespace.syscalls import call, failure, libc, prepared

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8
MS_REMOUNT, MS_NOATIME, MS_BIND, MS_MOVE = 32, 1024, 4096, 8192
MS_REC, MS_PRIVATE = 16384, 1 << 18
_MNT_DETACH = 2

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_CAPBSET_DROP = 1, 36, 24
_PR_SET_DUMPABLE, _PR_SET_SECUREBITS, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 4, 28, 38, 47
_AMBIENT_CLEAR_ALL = 4
_SECUREBITS = 0x2F  # no root privileges, no set-id fix-up, both locked; keep-caps locked off
_CAPABILITY_VERSION_3 = 0x20080522
_NO_DESCRIPTOR = 1 << 30  # above every possible descriptor


def unshare(flags: int) -> None:
    if libc.unshare(ctypes.c_int(flags)) != 0:
        raise failure(f"unshare({flags:#x})")


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    words = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    if libc.mount(*words, ctypes.c_ulong(flags), data.encode() or None) != 0:
        raise failure(f"mount {source} on {target} ({kind or 'bind'})")


def detach(target: str) -> None:
    if libc.umount2(os.fsencode(target), _MNT_DETACH) != 0:
        raise failure(f"umount {target}")


def pivot_root(new: str, old: str) -> None:
    call("pivot_root", ctypes.c_char_p(os.fsencode(new)), ctypes.c_char_p(os.fsencode(old)))


def closer(first: int, last: int) -> Callable[[], int]:
    """A call that closes the descriptors `first` to `last`; it never fails."""
    try:
        call("close_range", _NO_DESCRIPTOR, _NO_DESCRIPTOR, 0)
    except OSError:  # Linux before 5.9

        def close() -> int:
            os.closerange(first, last + 1)
            return 0

        return close
    return prepared("close_range", first, last, 0)


def set_host_name(name: bytes) -> None:
    if libc.sethostname(name, len(name)) != 0:
        raise failure("sethostname")


def prctl(operation: int, *arguments: int) -> None:
    words = [ctypes.c_ulong(a) for a in (*arguments, 0, 0, 0, 0)[:4]]
    if libc.prctl(operation, *words) < 0:
        raise failure(f"prctl({operation})")


def die_with_parent() -> None:
    """SIGKILL when the thread that forked us ends. Reset by a change of ids."""
    prctl(_PR_SET_PDEATHSIG, 9)


def adopt_orphans() -> None:
    """Become the parent of descendants whose parent ends, to reap them."""
    prctl(_PR_SET_CHILD_SUBREAPER, 1)


def no_new_privileges() -> None:
    prctl(_PR_SET_NO_NEW_PRIVS, 1)


class _CapabilityHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _CapabilityData(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in ("effective", "permitted", "inheritable")]


_CLONE_PIDFD, _SIGCHLD = 0x1000, 17
_plain_fork = getattr(ctypes.PyDLL(None), "_Fork", os.fork)  # glibc before 2.34 lacks it


def forker(spaces: int, handle: ctypes.c_int) -> Callable[[], int]:
    """A call that forks into new namespaces: returns the pid in the parent, with the child's pidfd
    in `handle`, and 0 in the child.

    os.fork() reseeds, renews locks and runs hooks. That touches 170 pages which are then copied,
    more than the rest of an execution, and a process with one thread needs none of it. In a new
    pid namespace the child's thread id is 1, the one cached in a zygote that is pid 1 itself;
    without a new namespace the C library must learn the new id.
    """
    if spaces:
        flags = ctypes.c_long(spaces | _CLONE_PIDFD | _SIGCHLD)
        return prepared("clone", flags, None, ctypes.byref(handle), None, None)

    def fork() -> int:
        pid = _plain_fork()
        if pid > 0:
            handle.value = os.pidfd_open(pid)
        return pid

    return fork


_HEADER = _CapabilityHeader(_CAPABILITY_VERSION_3, 0)
_NO_CAPABILITIES = (_CapabilityData * 2)()


def bound_capabilities(last: int) -> None:
    """Let no program executed later gain a capability 0 to `last`. Current ones are kept."""
    for capability in range(last + 1):
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # fails if it is missing already


def lock_capabilities() -> None:
    """Prevent, for all children, that a change of ids or a program restores a capability."""
    libc.prctl(_PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL, 0, 0, 0)
    # Refused without privileges, where it is not needed.
    libc.prctl(_PR_SET_SECUREBITS, _SECUREBITS, 0, 0, 0)


def capability_dropper() -> Callable[[], int]:
    """A call that drops every capability permanently."""
    return prepared("capset", ctypes.byref(_HEADER), _NO_CAPABILITIES)


def core_dump_forbidder() -> Callable[[], int]:
    """A call after which this process has no core dump and no other process can access it.

    The effect ends when a program is executed.
    """
    return prepared("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)


def last_capability() -> int:
    with open("/proc/sys/kernel/cap_last_cap") as stream:
        return int(stream.read())


def address_space() -> int:
    """Bytes of this process's virtual memory."""
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def trim_memory() -> None:
    """Return unused memory to the kernel if the C library can: a fork then copies less."""
    trim = getattr(libc, "malloc_trim", None)
    if trim is not None:
        trim(0)
