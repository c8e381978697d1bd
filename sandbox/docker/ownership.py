"""Labels containers with their owner process, to remove them after it has ended."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

LABEL = "veriloop.owner"


def owner_label(pid: int | None = None) -> str:
    """The current process, or another one, as "machine pid-namespace pid start"."""
    return f"{_pid_namespace()} {pid or os.getpid()} {_started(pid or os.getpid())}"


def is_stale(label: str, *, running: bool) -> bool:
    """Whether the owner in a label has ended. If it is not visible from here, a running container
    is not stale: its server ends it when the owner disconnects."""
    process, _, started = label.rpartition(" ")
    namespace, _, pid = process.rpartition(" ")
    if namespace != _pid_namespace() or not pid.isdigit():
        return not running
    return _started(int(pid)) != started


def remove_stale_containers(engine: Any) -> int:
    """Remove containers whose owner has ended, and return their number. `engine` is a
    docker.DockerClient."""
    from docker.errors import APIError

    removed = 0
    for container in engine.api.containers(all=True, filters={"label": LABEL}):
        running = container["State"] in ("created", "running", "paused", "restarting")
        if is_stale(container["Labels"][LABEL], running=running):
            with suppress(APIError):  # another process is removing it
                engine.api.remove_container(container["Id"], force=True)
                removed += 1
    return removed


def _pid_namespace() -> str:
    """Identifies the machine, its boot, and the pid namespace."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {os.stat('/proc/self/ns/pid').st_ino}"


def _started(pid: int) -> str:
    """Start time in clock ticks since boot, which distinguishes reused pids; "" if not running."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""
