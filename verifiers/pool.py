"""Killable worker processes: every judgement is bounded in time and memory."""

import math
import os
import pickle
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from types import MappingProxyType
from typing import Any, Self

from pebble import ProcessExpired

from veriloop.sandbox.backends import AUTO, check
from veriloop.sandbox.clean_spawn import EXITED, CleanSpawn
from veriloop.sandbox.patient_pool import PatientPool
from veriloop.verifiers.registry import (
    Task,
    describe,
    fingerprint,
    get,
    load_plugin,
    loaded_plugins,
    seconds_for,
    with_facts,
    with_settings,
)
from veriloop.verifiers.verdict import UnreadyVerifierError, Verdict
from veriloop.verifiers.worker import judge_chunk, prepare, warm_up

CHUNK = 64  # items sent to a worker at once, which amortises the round trip of fast verifiers
CHUNK_BUDGET = 0.1  # share of the limit after which a worker returns the rest of its chunk
GROUP_S = 0.002  # of judging that justifies a round trip; faster items are sent in groups
CLOSE_LIMIT_S = 60.0  # for the killed workers to end
WARM_LIMIT_S = 120.0  # for imports, once per verifier
ATTEMPTS = 3  # for an item whose whole pool broke, and to warm a worker that dies
_PAST = 0.8  # weight of earlier items in the moving average of a verifier's cost
_WAKE_S = 0.5  # how often a waiting thread checks that its pool is alive


class VerifierPool:
    """Judges batches in `workers` processes, from any thread.

    `limit_s` and `memory_mb` bound each judgement. Verifiers that run a candidate's program add the
    time that the program may take to `limit_s`. Waiting for a worker never counts, nor does, on
    Linux, the time in which the worker waits for a processor. macOS does not enforce `memory_mb`.

    An item past its limit is killed and becomes an `error` verdict, as does one whose worker dies;
    the other items of its chunk are judged again and the worker is replaced.
    `plugins` are modules of further verifiers, as "path/to/file.py" or "package.module". Workers
    load them, and all plugins that this process has loaded before. `facts` belong to every problem
    that does not have them itself.
    `sandbox` is the backend in which verifiers run programs; see `veriloop.sandbox.backends`.
    Raises ValueError on a bound that is not positive and on an invalid backend, ImportError on a
    plugin that fails.
    """

    def __init__(
        self,
        workers: int = 1,
        limit_s: float = 5.0,
        memory_mb: int = 2048,
        *,
        plugins: Sequence[str] = (),
        sandbox: str = AUTO,
        facts: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        bounds = {"workers": workers, "limit_s": limit_s, "memory_mb": memory_mb}
        for name, value in bounds.items():
            if not value > 0:
                raise ValueError(f"{name} must be positive, got {value}")
        for plugin in plugins:
            load_plugin(plugin)
        self.workers = workers
        self.limit_s = limit_s
        self.restarts = 0  # workers that were replaced
        self.costs: dict[str, float] = {}  # seconds per item, by verifier
        self._memory_mb = memory_mb
        self._plugins = loaded_plugins()
        self._sandbox = check(sandbox)
        self._facts = dict(facts)
        self._warm: list[str] = []  # also warmed by every worker that replaces a dead one
        self._warming: dict[str, tuple[tuple[str, ...], list[Future[Any]]]] = {}  # by name
        self._lock = threading.Lock()
        self._closed = False
        self._pool = self._new_pool()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def warm(self, names: Iterable[str]) -> None:
        """Have each worker judge the examples of these verifiers, so that no item pays for imports.

        `judge_all` does so for new names. Raises KeyError for an unknown name and
        UnreadyVerifierError for a verifier that fails on its own example.
        """
        requested = tuple(dict.fromkeys(names))
        self.begin_to_warm(requested)
        in_progress = [self._warming.get(name) for name in requested]  # None: already warm
        for fresh, futures in dict(filter(None, in_progress)).items():
            for future in futures:
                if failure := self._warming_failure(fresh, future):
                    self._end_warming(fresh)
                    raise UnreadyVerifierError(
                        f"verifiers {list(fresh)} cannot judge their examples: {_reason(failure)}; "
                        "`veriloop verifier check NAME` examines one"
                    ) from failure
            self._end_warming(fresh, warm=fresh)

    def begin_to_warm(self, names: Iterable[str]) -> None:
        """Start `warm` without waiting for it; judging will. Raises KeyError."""
        with self._lock:
            begun = {*self._warm, *self._warming}
        fresh = tuple(get(name).name for name in dict.fromkeys(names) if name not in begun)
        if fresh:
            futures = [
                self.schedule(warm_up, (fresh,), WARM_LIMIT_S)[1] for _ in range(self.workers)
            ]
            with self._lock:
                self._warming |= dict.fromkeys(fresh, (fresh, futures))

    def _warming_failure(self, names: tuple[str, ...], future: Future[Any]) -> BaseException | None:
        """Why a worker cannot warm these; if it died, something else may have killed it."""
        for _ in range(ATTEMPTS - 1):
            failure = future.exception(2 * WARM_LIMIT_S)
            if not isinstance(failure, ProcessExpired | BrokenProcessPool):
                return failure
            self.note_restart()
            _, future = self.schedule(warm_up, (names,), WARM_LIMIT_S)
        return future.exception(2 * WARM_LIMIT_S)

    def _end_warming(self, names: Sequence[str], warm: Sequence[str] = ()) -> None:
        """Note that no warm-up of these is in progress, and which of them are warm."""
        with self._lock:
            self._warm.extend(name for name in warm if name not in self._warm)
            for name in names:
                self._warming.pop(name, None)

    def judge_all(self, tasks: Sequence[Task]) -> list[Verdict]:
        """One verdict per task, in order; failures are `error` verdicts.

        Raises KeyError for an unknown verifier, UnreadyVerifierError for one that fails on its own
        example, and RuntimeError once the pool is closed.
        """
        verdicts: dict[int, Verdict] = {}
        for settled in self.judge_groups(tasks):
            verdicts |= settled
        return [verdicts[index] for index in range(len(tasks))]

    def judge_groups(self, tasks: Sequence[Task]) -> Iterator[Mapping[int, Verdict]]:
        """Verdicts as they arrive, by index into `tasks`, each exactly once."""
        self.warm({problem.verifier for problem, _ in tasks})
        return _Batch(self, with_facts(tasks, self._facts)).run()

    def fingerprint(self, names: Iterable[str]) -> dict[str, str]:
        """Fingerprints of these verifiers with their settings; see `registry.fingerprint`."""
        return with_settings(fingerprint(names), self._facts)

    def close(self) -> None:
        """Kill the workers. Harmless when repeated; calls still waiting raise RuntimeError.

        Raises RuntimeError if the pool has not ended after CLOSE_LIMIT_S.
        """
        with self._lock:
            self._closed = True
            pool = self._pool
        pool.stop()
        _join(pool)

    def schedule(
        self, function: Callable[..., Any], args: tuple[Any, ...], limit_s: float
    ) -> tuple[PatientPool, Future[Any]]:
        """Queue a call. Returns its future and the process pool that holds it."""
        with self._lock:
            if self._closed:
                raise RuntimeError("this VerifierPool is closed")
            for _ in range(ATTEMPTS):
                if not self._pool.active:
                    broken, self._pool = self._pool, self._new_pool()
                    self.restarts += self.workers
                    threading.Thread(target=broken.join, daemon=True).start()
                with suppress(RuntimeError):  # it broke since
                    return self._pool, self._pool.schedule(function, args=args, timeout=limit_s)
            raise RuntimeError(f"the workers' pool broke {ATTEMPTS} times as it was given an item")

    def note(self, judged: Iterable[tuple[str, float]]) -> None:
        """Update the costs with (verifier, seconds) of judged items."""
        for name, seconds in judged:
            self.costs[name] = _PAST * self.costs.get(name, seconds) + (1 - _PAST) * seconds

    def note_restart(self) -> None:
        with self._lock:
            self.restarts += 1

    def _new_pool(self) -> PatientPool:
        settings = (os.getpid(), self._memory_mb, self._plugins, self._warm, self._sandbox)
        return PatientPool(self.workers, prepare, settings, CleanSpawn())


@dataclass(frozen=True, slots=True)
class _Sent:
    indices: Sequence[int]  # of the tasks, in the order the worker judges them
    attempt: int
    limit_s: float
    pool: PatientPool


class _Batch:
    """The tasks of one call that have no verdict yet."""

    def __init__(self, owner: VerifierPool, tasks: Sequence[Task]) -> None:
        self.owner = owner
        self.tasks = tasks
        self.limits = [owner.limit_s + seconds_for(problem) for problem, _ in tasks]
        self.verdicts: dict[int, Verdict] = {}  # not yielded yet
        self.pending: dict[Future[bytes], _Sent] = {}
        self.done: SimpleQueue[Future[bytes]] = SimpleQueue()
        self.pools: set[PatientPool] = set()  # that hold pending calls
        self.began = time.monotonic()

    def run(self) -> Iterator[dict[int, Verdict]]:
        self._spread(range(len(self.tasks)))
        while self.pending or self.verdicts:
            for future in [*self._ended(), *self._lost()]:
                if (sent := self.pending.pop(future, None)) is not None:
                    self._settle(future, sent)
            settled, self.verdicts = self.verdicts, {}
            if settled:
                yield settled

    def _ended(self) -> list[Future[bytes]]:
        """The calls that ended since the last time; waits a while for the first if there are
        none, unless there is nothing to wait for."""
        ended: list[Future[bytes]] = []
        with suppress(Empty):
            if self.pending:
                ended.append(self.done.get(timeout=_WAKE_S))
            while True:
                ended.append(self.done.get_nowait())
        return ended

    def _lost(self) -> list[Future[bytes]]:
        """The calls whose pools have broken since the last time."""
        broken = {pool for pool in self.pools if not pool.active}
        self.pools -= broken
        return [f for f, sent in self.pending.items() if sent.pool in broken] if broken else []

    def _spread(self, indices: Sequence[int]) -> None:
        by_limit: defaultdict[float, list[int]] = defaultdict(list)  # a chunk has one limit
        for index in indices:
            by_limit[self.limits[index]].append(index)
        for same_limit in by_limit.values():
            size = self._chunk_size(same_limit)
            for start in range(0, len(same_limit), size):
                self._send(same_limit[start : start + size])

    def _chunk_size(self, indices: Sequence[int]) -> int:
        """A share for each worker, or more where that is not worth a round trip."""
        names = {self.tasks[index][0].verifier for index in indices}
        slowest = max(self.owner.costs.get(name, GROUP_S) for name in names)
        share = math.ceil(len(indices) / self.owner.workers)
        return min(CHUNK, max(share, int(GROUP_S / max(slowest, GROUP_S / CHUNK))))

    def _send(self, indices: Sequence[int], attempt: int = 1) -> None:
        try:
            payload = pickle.dumps([self.tasks[i] for i in indices])
        except Exception as failure:  # noqa: BLE001  a reference may hold anything
            self._fail(indices, describe(failure))
            return
        args = (payload, self.began, CHUNK_BUDGET * self.owner.limit_s)
        limit_s = self.limits[indices[0]]
        pool, future = self.owner.schedule(judge_chunk, args, limit_s)
        self.pending[future] = _Sent(indices, attempt, limit_s, pool)
        self.pools.add(pool)
        future.add_done_callback(self.done.put)

    def _settle(self, future: Future[bytes], sent: _Sent) -> None:
        lost = not future.done() or future.cancelled()
        failure = None if lost else future.exception()
        if isinstance(failure, TimeoutError | ProcessExpired):
            self.owner.note_restart()
        if lost or isinstance(failure, BrokenProcessPool):
            self._retry(sent)
        elif isinstance(failure, TimeoutError):
            detail = f"verifier exceeded its {sent.limit_s} s limit"
            self._fail(sent.indices, detail, sent.limit_s)
        elif failure is not None:
            self._fail(sent.indices, _reason(failure))
        else:
            judged: list[Verdict] = pickle.loads(future.result())
            names = [self.tasks[index][0].verifier for index in sent.indices]
            self.owner.note(zip(names, (verdict.exec_s for verdict in judged), strict=False))
            self.verdicts |= zip(sent.indices, judged, strict=False)
            self._spread(sent.indices[len(judged) :])

    def _retry(self, sent: _Sent) -> None:
        """Send the items of a broken pool one by one: none of them is known to be at fault."""
        for index in sent.indices:
            if sent.attempt < ATTEMPTS:
                self._send([index], sent.attempt + 1)
            else:
                self._fail([index], f"the pool broke {ATTEMPTS} times under this item")

    def _fail(self, indices: Sequence[int], detail: str, exec_s: float = 0.0) -> None:
        """An error verdict for one item; several are sent again one by one, to find the cause."""
        if len(indices) > 1:
            for index in indices:
                self._send([index])
            return
        queue_s = max(0.0, time.monotonic() - self.began - exec_s)
        self.verdicts[indices[0]] = Verdict(
            score=None,
            status="error",
            detail=detail,
            components=get(self.tasks[indices[0]][0].verifier).zero_components(),
            queue_s=queue_s,
            exec_s=exec_s,
        )


def _join(pool: PatientPool) -> None:
    """Wait for a stopped pool in a thread, since pebble's own `join` then has no limit."""
    thread = threading.Thread(target=pool.join, daemon=True)
    thread.start()
    thread.join(CLOSE_LIMIT_S)
    if thread.is_alive():
        raise RuntimeError(
            f"the verifier workers were killed and their pool has not ended after {CLOSE_LIMIT_S} s"
        )


def _reason(failure: BaseException) -> str:
    if isinstance(failure, ProcessExpired):
        code = 0 if failure.exitcode == EXITED else failure.exitcode
        return f"verifier worker died with exit code {code}"
    return describe(failure)
