"""Tests every layer of isolation, each in its own process; run as a program, prints JSON."""

import json
import os
import select
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from veriloop.sandbox.namespace import cgroup, landlock, linux, mounts, seccomp
from veriloop.sandbox.namespace.allowed_calls import ALLOWED
from veriloop.sandbox.namespace.syscalls import failure, machine, numbers

_ALL = linux.CLONE_NEWNS | linux.CLONE_NEWNET | linux.CLONE_NEWIPC | linux.CLONE_NEWUTS
_REPORT_CHARS = 300


def main(arguments: Sequence[str]) -> None:
    """Print the error of each test, "" if it passed, and the variant of each layer."""
    read_only = json.loads(arguments[0])
    root = os.geteuid() == 0
    tests = {
        "user namespace": own_user_namespace,
        "mount namespace": lambda: _unshare(root, linux.CLONE_NEWNS),
        "pid namespace": lambda: _unshare(root, linux.CLONE_NEWPID),
        "net namespace": lambda: _unshare(root, linux.CLONE_NEWNET),
        "ipc namespace": lambda: _unshare(root, linux.CLONE_NEWIPC),
        "file tree as root": lambda: _tree(True, read_only),
        "file tree as user": lambda: _tree(False, read_only),
        "seccomp": _seccomp,
        "landlock": lambda: _landlock(read_only),
        "pidfd": lambda: os.close(os.pidfd_open(os.getpid())),
    }
    results = {name: _test(test) for name, test in tests.items()}
    site, where = cgroup.find()
    facts = {
        "errors": {name: error for name, (error, _) in results.items()},
        "details": {name: detail for name, (_, detail) in results.items()},
        "cgroup": site is not None,
        "cgroup detail": where,
    }
    json.dump(facts, sys.stdout)


def own_user_namespace(flags: int = 0) -> None:
    """Enter a user namespace that maps only our own ids, to 1000."""
    uid, gid = os.geteuid(), os.getegid()
    linux.unshare(linux.CLONE_NEWUSER | flags)
    own = Path("/proc/self")
    (own / "setgroups").write_text("deny")
    (own / "uid_map").write_text(f"1000 {uid} 1")
    (own / "gid_map").write_text(f"1000 {gid} 1")


def _unshare(root: bool, kind: int) -> None:
    """Like the zygote: directly if privileged, else from a user namespace."""
    try:
        linux.unshare(kind)
    except OSError:
        if root and os.geteuid() != 0:
            raise
        own_user_namespace(kind)


def _tree(root: bool, read_only: Sequence[str]) -> str:
    if root and os.geteuid() != 0:
        raise PermissionError("not root")
    if root:
        linux.unshare(_ALL)
    else:
        own_user_namespace(_ALL)
    calls = mounts.build(read_only)
    mounts.check(read_only)
    if root:
        linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNS)
    linux.unshare(linux.CLONE_NEWPID)
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return calls


def _seccomp() -> str:
    linux.no_new_privileges()
    seccomp.install_in_zygote(alone=True)
    own = seccomp.child_filter(machine(), processes=False, alone=True)
    filtered = seccomp.installer(seccomp.for_process(own, os.getpid()))
    if filtered() < 0:
        raise failure("seccomp")
    if filtered() >= 0:
        raise OSError("the filter is accepted and refuses nothing")
    known = numbers(machine())
    return f"{len(ALLOWED & known.keys())} of {len(known)} calls allowed, unknown ones refused"


def _landlock(read_only: Sequence[str]) -> str:
    rules = landlock.ruleset(read_only)
    linux.no_new_privileges()
    if landlock.restrictor(rules)() < 0:
        raise failure("landlock_restrict_self")
    return f"ABI {landlock.abi()}"


def _test(step: Callable[[], str | None]) -> tuple[str, str]:
    """Run a step in a fork. Returns its error, "" if it succeeded, and its result."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        report = ["the test did not return", ""]
        try:
            report = ["", step() or ""]
        except OSError as error:  # what the system refuses
            report = [str(error)[:_REPORT_CHARS], ""]
        except Exception as error:  # noqa: BLE001  a fault of the test is an outcome, named as such
            report = [f"{type(error).__name__}: {error}"[:_REPORT_CHARS], ""]
        finally:  # the fork must never return to the caller
            os.write(writer, json.dumps(report).encode())
            os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    text = os.read(reader, select.PIPE_BUF)
    os.close(reader)
    error, detail = json.loads(text) if text else ("the attempt died", "")
    return error, detail
