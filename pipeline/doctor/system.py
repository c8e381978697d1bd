"""Checks of the operating system: disks, ports, open files, processes, semaphores, clock."""

import errno
import multiprocessing
import os
import resource
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from veriloop.pipeline.doctor.finding import Finding, at_least, fail, ok, skipped, warn
from veriloop.pipeline.doctor.machine_under_test import Machine

GIB = 2**30
ENOUGH_GIB, LEAST_GIB = 10.0, 1.0  # free for checkpoints, rollouts and downloads
MANY_FILES, FEW_FILES = 1024, 256
CHILDREN = 32  # concurrent processes that a run with a sandbox and verifiers needs
SHARED_MIB = 64  # of /dev/shm, where processes exchange arrays
SHARED = Path("/dev/shm")
STEP_S = 0.02  # interval over which the two clocks are compared
_FORKS = f"""
import os, signal
pids = []
try:
    for _ in range({CHILDREN}):
        pid = os.fork()
        if not pid:
            signal.pause()
        pids.append(pid)
except OSError:
    pass
for pid in pids:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
print(len(pids))
"""


def disks(machine: Machine) -> Iterator[Finding]:
    """Free space and write permission of each folder."""
    for contents, folder in machine.folders().items():
        name, existing = f"disk, {contents}", _nearest_existing(folder)
        if not os.access(existing, os.W_OK | os.X_OK):
            fix = f"change its owner, or choose another folder for {contents}"
            yield fail(name, f"{folder} is not writable", fix)
            continue
        free = shutil.disk_usage(existing).free / GIB
        measured = f"{free:.1f} GiB free at {folder}"
        fix = f"free space there, or move {contents} to a larger disk"
        yield at_least(name, measured, free, least=LEAST_GIB, enough=ENOUGH_GIB, fix=fix)


def ports(machine: Machine) -> Iterator[Finding]:
    """Whether each command can listen on its default port."""
    defaults = machine.ports()
    for port in dict.fromkeys(defaults.values()):
        name = f"port {port}"
        commands = " and ".join(command for command, default in defaults.items() if default == port)
        try:
            with socket.socket() as listener:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(("127.0.0.1", port))
            yield ok(name, f"free, for {commands}")
        except OSError as error:
            code = errno.errorcode.get(error.errno or 0, str(error))
            yield warn(name, f"{commands} cannot listen there: {code}",
                       "stop the program that listens there, or pass --port 0")  # fmt: skip


def open_files(machine: Machine) -> Iterator[Finding]:
    del machine
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = (sys.maxsize if x == resource.RLIM_INFINITY else x for x in (soft, hard))
    measured = f"{soft:,} at a time (hard limit {hard:,})"
    fix = f"ulimit -n {min(hard, 65_536)}"
    yield at_least("open files", measured, soft, least=FEW_FILES, enough=MANY_FILES, fix=fix)


def processes(machine: Machine) -> Iterator[Finding]:
    """Whether enough processes can run at a time and can share locks and arrays."""
    del machine
    process = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _FORKS], capture_output=True, text=True, timeout=60
    )
    forks = int(process.stdout) if process.returncode == 0 else 0
    measured = f"{forks} of {CHILDREN} forks at a time"
    if forks < CHILDREN:
        fix = "ulimit -u 4096; in a container, raise --pids-limit"
        yield fail("processes", measured, fix, forks)
    else:
        yield ok("processes", measured, forks)
    try:
        multiprocessing.get_context("spawn").Semaphore(1)
    except OSError as error:
        yield fail("semaphores", f"cannot be created: {error}", f"mount a tmpfs at {SHARED}")
        return
    if not SHARED.is_dir():
        yield skipped("semaphores", f"no {SHARED}", "nothing to do: this system needs none")
        return
    mib = shutil.disk_usage(SHARED).free / 2**20
    measured = f"can be created; {mib:,.0f} MiB free in {SHARED}"
    if mib < SHARED_MIB:
        yield warn("semaphores", measured, "start the container with --shm-size 1g", mib)
    else:
        yield ok("semaphores", measured, mib)


def clock(machine: Machine) -> Iterator[Finding]:
    """Time limits use the monotonic clock; resuming a run compares file dates."""
    start, wall_start = time.monotonic(), time.time()
    time.sleep(STEP_S)
    elapsed, wall = time.monotonic() - start, time.time() - wall_start
    newest = max((path.lstat().st_mtime for path in machine.root.glob("*")), default=0.0)
    ahead = newest - time.time()
    measured = (
        f"{1e3 * elapsed:.0f} ms by the monotonic clock, {1e3 * wall:.0f} ms by the wall clock"
    )
    if elapsed < STEP_S / 2:
        yield fail("clock", measured, "fix the system's clock source: time limits would never end")
    elif abs(wall - elapsed) > 1.0:
        yield warn(
            "clock", measured, "let a single time service adjust the clock in small steps", wall
        )
    elif ahead > 60:
        measured = f"files of {machine.root} are {ahead / 3600:.1f} h in the future"
        yield warn("clock", measured, "set the clock: `timedatectl set-ntp true`", ahead)
    else:
        yield ok("clock", measured, elapsed)


def _nearest_existing(folder: Path) -> Path:
    """The folder, or its closest ancestor that exists."""
    folder = folder.absolute()
    return next(path for path in (folder, *folder.parents) if path.exists())
