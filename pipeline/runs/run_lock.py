"""The lock of a run folder: one command at a time writes to it.

The lock is `flock` on the file .lock, which the kernel releases when its holder ends, also by
SIGKILL. Over NFS it holds between hosts only if the server supports locks and the mount is not
local (`nolock`, `local_lock=flock`); otherwise it excludes the commands of one host alone.
"""

import fcntl
import json
import os
import shlex
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from veriloop.pipeline.errors import RecipeError
from veriloop.pipeline.runs.atomic_write import fsync
from veriloop.pipeline.runs.manifest import typed

LOCK = ".lock"  # in the run folder, while a command writes to it
RECORD_WAIT_S = 1.0  # the holder writes its record at once; a busy machine may pause it before


class RunLockedError(RecipeError):
    """Another command holds the run folder."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Create the folder and hold its lock; new folders that are still empty are removed at the end.

    Raises RunLockedError, which names the holder, if another command holds the lock. A file system
    without locks is reported on stderr and the block runs without one.
    """
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    file = _acquired(folder / LOCK)
    try:
        _write_owner(file)
        for path in new:  # what is durable in a folder that is not would vanish with it
            fsync(path.parent)
        yield
    finally:
        with file:
            (folder / LOCK).unlink(missing_ok=True)
            with suppress(OSError):
                for path in new:
                    path.rmdir()


def _acquired(path: Path) -> IO[str]:
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            file = path.open("a+", encoding="utf-8")
        except FileNotFoundError:  # the folder was removed by the holder, which has ended
            continue
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as busy:
            with file:
                raise RunLockedError(_refusal(path.parent, _owner(file))) from busy
        except OSError as failure:
            print(
                f"WARNING: {path.parent} cannot be locked ({failure}): a second command on this "
                "folder would not be refused",
                file=sys.stderr,
            )
            return file
        if _is_current(path, file):
            return file
        file.close()  # the holder before has removed this file


def _is_current(path: Path, file: IO[str]) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _write_owner(file: IO[str]) -> None:
    owner = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(typed()),
    }
    file.truncate(0)
    file.write(json.dumps(owner))
    file.flush()


def _owner(file: IO[str]) -> dict[str, Any]:
    """The holder's record; empty if it is not written within RECORD_WAIT_S."""
    deadline = time.monotonic() + RECORD_WAIT_S
    while True:
        file.seek(0)
        with suppress(ValueError):
            return json.loads(file.read())
        if time.monotonic() > deadline:
            return {}
        time.sleep(0.01)


def _refusal(folder: Path, owner: dict[str, Any]) -> str:
    advice = "wait for its end, stop it, or name another --output"
    if not owner:
        return f"{folder} is held by another command, which has just begun; {advice}"
    age = datetime.now(UTC) - datetime.fromisoformat(owner["started"])
    return (
        f"{folder} is held by `{owner['command']}`, process {owner['pid']} on {owner['host']}, "
        f"since {owner['started']} ({max(0, round(age.total_seconds()))} s); {advice}"
    )
