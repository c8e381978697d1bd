"""The container's seccomp profile: a second fence around server, zygote and programs alike.

It shares no list with the filter that each program gets inside, so that a hole in the one is none
in the other. Docker's own profile lets AF_VSOCK and io_uring through and forbids namespaces.
"""

import errno
import json
from typing import Any

from sandbox.namespace.syscalls import machine

_ABSENT = """
io_uring_setup io_uring_enter io_uring_register keyctl add_key request_key memfd_secret clone3
"""  # programs look for these and do without
_REFUSED = """
ptrace process_vm_readv process_vm_writev process_madvise kcmp pidfd_getfd bpf perf_event_open
userfaultfd fanotify_init fanotify_mark open_by_handle_at name_to_handle_at move_mount open_tree
fsopen fsconfig fsmount fspick swapon swapoff reboot kexec_load kexec_file_load init_module
finit_module delete_module create_module acct quotactl quotactl_fd settimeofday clock_settime
clock_adjtime adjtimex iopl ioperm modify_ldt lookup_dcookie syslog vhangup personality
migrate_pages move_pages mbind set_mempolicy shmget shmat shmctl msgget msgsnd msgrcv msgctl semget
semop semtimedop semctl mq_open mq_unlink mq_notify nfsservctl uselib _sysctl sysfs ustat vm86
vm86old bind connect listen accept accept4 sendmmsg recvmmsg mknod mknodat sync syncfs flock
remap_file_pages io_setup io_submit vmsplice sched_setattr sched_setscheduler
"""
_NAMESPACES = "unshare setns mount umount2 pivot_root mount_setattr sethostname"
_NEW_NAMESPACES = 0x7E020080  # CLONE_NEW*
_AF_UNIX = 1
_ARCHITECTURES = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}


def profile(*, namespaces: bool = True) -> str:
    """The profile as the JSON that Docker's `seccomp=` option takes.

    `namespaces`: an unprivileged process may make user namespaces and what they allow (tier 1).
    """
    rules = [
        _rule(_ABSENT, errno.ENOSYS),
        _rule(_REFUSED, errno.EPERM),
        _rule("socket", errno.EAFNOSUPPORT),
        _rule("socketpair", errno.EAFNOSUPPORT, (0, _AF_UNIX, "SCMP_CMP_NE")),
    ]
    if not namespaces:
        rules.append(_rule(_NAMESPACES, errno.EPERM))
        rules += [
            _rule("clone", errno.EPERM, (0, 1 << bit, "SCMP_CMP_MASKED_EQ", 1 << bit))
            for bit in range(32)
            if _NEW_NAMESPACES >> bit & 1
        ]
    architectures = [_ARCHITECTURES[machine().name]]  # calls of any other are ended by the kernel
    return json.dumps(
        {"defaultAction": "SCMP_ACT_ALLOW", "architectures": architectures, "syscalls": rules}
    )


def _rule(names: str, code: int, *tests: tuple[Any, ...]) -> dict[str, Any]:
    """Refuse with this error number, where all tests (index, value, operation, more) hold."""
    words = ("index", "value", "op", "valueTwo")
    arguments = [dict(zip(words, (i, v, op, *more), strict=False)) for i, v, op, *more in tests]
    return {"names": names.split(), "action": "SCMP_ACT_ERRNO", "errnoRet": code, "args": arguments}
