"""A pristine process that sets up its isolation once and forks one child per case.

It never reads a payload: requests are fixed numbers and descriptors, and only the child reads what
they contain, so the memory that a case starts from contains nothing of earlier cases. A slot has
three processes: a supervisor in the host's namespaces, one that enters the new namespaces, and
pid 1 of them.
"""

import fcntl
import gc
import importlib
import json
import os
import random
import resource
import select
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from veriloop.sandbox.namespace import landlock, linux, mounts, seccomp, signals, sqlite_files
from veriloop.sandbox.namespace.bounds import ceilings, forbid_for_all, lift_soft_limits
from veriloop.sandbox.namespace.cgroup import remove_folder
from veriloop.sandbox.namespace.child import (
    ChildSetup,
    Step,
    hide_sandbox_modules,
    open_streams_by_path,
)
from veriloop.sandbox.namespace.fork_loop import ForkLoop
from veriloop.sandbox.namespace.protocol import STREAMS
from veriloop.sandbox.namespace.selftest import own_user_namespace
from veriloop.sandbox.namespace.syscalls import machine

ID = 1000  # the sandboxed user's and group's id inside
_SPACES = linux.CLONE_NEWNS | linux.CLONE_NEWNET | linux.CLONE_NEWIPC | linux.CLONE_NEWUTS
_FIRST_FREE_FD = 20  # lower descriptors are for streams
_MAX_FDS = 256  # of the zygote; where Linux lacks close_range, a child closes them one by one
_PRELOADED = """
abc array atexit base64 bisect builtins cmath collections contextlib copy dataclasses datetime
decimal enum fractions functools heapq io itertools json linecache math marshal operator os
queue random re resource statistics string struct sys textwrap threading time traceback types
typing unicodedata
"""
_READABLE_IN_TIER_2 = ("/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/dev/zero", "/dev/urandom")


def main(arguments: Sequence[str]) -> None:
    """The supervisor: start the zygote, map its ids, and end it when our parent ends."""
    settings = json.loads(arguments[0])
    lift_soft_limits()
    _restore_signals()
    control = socket.socket(fileno=settings["control"])
    parent = os.pidfd_open(settings["parent"])
    if os.getppid() != settings["parent"]:
        os._exit(1)
    linux.adopt_orphans()
    ours, zygote_end = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        os.close(parent)
        _enter(settings, control, zygote_end)
    zygote_end.close()
    control.close()
    for entrance in settings["entrances"]:
        Path(entrance).write_text(str(pid))
    if ours.recv(1):
        _map_ids(pid, settings)
        ours.send(b"+")
    if _supervise(pid, parent):
        return
    for folder in {str(Path(entrance).parent) for entrance in settings["entrances"]}:
        with suppress(OSError):
            remove_folder(Path(folder))


def _map_ids(pid: int, settings: dict[str, Any]) -> None:
    if settings["way"] == "root" and settings["tier"] == 1:
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{pid}/{name}").write_text(f"{ID} {settings['host_id']} 1")


def _supervise(pid: int, parent: int) -> bool:
    """Wait until the zygote or our parent ends. Whether the parent still exists to clean up."""
    zygote = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(zygote, select.POLLIN)
    poll.register(parent, select.POLLIN)
    ended = [fd for fd, _ in poll.poll()]
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(zygote, signal.SIGKILL)
    with suppress(ChildProcessError):
        while True:  # reap the zygote, and in tier 2 the child that ends with it
            os.waitpid(-1, 0)
    return parent not in ended


def _enter(settings: dict[str, Any], control: socket.socket, supervisor: socket.socket) -> NoReturn:
    """Import what children need, set up the isolation, and fork pid 1."""
    for name in (*_PRELOADED.split(), *settings["preload"]):
        importlib.import_module(name)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(_MAX_FDS, hard), hard))
    # Both read /proc, which the new file tree does not have.
    setup, last_capability = _child_setup(settings), linux.last_capability()
    if settings["tier"] == 1:
        _enter_namespaces(settings, supervisor)
        linux.unshare(linux.CLONE_NEWPID)
        first = os.fork()
        if first:
            control.close()
            linux.die_with_parent()
            os.waitpid(first, 0)
            os._exit(0)
    else:
        _await_mapping(supervisor)
        if settings["way"] == "root":
            forbid_for_all(last_capability)  # needs the privilege that the next line drops
            _become_user(settings["host_id"])
    supervisor.close()
    forbid_for_all(last_capability)
    linux.lock_capabilities()
    linux.die_with_parent()
    _serve(control, setup)


def _await_mapping(supervisor: socket.socket) -> None:
    """Wait until the supervisor has added us to our cgroup and mapped our ids."""
    supervisor.send(b"m")
    if supervisor.recv(1) != b"+":
        os._exit(1)


def _enter_namespaces(settings: dict[str, Any], supervisor: socket.socket) -> None:
    if settings["way"] == "user":
        own_user_namespace(_SPACES)
        _await_mapping(supervisor)
    else:
        linux.unshare(_SPACES)
    linux.set_host_name(b"sandbox")
    mounts.build(settings["read_only"])
    if settings["way"] == "root":
        linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNS | linux.CLONE_NEWIPC)
        _await_mapping(supervisor)
        _become_user(ID)


def _restore_signals() -> None:
    """What the caller ignores, as under nohup, this process and its programs do not."""
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:  # ignored by Python
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _become_user(number: int) -> None:
    os.setgroups([])
    os.setresgid(number, number, number)
    os.setresuid(number, number, number)


def _child_setup(settings: dict[str, Any]) -> ChildSetup:
    alone, on = settings["tier"] == 2, machine()
    readable = (*settings["read_only"], *_READABLE_IN_TIER_2)
    return ChildSetup(
        tier=settings["tier"],
        threads_only=_installer(seccomp.child_filter(on, processes=False, alone=alone), alone),
        with_processes=_installer(seccomp.child_filter(on, processes=True, alone=alone), alone),
        private_memory=seccomp.installer(seccomp.private_memory(on)),
        landlock=_landlock(readable) if alone else None,
        address_bytes=linux.address_space(),
        open_files=os.sysconf("SC_OPEN_MAX"),
        ceilings=ceilings(),
    )


def _installer(program: bytes, alone: bool) -> Step:
    """In tier 1 every child is process 1 of its pid namespace, so the filter is complete."""
    if alone:
        return seccomp.installer_for_caller(program)
    return seccomp.installer(seccomp.for_process(program, 1))


def _landlock(readable: Sequence[str]) -> Step:
    return landlock.restrictor(_move_up(landlock.ruleset(readable, ["/dev/null"])))


def _serve(control: socket.socket, setup: ChildSetup) -> NoReturn:
    """Prepare to be forked, and serve until the connection is closed."""
    hide_sandbox_modules(sys.path)
    open_streams_by_path()
    random.seed(0)  # the same random state in every execution
    control = socket.socket(fileno=_move_up(control.detach()))
    if setup.tier == 1:
        signals.enable_fatal_signals()
        sys.addaudithook(sqlite_files.before_connect)
    loop = ForkLoop(control, setup)
    seccomp.install_in_zygote(alone=setup.tier == 2)
    control.send(b"READY")
    os.closerange(0, STREAMS)
    linux.trim_memory()
    gc.collect()
    gc.freeze()
    loop.run()
    os._exit(0)


def _move_up(fd: int) -> int:
    """The same descriptor with a number above those of the streams."""
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE_FD)
    finally:
        os.close(fd)
