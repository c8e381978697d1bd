"""Runs clients' programs in the sandbox, in a bounded pool of threads off the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from veriloop.sandbox.executor import Executor
from veriloop.sandbox.remote.refusal import Refusal
from veriloop.verifiers.registry import describe

Result = TypeVar("Result")
_CALLS_PER_SLOT = 64  # running and waiting


class Runner:
    """Calls that use one executor. `slots`: how many at a time."""

    def __init__(self, box: Executor, slots: int) -> None:
        self.box = box
        self._room = slots * _CALLS_PER_SLOT
        self._calls = 0
        self._threads = ThreadPoolExecutor(slots, thread_name_prefix="runner")

    async def call(self, function: Callable[..., Result], *args: Any) -> Result:
        """`function(box, *args)` in a thread.

        Raises Refusal: 422 for what the executor refuses, 503 where the sandbox fails, 504 at once
        while too many wait, since verl retries that status only.
        """
        if self._calls >= self._room:
            raise Refusal(504, f"{self._calls} programs wait already", 1.0)
        self._calls += 1
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, function, self.box, *args)
        except ValueError as mistake:
            raise Refusal(422, str(mistake)) from mistake
        except Exception as failure:  # the boundary of the service
            raise Refusal(503, describe(failure), 1.0) from failure
        finally:
            self._calls -= 1

    @property
    def idle(self) -> bool:
        return not self._calls

    def close(self) -> None:
        """Wait for running calls, drop waiting ones, and close the sandbox."""
        self._threads.shutdown(cancel_futures=True)
        self.box.close()
