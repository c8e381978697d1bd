"""Resource limits of a case, set for good: soft is hard, and no privilege is left to raise them."""

import resource

from sandbox.namespace import account, linux
from sandbox.namespace.protocol import COUNTED, Request

_ZERO = ("CORE", "MSGQUEUE", "MEMLOCK", "RTPRIO", "NICE")
_KINDS = range(16)  # all that Linux has
_UNLIMITED = (1 << 62) - 1  # what RLIM_INFINITY, -1, is masked to
_MORE_OF_OTHERS = 64  # tasks that an account may start elsewhere meanwhile
_PENDING = 1024  # signals and timers: without a bound they are the kernel's memory, not ours


def ceilings() -> tuple[int, ...]:
    """Our own hard limits, by kind; one without end is larger than all we ask for."""
    return tuple(resource.getrlimit(kind)[1] & _UNLIMITED for kind in _KINDS)


def on_one(request: Request, ceilings: tuple[int, ...]) -> None:
    """What a zygote cannot share with its cases. Pid 1 would not see SIGXCPU."""
    for kind, value in (
        (resource.RLIMIT_CPU, request.cpu_s),
        (resource.RLIMIT_NOFILE, request.open_files),
    ):
        _set(kind, value, ceilings)


def on_all(request: Request, ceilings: tuple[int, ...], own_bytes: int) -> None:
    """The others; inherited ones that are tighter are kept. `own_bytes`: mapped by the zygote.

    Honest programs raise the soft limit of the stack, which a bound of all addresses allows.
    """
    counted = COUNTED[request.counted]
    if counted != "group":
        kind = resource.RLIMIT_AS if counted == "address" else resource.RLIMIT_DATA
        _set(kind, own_bytes + request.address_bytes, ceilings)
    _set(resource.RLIMIT_FSIZE, request.disk_mb << 20, ceilings)
    others = account.tasks() + _MORE_OF_OTHERS if request.shared_account else 0
    _set(resource.RLIMIT_NPROC, request.tasks + others, ceilings)
    stack = resource.RLIMIT_STACK
    ceiling = resource.getrlimit(stack)[1]
    allowed = min(request.stack_bytes, ceiling & _UNLIMITED)
    resource.setrlimit(stack, (allowed, allowed if counted == "data" else ceiling))


def forbid_for_all(last_capability: int) -> None:
    """In the zygote, once: what no child ever gets back."""
    linux.bound_capabilities(last_capability)
    linux.no_new_privileges()
    for name in _ZERO:
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (0, 0))
    pending = min(_PENDING, resource.getrlimit(resource.RLIMIT_SIGPENDING)[1] & _UNLIMITED)
    resource.setrlimit(resource.RLIMIT_SIGPENDING, (pending, pending))


def _set(kind: int, value: int, ceilings: tuple[int, ...]) -> None:
    allowed = min(value, ceilings[kind])
    resource.setrlimit(kind, (allowed, allowed))
