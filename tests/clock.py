"""A clock that a test moves, for one module: other threads of the process keep the real one."""

import time


class Clock:
    """Stands in for the module `time` in the module under test; `monotonic()` is `now`.

    Patching `time.monotonic` itself would stop the event loops of servers in other threads.
    """

    def __init__(self, now=0.0):
        self.now = now

    def monotonic(self):
        return self.now

    def __getattr__(self, name):
        return getattr(time, name)
