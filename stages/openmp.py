"""How threads of OpenMP wait for work: it is set before torch is imported."""

import os
import time
from pathlib import Path

SPIN, SLEEP = "10000", "0"  # times that a thread looks for its next work before it sleeps
READINGS, APART_S = 5, 0.004  # of the number of running threads
STATISTICS = Path("/proc/stat")


def choose_waiting() -> None:
    """Set GOMP_SPINCOUNT, unless the environment says how threads wait.

    A step of a small model is thousands of short parallel regions. A thread that spins until the
    next one is there at once, but where another process needs its core, the other threads of the
    region wait for it (benchmarks/waiting.py). The choice changes no result.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SLEEP if _busy() else SPIN)


def _busy() -> bool:
    """Whether other processes leave fewer idle cores than this one has threads."""
    if not STATISTICS.is_file():  # another system than Linux
        return False
    running = [_running()]
    for _ in range(READINGS - 1):
        time.sleep(APART_S)
        running.append(_running())
    given = os.environ.get("OMP_NUM_THREADS", "")
    threads = int(given) if given.isdecimal() else len(os.sched_getaffinity(0))
    others = min(running) - 1  # this thread reads
    return others + threads > (os.cpu_count() or 1)


def _running() -> int:
    """Threads of the machine that run or could."""
    words = STATISTICS.read_text().split()
    return int(words[words.index("procs_running") + 1])
