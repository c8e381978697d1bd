"""A pristine process that forks one child per case, behind walls it puts up once.

It never reads a payload: requests are fixed numbers and descriptors, and only the child reads
what they hold, so nothing of one case is in the memory the next one starts from. Three processes
make a slot: a watchman in the host's namespaces, one that enters the new ones, and pid 1 of them.
"""

import fcntl
import gc
import importlib
import json
import os
import random
import select
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from sandbox.namespace import landlock, linux, mounts, seccomp, signals
from sandbox.namespace.bounds import ceilings, forbid_for_all
from sandbox.namespace.cgroup import remove_folder
from sandbox.namespace.child import Step, Walls, tidy
from sandbox.namespace.protocol import STREAMS
from sandbox.namespace.rounds import Rounds
from sandbox.namespace.syscalls import machine
from sandbox.namespace.trial import own_user_namespace

ID = 1000  # the sandboxed user's and group's id inside
_SPACES = linux.CLONE_NEWNS | linux.CLONE_NEWNET | linux.CLONE_NEWIPC | linux.CLONE_NEWUTS
_ABOVE = 20  # lower descriptors are for streams
_USUAL = """
abc array atexit base64 bisect builtins cmath collections contextlib copy dataclasses datetime
decimal enum fractions functools heapq io itertools json linecache math marshal operator os
queue random re resource statistics string struct sys textwrap threading time traceback types
typing unicodedata
"""
_READABLE_IN_TIER_2 = ("/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/dev/zero", "/dev/urandom")


def main(arguments: Sequence[str]) -> None:
    """Be the watchman: start the zygote, map its ids, and end it when our parent has gone."""
    settings = json.loads(arguments[0])
    control = socket.socket(fileno=settings["control"])
    parent = os.pidfd_open(settings["parent"])
    if os.getppid() != settings["parent"]:
        os._exit(1)
    linux.adopt_orphans()
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        os.close(parent)
        _enter(settings, control, theirs)
    theirs.close()
    control.close()
    for entrance in settings["entrances"]:
        Path(entrance).write_text(str(pid))
    if ours.recv(1):
        _map_ids(pid, settings)
        ours.send(b"+")
    if _watch(pid, parent):
        return
    for folder in {str(Path(entrance).parent) for entrance in settings["entrances"]}:
        with suppress(OSError):
            remove_folder(Path(folder))


def _map_ids(pid: int, settings: dict[str, Any]) -> None:
    if settings["way"] == "root" and settings["tier"] == 1:
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{pid}/{name}").write_text(f"{ID} {settings['host_id']} 1")


def _watch(pid: int, parent: int) -> bool:
    """Until the zygote ends, or our parent does. Whether the parent is there to clean up."""
    zygote = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(zygote, select.POLLIN)
    poll.register(parent, select.POLLIN)
    ended = [fd for fd, _ in poll.poll()]
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(zygote, signal.SIGKILL)
    with suppress(ChildProcessError):
        while True:  # the zygote, and in tier 2 the child that dies with it
            os.waitpid(-1, 0)
    return parent not in ended


def _enter(settings: dict[str, Any], control: socket.socket, watchman: socket.socket) -> NoReturn:
    """Import what children need, put the walls up, and become the parent of pid 1."""
    for name in (*_USUAL.split(), *settings["preload"]):
        importlib.import_module(name)
    walls, last_capability = _walls(settings), linux.last_capability()  # while there is a /proc
    if settings["tier"] == 1:
        _enter_namespaces(settings, watchman)
        linux.unshare(linux.CLONE_NEWPID)
        first = os.fork()
        if first:
            control.close()
            linux.die_with_parent()
            os.waitpid(first, 0)
            os._exit(0)
    else:
        _tell(watchman)
        if settings["way"] == "root":
            forbid_for_all(last_capability)  # takes the privilege that the next line gives up
            _become_user(settings["host_id"])
    watchman.close()
    forbid_for_all(last_capability)
    linux.lock_capabilities()
    linux.die_with_parent()
    _serve(control, walls)


def _tell(watchman: socket.socket) -> None:
    """Wait until the watchman has put us into our cgroup and mapped our ids."""
    watchman.send(b"m")
    if watchman.recv(1) != b"+":
        os._exit(1)


def _enter_namespaces(settings: dict[str, Any], watchman: socket.socket) -> None:
    if settings["way"] == "user":
        own_user_namespace(_SPACES)
        _tell(watchman)
    else:
        linux.unshare(_SPACES)
    linux.set_host_name(b"sandbox")
    mounts.build(settings["read_only"])
    if settings["way"] == "root":
        linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNS | linux.CLONE_NEWIPC)
        _tell(watchman)
        _become_user(ID)


def _become_user(number: int) -> None:
    os.setgroups([])
    os.setresgid(number, number, number)
    os.setresuid(number, number, number)


def _walls(settings: dict[str, Any]) -> Walls:
    alone, here = settings["tier"] == 2, machine()
    readable = (*settings["read_only"], *_READABLE_IN_TIER_2)
    return Walls(
        tier=settings["tier"],
        threads_only=_ready(seccomp.child_filter(here, processes=False, alone=alone), alone),
        with_processes=_ready(seccomp.child_filter(here, processes=True, alone=alone), alone),
        private_memory=seccomp.installer(seccomp.private_memory(here)),
        landlock=_landlock(readable) if alone else None,
        address_bytes=linux.address_space(),
        open_files=os.sysconf("SC_OPEN_MAX"),
        ceilings=ceilings(),
    )


def _ready(program: bytes, alone: bool) -> Step:
    """In a pid namespace of its own every child is process 1."""
    if alone:
        return seccomp.installer_for_caller(program)
    return seccomp.installer(seccomp.for_process(program, 1))


def _landlock(readable: Sequence[str]) -> Step:
    return landlock.restrictor(_moved_up(landlock.ruleset(readable, ["/dev/null"])))


def _serve(control: socket.socket, walls: Walls) -> NoReturn:
    """Get ready to be copied, and serve until the other side hangs up."""
    tidy(sys.path)
    random.seed(0)  # every execution starts with the same numbers
    control = socket.socket(fileno=_moved_up(control.detach()))
    if walls.tier == 1:
        signals.die_of_own_signals()
    rounds = Rounds(control, walls)
    seccomp.install_in_zygote(alone=walls.tier == 2)
    control.send(b"READY")
    os.closerange(0, STREAMS)
    linux.trim_memory()
    gc.collect()
    gc.freeze()
    rounds.go_on()
    os._exit(0)


def _moved_up(fd: int) -> int:
    """The same, out of the way of the streams that will come."""
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _ABOVE)
    finally:
        os.close(fd)
