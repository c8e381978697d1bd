"""Worker processes that a busy machine does not make late.

pebble kills a worker by the wall clock, by when this process has read that a task began, and may
notice a death before it has read of which task. On a busy machine each of these blames a task for
time that it did not have, or for the death of another.
"""

import multiprocessing.context
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from pebble import ProcessPool
from pebble.common.types import Result, ResultStatus
from pebble.pool.base_pool import PoolContext, Task
from pebble.pool.process import PoolManager, TaskManager, dictionary_values

from veriloop.sandbox.namespace.deadline import PATIENCE, waited_s

_READING_S = 1.0  # for a message to be read; longer if its sender died half-way
_PUT_OFF = 20  # looks in a row while messages arrive, at most
_LOCK_S = 5.0  # for the channel's lock after a death; a live worker holds it for microseconds


class PatientPool(ProcessPool):
    """A pool in which a task's limit is time by a clock that nobody sets, without the time in which
    its worker waited for a processor; after PATIENCE times the limit it is over in any case.

    What workers have sent is read before any is ended or found dead.
    """

    def __init__(
        self,
        max_workers: int,
        initializer: Callable[..., Any],
        initargs: Iterable[Any],
        context: multiprocessing.context.BaseContext,
    ) -> None:
        super().__init__(
            max_workers, 0, initializer, initargs, context  # pyright: ignore[reportArgumentType]
        )  # fmt: skip
        self._pool_manager = _Manager(self._context, context)


class _Tasks(TaskManager):
    def __init__(self, task_done: Callable[[], Any]) -> None:
        super().__init__(task_done)
        self._began: WeakKeyDictionary[Task, tuple[float, float]] = WeakKeyDictionary()

    def timeout(self, task: Task) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Whether a task is past its limit, which begins at the first look at it."""
        if not (task.timeout and task.started):
            return False
        now = time.monotonic()
        if task not in self._began:
            self._began[task] = now, waited_s(task.worker_id)
        began, waited = self._began[task]
        elapsed_s = now - began
        if not task.timeout < elapsed_s < PATIENCE * task.timeout:
            return elapsed_s > task.timeout
        return elapsed_s - (waited_s(task.worker_id) - waited) > task.timeout


class _Manager(PoolManager):
    def __init__(self, context: PoolContext, mp_context: Any) -> None:
        super().__init__(context, mp_context)
        self.task_manager = _Tasks(context.task_queue.task_done)
        self._reading = threading.Lock()
        self._put_off = 0
        self._died = False

    def process_next_message(self, timeout: float) -> None:
        channel = self.worker_manager.pool_channel
        with suppress(OSError):  # a closed channel, which the parent class reports
            if channel is not None and not channel.poll(timeout):
                return
        with self._reading:
            super().process_next_message(0)

    def update_status(self) -> None:
        """Look at tasks and workers, unless there are messages of theirs to read first."""
        read = self._reading.acquire(timeout=_READING_S)
        try:
            channel = self.worker_manager.pool_channel
            unread = read and channel is not None and channel.poll(0)
            self._put_off = self._put_off + 1 if unread else 0
            if self._put_off % _PUT_OFF == 0:
                super().update_status()
        finally:
            if read:
                self._reading.release()
        if self._died:
            self._died = False
            self._check_lock()

    def handle_worker_expiration(self, expiration: tuple[int, int]) -> None:
        self._died = True
        super().handle_worker_expiration(expiration)

    def _check_lock(self) -> None:
        """Raise BrokenProcessPool if a worker that died has taken the channel's lock with it.

        pebble's own workers would wait for it for two minutes. Messages are read meanwhile, since a
        live worker holds the lock until its message is sent.
        """
        channel = self.worker_manager.workers_channel
        assert channel is not None
        with channel.lock(timeout=_LOCK_S) as locked:
            if not locked:
                raise BrokenProcessPool("a worker died with the lock of the pool's channel")

    def update_tasks(self) -> None:
        """End tasks past their limit, and those whose worker was stopped for another one."""
        for task in dictionary_values(self.task_manager.tasks):
            if task.worker_id and task.worker_id not in self.worker_manager.workers:
                lost = BrokenProcessPool("the worker was stopped for another task")
                self.task_manager.task_done(task.id, Result(ResultStatus.ERROR, lost))
        super().update_tasks()
