"""Tries each layer of isolation in a process of its own; run as a program, prints JSON."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from sandbox.namespace import cgroup, landlock, linux, mounts, seccomp
from sandbox.namespace.syscalls import failure, machine

_ALL = linux.CLONE_NEWNS | linux.CLONE_NEWNET | linux.CLONE_NEWIPC | linux.CLONE_NEWUTS
_REPORT_BYTES = 400


def main(arguments: Sequence[str]) -> None:
    """Print the outcome of each attempt: "" when it worked, else why not."""
    read_only = json.loads(arguments[0])
    root = os.geteuid() == 0
    outcomes = {
        "user namespace": _attempt(own_user_namespace),
        "mount namespace": _attempt(lambda: _unshare(root, linux.CLONE_NEWNS)),
        "pid namespace": _attempt(lambda: _unshare(root, linux.CLONE_NEWPID)),
        "net namespace": _attempt(lambda: _unshare(root, linux.CLONE_NEWNET)),
        "ipc namespace": _attempt(lambda: _unshare(root, linux.CLONE_NEWIPC)),
        "file tree as root": _attempt(lambda: _tree(True, read_only)) if root else "not root",
        "file tree as user": _attempt(lambda: _tree(False, read_only)),
        "seccomp": _attempt(_seccomp),
        "landlock": _attempt(lambda: _landlock(read_only)),
        "pidfd": _attempt(lambda: os.close(os.pidfd_open(os.getpid()))),
    }
    site, told = cgroup.find()
    found = {"cgroup": site is not None, "cgroup detail": told, "landlock abi": landlock.abi()}
    json.dump({"outcomes": outcomes, **found}, sys.stdout)


def own_user_namespace(flags: int = 0) -> None:
    """Enter a user namespace that knows our own ids alone, as 1000."""
    uid, gid = os.geteuid(), os.getegid()
    linux.unshare(linux.CLONE_NEWUSER | flags)
    own = Path("/proc/self")
    (own / "setgroups").write_text("deny")
    (own / "uid_map").write_text(f"1000 {uid} 1")
    (own / "gid_map").write_text(f"1000 {gid} 1")


def _unshare(root: bool, kind: int) -> None:
    """As the zygote would: directly with the privilege, else from a user namespace."""
    try:
        linux.unshare(kind)
    except OSError:
        if root and os.geteuid() != 0:
            raise
        own_user_namespace(kind)


def _tree(root: bool, read_only: Sequence[str]) -> None:
    if root:
        linux.unshare(_ALL)
    else:
        own_user_namespace(_ALL)
    mounts.build(read_only)
    if root:
        linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNS)
    linux.unshare(linux.CLONE_NEWPID)
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def _seccomp() -> None:
    linux.no_new_privileges()
    seccomp.install_in_zygote(alone=True)
    own = seccomp.child_filter(machine(), processes=False, alone=True)
    seccomp.install(seccomp.for_process(own, os.getpid()))


def _landlock(read_only: Sequence[str]) -> None:
    rules = landlock.ruleset(read_only)
    linux.no_new_privileges()
    if landlock.restrictor(rules)() < 0:
        raise failure("landlock_restrict_self")


def _attempt(step: Callable[[], None]) -> str:
    """Run a step in a fork. Why it failed, or "" when it did not."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            step()
            os.write(writer, b"+")
        except Exception as failure:  # noqa: BLE001  whatever it is, it is the answer
            os.write(writer, f"-{failure}".encode()[:_REPORT_BYTES])
        os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    told = os.read(reader, _REPORT_BYTES).decode(errors="replace")
    os.close(reader)
    return "" if told == "+" else told.removeprefix("-") or "the attempt died"
