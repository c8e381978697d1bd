"""Processes that never wait, beside what is measured."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """So many busy processes at our own priority, until the block ends."""
    command = [sys.executable, "-S", "-c", "while True: pass"]
    started = [subprocess.Popen(command, start_new_session=True) for _ in range(count)]
    try:
        time.sleep(1 if count else 0)
        yield
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()
