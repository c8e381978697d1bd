"""The container's seccomp profile, which also restricts the server and the zygote.

It allows the calls of programs (`veriloop.sandbox.namespace.allowed_calls`) and those with which
the server isolates them. Docker's own profile allows AF_VSOCK and io_uring and forbids namespaces.
"""

import errno
import json
from collections.abc import Iterable
from typing import Any

from veriloop.sandbox.namespace.allowed_calls import ABSENT, ALLOWED, OWN_FILES, PROCESSES
from veriloop.sandbox.namespace.syscalls import machine, numbers

_SERVER = """
seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self memfd_create capset setuid
setgid setgroups setresuid setresgid sched_setaffinity
"""
_NAMESPACES = "unshare setns mount umount2 pivot_root mount_setattr sethostname"
_NEW_NAMESPACES = 0x7E020080  # CLONE_NEW*
_AF_UNIX = 1
_ALLOW = "SCMP_ACT_ALLOW"
_ARCHITECTURES = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}


def profile(*, namespaces: bool = True) -> str:
    """The profile as JSON for Docker's `seccomp=` option.

    `namespaces`: allow unprivileged user namespaces and what they allow (tier 1).
    """
    server = f"{_SERVER} {_NAMESPACES}" if namespaces else _SERVER
    allowed = ALLOWED | PROCESSES | OWN_FILES | set(server.split())
    refused = numbers(machine()).keys() - allowed - ABSENT - {"socket"}
    rules = [
        _rule(allowed - {"socketpair", "clone"}, 0),
        _rule(ABSENT, errno.ENOSYS),
        _rule(refused, errno.EPERM),
        _rule(["socket"], errno.EAFNOSUPPORT),
        _rule(["socketpair"], 0, (0, _AF_UNIX, "SCMP_CMP_EQ")),
        _rule(["socketpair"], errno.EAFNOSUPPORT, (0, _AF_UNIX, "SCMP_CMP_NE")),
    ]
    if namespaces:
        rules.append(_rule(["clone"], 0))
    else:
        rules.append(_rule(["clone"], 0, (0, _NEW_NAMESPACES, "SCMP_CMP_MASKED_EQ", 0)))
        rules += [
            _rule(["clone"], errno.EPERM, (0, 1 << bit, "SCMP_CMP_MASKED_EQ", 1 << bit))
            for bit in range(32)
            if _NEW_NAMESPACES >> bit & 1
        ]
    document = {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": errno.ENOSYS,
        "architectures": [_ARCHITECTURES[machine().name]],  # calls of any other are killed
        "syscalls": rules,
    }
    return json.dumps(document)


def _rule(names: Iterable[str], code: int, *tests: tuple[Any, ...]) -> dict[str, Any]:
    """Allow (code 0), or refuse with this error number, if all tests hold.

    A test is (index, value, operation, value 2).
    """
    keys = ("index", "value", "op", "valueTwo")
    arguments = [dict(zip(keys, (i, v, op, *more), strict=False)) for i, v, op, *more in tests]
    action = {"action": "SCMP_ACT_ERRNO", "errnoRet": code} if code else {"action": _ALLOW}
    return {"names": sorted(names), **action, "args": arguments}
