"""Killable worker processes: every judgement is bounded in time and memory, from any thread."""

import math
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, Self

from pebble import ProcessExpired, ProcessPool

from verifiers.clean_spawn import LEFT, CleanSpawn
from verifiers.registry import describe, fingerprint, get, load_plugin, seconds_for
from verifiers.verdict import Verdict
from verifiers.worker import Task, judge_chunk, prepare, warm_up

CHUNK = 64  # items sent to a worker at once, so that a fast verifier pays little for the trip
CHUNK_BUDGET = 0.1  # share of the limit after which a worker hands the rest of its chunk back
GROUP_S = 0.002  # of judging that is worth a trip of its own; fast items are sent in groups
WARM_LIMIT_S = 120.0  # for imports, once per verifier
ATTEMPTS = 3  # for an item whose whole pool broke under it
_PAST = 0.8  # weight of earlier items in what one of a verifier costs
_WAKE_S = 0.5  # how often a waiting thread looks whether its pool is still there


class VerifierPool:
    """Judges batches in `workers` processes; `limit_s` and `memory_mb` bound each judgement.

    `limit_s` is for the verifier; where one states how long a candidate's own work may take, as
    those that run programs do, these seconds are added.

    An item past its limit is killed and becomes an `error` verdict, as does one whose worker dies;
    its neighbours are judged again and the workers replaced. Waiting for a worker never counts.
    `plugins` are modules of further verifiers, as "path/to/file.py" or "package.module".
    Raises ValueError on a bound that is not positive, ImportError on a plugin that fails.
    """

    def __init__(
        self,
        workers: int = 1,
        limit_s: float = 5.0,
        memory_mb: int = 2048,
        *,
        plugins: Sequence[str] = (),
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
        self.costs: dict[str, float] = {}  # seconds that an item takes, by verifier
        self._memory_mb = memory_mb
        self._plugins = tuple(plugins)
        self._warm: list[str] = []  # sent anew with every worker that replaces a dead one
        self._warming: dict[str, tuple[tuple[str, ...], list[Future[Any]]]] = {}  # by each of them
        self._lock = threading.Lock()
        self._closed = False
        self._pool = self._new_pool()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def warm(self, names: Iterable[str]) -> None:
        """Let each worker judge the examples of these verifiers, so that no item pays for imports.

        `judge_all` does so for names it has not seen. Raises KeyError for an unknown name and
        RuntimeError for a verifier that fails on its own example: it would fail on everything.
        """
        asked = tuple(dict.fromkeys(names))
        self.begin_to_warm(asked)
        begun = [self._warming.get(name) for name in asked]  # None: done, here or by a thread
        for fresh, sent in dict(filter(None, begun)).items():
            for future in sent:
                if failure := future.exception(2 * WARM_LIMIT_S):
                    self._settled(fresh)
                    told = f"verifiers {list(fresh)} cannot judge their examples"
                    raise RuntimeError(f"{told}: {_reason(failure)}") from failure
            self._settled(fresh, warm=fresh)

    def begin_to_warm(self, names: Iterable[str]) -> None:
        """The same without waiting for it, as `warm` and whoever judges will. Raises KeyError."""
        with self._lock:
            known = {*self._warm, *self._warming}
        fresh = tuple(get(name).name for name in dict.fromkeys(names) if name not in known)
        if fresh:
            schedule = partial(self.schedule, warm_up, (fresh,), WARM_LIMIT_S)
            sent = [schedule()[1] for _ in range(self.workers)]
            with self._lock:
                self._warming |= dict.fromkeys(fresh, (fresh, sent))

    def _settled(self, waited: Sequence[str], warm: Sequence[str] = ()) -> None:
        """Nobody need wait for these any more; those of them that are `warm` stay so."""
        with self._lock:
            self._warm.extend(name for name in warm if name not in self._warm)
            for name in waited:
                self._warming.pop(name, None)

    def judge_all(self, tasks: Sequence[Task]) -> list[Verdict]:
        """One verdict per task, in the order given, whatever fails.

        Raises KeyError for an unknown verifier and RuntimeError once the pool is closed.
        """
        verdicts: dict[int, Verdict] = {}
        for settled in self.judge_groups(tasks):
            verdicts |= settled
        return [verdicts[index] for index in range(len(tasks))]

    def judge_groups(self, tasks: Sequence[Task]) -> Iterator[Mapping[int, Verdict]]:
        """The same as they come: verdicts by index into `tasks`, each exactly once."""
        self.warm({problem.verifier for problem, _ in tasks})
        return _Batch(self, tasks).run()

    def fingerprint(self, names: Iterable[str]) -> dict[str, str]:
        """What judges here; see `registry.fingerprint`."""
        return fingerprint(names)

    def close(self) -> None:
        """Stop the workers. Harmless when repeated; calls still waiting raise RuntimeError."""
        with self._lock:
            self._closed = True
            pool = self._pool
        pool.stop()
        pool.join()

    def schedule(
        self, function: Callable[..., Any], args: tuple[Any, ...], limit_s: float
    ) -> tuple[ProcessPool, Future[Any]]:
        """Queue a call; also says in which of our successive process pools it waits."""
        with self._lock:
            if self._closed:
                raise RuntimeError("this VerifierPool is closed")
            if not self._pool.active:
                broken, self._pool = self._pool, self._new_pool()
                self.restarts += self.workers
                threading.Thread(target=broken.join, daemon=True).start()
            return self._pool, self._pool.schedule(function, args=args, timeout=limit_s)

    def note(self, judged: Iterable[tuple[str, float]]) -> None:
        """Learn what items cost: (verifier, seconds) of each."""
        for name, seconds in judged:
            self.costs[name] = _PAST * self.costs.get(name, seconds) + (1 - _PAST) * seconds

    def note_restart(self) -> None:
        with self._lock:
            self.restarts += 1

    def _new_pool(self) -> ProcessPool:
        return ProcessPool(
            max_workers=self.workers,
            initializer=prepare,
            initargs=(os.getpid(), self._memory_mb, self._plugins, self._warm),
            context=CleanSpawn(),  # pyright: ignore[reportArgumentType]
        )


@dataclass(frozen=True, slots=True)
class _Sent:
    indices: Sequence[int]  # of the tasks, in the order the worker judges them
    attempt: int
    limit_s: float
    pool: ProcessPool


class _Batch:
    """The tasks of one call on their way to a verdict."""

    def __init__(self, owner: VerifierPool, tasks: Sequence[Task]) -> None:
        self.owner = owner
        self.tasks = tasks
        self.limits = [owner.limit_s + seconds_for(problem) for problem, _ in tasks]
        self.verdicts: dict[int, Verdict] = {}  # not told yet
        self.pending: dict[Future[bytes], _Sent] = {}
        self.began = time.monotonic()

    def run(self) -> Iterator[dict[int, Verdict]]:
        self._spread(range(len(self.tasks)))
        while self.pending or self.verdicts:
            done, waiting = wait(self.pending, timeout=_WAKE_S, return_when=FIRST_COMPLETED)
            lost = [future for future in waiting if not self.pending[future].pool.active]
            for future in [*done, *lost]:
                self._settle(future, self.pending.pop(future))
            settled, self.verdicts = self.verdicts, {}
            if settled:
                yield settled

    def _spread(self, indices: Sequence[int]) -> None:
        for _, alike in groupby(indices, key=self.limits.__getitem__):  # one limit to a chunk
            same = list(alike)
            size = self._group(same)
            for start in range(0, len(same), size):
                self._send(same[start : start + size])

    def _group(self, indices: Sequence[int]) -> int:
        """How many go together: a share for each worker, or more if that is not worth a trip."""
        names = {self.tasks[index][0].verifier for index in indices}
        dearest = max(self.owner.costs.get(name, GROUP_S) for name in names)
        share = math.ceil(len(indices) / self.owner.workers)
        return min(CHUNK, max(share, int(GROUP_S / max(dearest, GROUP_S / CHUNK))))

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

    def _settle(self, future: Future[bytes], sent: _Sent) -> None:
        lost = not future.done() or future.cancelled()
        failure = None if lost else future.exception()
        if isinstance(failure, TimeoutError | ProcessExpired):
            self.owner.note_restart()
        if lost or isinstance(failure, BrokenProcessPool):
            self._retry(sent)
        elif isinstance(failure, TimeoutError):
            told = f"verifier exceeded its {sent.limit_s} s limit"
            self._fail(sent.indices, told, sent.limit_s)
        elif failure is not None:
            self._fail(sent.indices, _reason(failure))
        else:
            judged: list[Verdict] = pickle.loads(future.result())
            names = [self.tasks[index][0].verifier for index in sent.indices]
            self.owner.note(zip(names, (one.exec_s for one in judged), strict=False))
            self.verdicts |= zip(sent.indices, judged, strict=False)
            self._spread(sent.indices[len(judged) :])

    def _retry(self, sent: _Sent) -> None:
        """The pool broke, through no known fault of these items: try them one by one."""
        for index in sent.indices:
            if sent.attempt < ATTEMPTS:
                self._send([index], sent.attempt + 1)
            else:
                self._fail([index], f"the pool broke {ATTEMPTS} times under this item")

    def _fail(self, indices: Sequence[int], detail: str, exec_s: float = 0.0) -> None:
        """An error verdict for one item; several are judged again alone, to find the one."""
        if len(indices) > 1:
            for index in indices:
                self._send([index])
            return
        queue_s = max(0.0, time.monotonic() - self.began - exec_s)
        self.verdicts[indices[0]] = Verdict(
            score=None,
            status="error",
            detail=detail,
            components=get(self.tasks[indices[0]][0].verifier).without_score(),
            queue_s=queue_s,
            exec_s=exec_s,
        )


def _reason(failure: BaseException) -> str:
    if isinstance(failure, ProcessExpired):
        code = 0 if failure.exitcode == LEFT else failure.exitcode
        return f"verifier worker died with exit code {code}"
    return describe(failure)
