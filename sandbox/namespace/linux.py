"""Thin typed layer over the C calls that Python does not have."""

import ctypes
import os
from collections.abc import Callable

from sandbox.namespace.syscalls import call, failure, libc, prepared

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8
MS_NOATIME, MS_BIND, MS_REC, MS_PRIVATE = 1024, 4096, 16384, 1 << 18
_MNT_DETACH = 2
_MOUNT_ATTR_READ_ONLY, _MOUNT_ATTR_NOSUID, _MOUNT_ATTR_NODEV = 1, 2, 4
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_CAPBSET_DROP = 1, 36, 24
_PR_SET_SECUREBITS, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 28, 38, 47
_AMBIENT_CLEAR_ALL = 4
_SECUREBITS = 0x2F  # no root privileges, no set-id fix-up, both locked; keep-caps locked off
_CAPABILITY_VERSION_3 = 0x20080522


def unshare(flags: int) -> None:
    if libc.unshare(ctypes.c_int(flags)) != 0:
        raise failure(f"unshare({flags:#x})")


def setns(fd: int, kind: int) -> None:
    if libc.setns(fd, kind) != 0:
        raise failure(f"setns({kind:#x})")


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    words = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    if libc.mount(*words, ctypes.c_ulong(flags), data.encode() or None) != 0:
        raise failure(f"mount {source} on {target} ({kind or 'bind'})")


class _MountAttributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns")]


def bind_read_only(source: str, target: str) -> None:
    """Show a folder and the mounts below it at `target`: read-only, no set-id, no devices."""
    mount(source, target, None, MS_BIND | MS_REC)
    wanted = _MOUNT_ATTR_READ_ONLY | _MOUNT_ATTR_NOSUID | _MOUNT_ATTR_NODEV
    set_mount(target, wanted)


def bind_device(source: str, target: str) -> None:
    """Show a device: it can be read and written, its times, mode and attributes cannot."""
    mount(source, target, None, MS_BIND)
    set_mount(target, _MOUNT_ATTR_READ_ONLY | _MOUNT_ATTR_NOSUID, recursive=False)


def seal_root() -> None:
    """Make the root mount itself read-only; mounts below keep their own attributes."""
    set_mount("/", _MOUNT_ATTR_READ_ONLY | _MOUNT_ATTR_NOSUID, recursive=False)


def set_mount(target: str, attributes: int, *, recursive: bool = True) -> None:
    record = _MountAttributes(attributes, 0, 0, 0)
    path = ctypes.c_char_p(os.fsencode(target))
    flags = _AT_RECURSIVE if recursive else 0
    size = ctypes.sizeof(record)
    call("mount_setattr", _AT_FDCWD, path, flags, ctypes.byref(record), size)


def detach(target: str) -> None:
    if libc.umount2(os.fsencode(target), _MNT_DETACH) != 0:
        raise failure(f"umount {target}")


def pivot_root(new: str, old: str) -> None:
    call("pivot_root", ctypes.c_char_p(os.fsencode(new)), ctypes.c_char_p(os.fsencode(old)))


def set_host_name(name: bytes) -> None:
    if libc.sethostname(name, len(name)) != 0:
        raise failure("sethostname")


def prctl(operation: int, *arguments: int) -> None:
    words = [ctypes.c_ulong(a) for a in (*arguments, 0, 0, 0, 0)[:4]]
    if libc.prctl(operation, *words) < 0:
        raise failure(f"prctl({operation})")


def die_with_parent() -> None:
    """SIGKILL when the thread that forked us ends. A change of ids forgets this."""
    prctl(_PR_SET_PDEATHSIG, 9)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent dies, to reap them."""
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
    """Forks into new namespaces: the pid in the parent, and its pidfd in `handle`; 0 in the child.

    Python's own fork reseeds, renews locks and runs hooks, which touches 170 pages that are then
    copied, more than all the rest of an execution. A process of one thread needs none of it.
    In a new pid namespace the child's thread id is 1, as in a zygote that is pid 1 itself;
    without one the C library has to be told of the new id.
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
_NOTHING = (_CapabilityData * 2)()


def bound_capabilities(last: int) -> None:
    """Let no program executed later gain any capability, 0 to `last`. Those held are kept."""
    for capability in range(last + 1):
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # may be missing already


def lock_capabilities() -> None:
    """Once for all children: no change of ids and no program brings a capability back."""
    libc.prctl(_PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL, 0, 0, 0)
    libc.prctl(_PR_SET_SECUREBITS, _SECUREBITS, 0, 0, 0)  # refused to who has none: fine


# Gives up every capability for good.
drop_capabilities = prepared("capset", ctypes.byref(_HEADER), _NOTHING)


def last_capability() -> int:
    with open("/proc/sys/kernel/cap_last_cap") as stream:
        return int(stream.read())


def address_space() -> int:
    """Bytes of this process's virtual memory."""
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def trim_memory() -> None:
    """Give unused memory back to the kernel, where the C library can: a fork copies less."""
    trim = getattr(libc, "malloc_trim", None)
    if trim is not None:
        trim(0)
