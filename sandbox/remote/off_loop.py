"""Work on a request body outside the event loop, and outside the process if the body is large.

Counting, searching and parsing many megabytes are single calls that hold the interpreter's lock, so
a thread would stop the event loop as well.
"""

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from typing import Any, TypeVar

from pebble import ProcessExpired

from veriloop.sandbox.child_signals import leave_to_parent
from veriloop.sandbox.clean_spawn import CleanSpawn
from veriloop.sandbox.patient_pool import PatientPool
from veriloop.sandbox.remote.refusal import Refusal

INLINE_BYTES = 64 << 10  # bodies up to this size are handled in the event loop
WORKERS = 2  # processes, and threads
LIMIT_S = 20.0  # for one call in a process; a body of 64 MiB takes a few seconds
_NICE = 5  # of the processes, so that the one that serves goes first
WAIT_S = 60.0  # for the call and those before it
_THREADS = ThreadPoolExecutor(WORKERS, thread_name_prefix="body")
Result = TypeVar("Result")


async def in_process(size: int, function: Callable[..., Result], *args: Any) -> Result:
    """`function(*args)` for a body of `size` bytes: in another process if it is large.

    Raises what the function raises, and Refusal 503 where its process dies or takes too long.
    """
    if size <= INLINE_BYTES:
        return function(*args)
    try:
        async with asyncio.timeout(WAIT_S):  # a pool that breaks may forget calls
            return await asyncio.wrap_future(_processes(os.getpid()).schedule(function, args))
    except (ProcessExpired, BrokenProcessPool) as failure:
        raise Refusal(503, "the process that read the body died", 1.0) from failure
    except TimeoutError as late:
        raise Refusal(503, "reading the body takes too long now", 1.0) from late


async def in_thread(size: int, function: Callable[..., Result], *args: Any) -> Result:
    """`function(*args)` for a body of `size` bytes: in a thread if it is large."""
    if size <= INLINE_BYTES:
        return function(*args)
    return await asyncio.get_running_loop().run_in_executor(_THREADS, function, *args)


class _Processes:
    """Processes that start with the first call and end with this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool = self._new_pool()

    def schedule(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Future[Any]:
        with self._lock:
            if not self._pool.active:
                broken, self._pool = self._pool, self._new_pool()
                threading.Thread(target=broken.join, daemon=True).start()
            return self._pool.schedule(function, args=args, timeout=LIMIT_S)

    def _new_pool(self) -> PatientPool:
        return PatientPool(WORKERS, _begin, (), CleanSpawn())


def _begin() -> None:
    leave_to_parent()
    os.nice(_NICE)


@cache
def _processes(process: int) -> _Processes:
    """Those of one process: a fork must not use its parent's."""
    del process
    return _Processes()
