"""Child processes that leave SIGINT and SIGTERM to their parent.

A terminal sends Ctrl-C to a whole process group; systemd, Slurm and `kill -- -PGID` send SIGTERM to
every process of a run. The parent finishes its work with its children and then ends them.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

STOPS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def blocked() -> Iterator[None]:
    """Block both signals in this thread, so that a child started inside begins with them blocked.

    The child calls `leave_to_parent`, until which they wait.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_to_parent() -> None:
    """Ignore both signals in this process, also those that have arrived since it began."""
    for number in STOPS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
