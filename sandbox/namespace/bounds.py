"""Permanent resource limits of a case: soft equals hard, and no privilege is left to raise them."""

import ctypes
import os
import resource
from collections.abc import Callable, Iterator

from veriloop.sandbox.namespace import linux
from veriloop.sandbox.namespace.protocol import COUNTED, Request
from veriloop.sandbox.namespace.syscalls import prepared

_ZERO = ("MSGQUEUE", "MEMLOCK", "RTPRIO", "NICE")
_OWN = ("AS", "DATA", "FSIZE", "CPU", "RSS")  # soft limits of the caller that are not ours
_KINDS = range(16)  # all resources of Linux
_UNLIMITED = (1 << 62) - 1  # RLIM_INFINITY, which is -1, masked
_MAX_TASKS = 1 << 22  # the kernel assigns no more pids
_OTHER_TASKS_MARGIN = 64  # tasks that the account may start elsewhere during the run
_PENDING = 1024  # signals and timers, which use kernel memory that no other limit counts


def ceilings() -> tuple[int, ...]:
    """The current hard limits, by kind; an infinite one exceeds every requested limit."""
    return tuple(resource.getrlimit(kind)[1] & _UNLIMITED for kind in _KINDS)


def lift_soft_limits() -> None:
    """Raise the soft limits that the caller has set for itself, such as a bound on its memory."""
    for name in _OWN:
        kind = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (hard, hard))


def address_ceiling() -> int | None:
    """The hard limit in bytes on the address space of this process; None without one."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    return None if hard == resource.RLIM_INFINITY else hard


def calls(
    request: Request, ceilings: tuple[int, ...], own_bytes: int
) -> Iterator[Callable[[], int]]:
    """System calls with which a child bounds itself; tighter inherited limits are kept.

    `own_bytes`: mapped by the zygote. A call that fails returns a negative number. Honest programs
    raise their soft stack limit, which is allowed if the address space is bounded.
    """

    def bound(kind: int, value: int) -> Callable[[], int]:
        allowed = min(value, ceilings[kind])
        return _setter(kind, allowed, allowed)

    counted = COUNTED[request.counted]
    if counted != "group":
        kind = resource.RLIMIT_AS if counted == "address" else resource.RLIMIT_DATA
        yield bound(kind, own_bytes + request.address_bytes)
    yield bound(resource.RLIMIT_FSIZE, request.disk_mb << 20)
    if request.shared_account:
        # Counted in the child, since the account may start tasks elsewhere at any time.
        margin = request.tasks + _OTHER_TASKS_MARGIN
        yield lambda: bound(resource.RLIMIT_NPROC, margin + _account_tasks())()
    else:
        yield bound(resource.RLIMIT_NPROC, request.tasks)
    ceiling = resource.getrlimit(resource.RLIMIT_STACK)[1]
    stack = (
        request.stack_bytes
    )  # of a native program all its memory, as its cgroup counts the stack
    stack = max(stack, request.address_bytes) if counted == "group" else stack
    allowed = min(stack, ceiling & _UNLIMITED)
    yield _setter(resource.RLIMIT_STACK, allowed, allowed if counted == "data" else ceiling)
    yield bound(resource.RLIMIT_CPU, request.cpu_s)  # hard: pid 1 ignores SIGXCPU
    yield bound(resource.RLIMIT_NOFILE, request.open_files)


def _account_tasks() -> int:
    """Tasks that the kernel counts for our account, plus one, found by trial.

    /proc does not show tasks that the account has in other containers. Leaves the soft limit on
    tasks at any value.
    """
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    most = _MAX_TASKS if hard == resource.RLIM_INFINITY else min(hard, _MAX_TASKS)
    low, high = 0, min(8, most)
    while high < most and not _can_start(high, hard):
        low, high = high + 1, min(2 * high, most)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _can_start(middle, hard) else (middle + 1, high)
    return low


def _can_start(limit: int, hard: int) -> bool:
    """Whether one more process can be started under this limit; it executes nothing."""
    resource.setrlimit(resource.RLIMIT_NPROC, (limit, hard))
    try:
        os.posix_spawn("/no/such/program", ["none"], {})
    except BlockingIOError:
        return False
    except OSError:  # the process was started, and the program does not exist
        return True
    raise AssertionError("executed a program that does not exist")


def forbid_for_all(last_capability: int) -> None:
    """Remove, once in the zygote, what no child may ever regain."""
    linux.bound_capabilities(last_capability)
    linux.no_new_privileges()
    for name in _ZERO:
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (0, 0))
    # With 0 the kernel would still start a crash handler, if it has one; 1 prevents that too.
    core = min(1, resource.getrlimit(resource.RLIMIT_CORE)[1] & _UNLIMITED)
    resource.setrlimit(resource.RLIMIT_CORE, (core, core))
    pending = min(_PENDING, resource.getrlimit(resource.RLIMIT_SIGPENDING)[1] & _UNLIMITED)
    resource.setrlimit(resource.RLIMIT_SIGPENDING, (pending, pending))


def _setter(kind: int, soft: int, hard: int) -> Callable[[], int]:
    limits = (ctypes.c_uint64 * 2)(soft, hard)
    return prepared("prlimit64", 0, kind, ctypes.byref(limits), None)
