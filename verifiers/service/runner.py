"""Programs of peers, run in the sandbox by threads of their own: bounded, and never in the loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from sandbox.executor import Executor
from sandbox.probe import SandboxUnavailableError
from verifiers.registry import describe
from verifiers.service.refusal import Refusal

Made = TypeVar("Made")
_WAITING = 64  # calls for each slot, running ones among them


class Runner:
    """Calls that use one executor. `slots`: how many at a time."""

    def __init__(self, box: Executor, slots: int) -> None:
        self.box = box
        self._room = slots * _WAITING
        self._inside = 0
        self._threads = ThreadPoolExecutor(slots, thread_name_prefix="runner")

    async def call(self, function: Callable[..., Made], *args: Any) -> Made:
        """`function(box, *args)` in a thread. Raises Refusal: 422 for what the executor refuses,
        503 where the sandbox fails, 504 at once while too many wait: verl tries that again."""
        if self._inside >= self._room:
            raise Refusal(504, f"{self._inside} programs wait already", 1.0)
        self._inside += 1
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, function, self.box, *args)
        except (SandboxUnavailableError, RuntimeError) as failure:
            raise Refusal(503, describe(failure), 1.0) from failure
        except ValueError as mistake:
            raise Refusal(422, str(mistake)) from mistake
        finally:
            self._inside -= 1

    @property
    def idle(self) -> bool:
        return not self._inside

    def close(self) -> None:
        """Wait for what runs, drop what waits, and close the sandbox."""
        self._threads.shutdown(cancel_futures=True)
        self.box.close()
