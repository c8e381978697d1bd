"""Resource limits of a case, set for good: soft is hard, and no privilege is left to raise them."""

import ctypes
import resource
from collections.abc import Callable, Iterator

from sandbox.namespace import account, linux
from sandbox.namespace.protocol import COUNTED, Request
from sandbox.namespace.syscalls import prepared

_ZERO = ("CORE", "MSGQUEUE", "MEMLOCK", "RTPRIO", "NICE")
_KINDS = range(16)  # all that Linux has
_UNLIMITED = (1 << 62) - 1  # what RLIM_INFINITY, -1, is masked to
_MORE_OF_OTHERS = 64  # tasks that an account may start elsewhere meanwhile
_PENDING = 1024  # signals and timers: without a bound they are the kernel's memory, not ours


def ceilings() -> tuple[int, ...]:
    """Our own hard limits, by kind; one without end is larger than all we ask for."""
    return tuple(resource.getrlimit(kind)[1] & _UNLIMITED for kind in _KINDS)


def calls(
    request: Request, ceilings: tuple[int, ...], own_bytes: int
) -> Iterator[Callable[[], int]]:
    """Calls by which a child bounds itself; inherited bounds that are tighter are kept.

    `own_bytes`: mapped by the zygote. A result is negative where a call failed. Honest programs
    raise the soft limit of the stack, which a bound of all addresses allows.
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
        yield lambda: bound(resource.RLIMIT_NPROC, request.tasks + _tasks_of_others())()
    else:
        yield bound(resource.RLIMIT_NPROC, request.tasks)
    ceiling = resource.getrlimit(resource.RLIMIT_STACK)[1]
    allowed = min(request.stack_bytes, ceiling & _UNLIMITED)
    yield _setter(resource.RLIMIT_STACK, allowed, allowed if counted == "data" else ceiling)
    yield bound(resource.RLIMIT_CPU, request.cpu_s)  # of the child: pid 1 would not see SIGXCPU
    yield bound(resource.RLIMIT_NOFILE, request.open_files)


def _tasks_of_others() -> int:
    return account.tasks() + _MORE_OF_OTHERS


def forbid_for_all(last_capability: int) -> None:
    """In the zygote, once: what no child ever gets back."""
    linux.bound_capabilities(last_capability)
    linux.no_new_privileges()
    for name in _ZERO:
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (0, 0))
    pending = min(_PENDING, resource.getrlimit(resource.RLIMIT_SIGPENDING)[1] & _UNLIMITED)
    resource.setrlimit(resource.RLIMIT_SIGPENDING, (pending, pending))


def _setter(kind: int, soft: int, hard: int) -> Callable[[], int]:
    limits = (ctypes.c_uint64 * 2)(soft, hard)
    return prepared("prlimit64", 0, kind, ctypes.byref(limits), None)
