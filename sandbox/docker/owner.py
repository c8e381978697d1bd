"""Who started a container: said in its labels, so that nobody's containers outlive their owner."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

LABEL = "veriloop.owner"


def label(pid: int | None = None) -> str:
    """This process, or another one, as "machine pid-namespace pid start"."""
    return f"{_here()} {pid or os.getpid()} {_started(pid or os.getpid())}"


def is_stale(written: str, *, running: bool) -> bool:
    """Whether the owner has ended. Of one that cannot be seen from here, a container that still
    runs is left alone: its own server ends it when its owner hangs up."""
    here, _, process = written.rpartition(" ")[0].rpartition(" ")
    if here != _here() or not process.isdigit():
        return not running
    return _started(int(process)) != written.rpartition(" ")[2]


def sweep(engine: Any) -> int:
    """Remove containers whose owner has ended; how many. `engine` is a docker.DockerClient."""
    from docker.errors import APIError

    removed = 0
    found = engine.api.containers(all=True, filters={"label": LABEL})
    for one in found:
        running = one["State"] in ("created", "running", "paused", "restarting")
        if is_stale(one["Labels"][LABEL], running=running):
            with suppress(APIError):  # it is being removed already
                engine.api.remove_container(one["Id"], force=True)
                removed += 1
    return removed


def _here() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {os.stat('/proc/self/ns/pid').st_ino}"


def _started(pid: int) -> str:
    """Clock ticks since boot, which tells two processes with one id apart; "" for none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""
