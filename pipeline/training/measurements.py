"""What a training step is measured by: scalars, wall time, peak memory and use of the machine."""

import os
import resource
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from threading import Event, Thread
from time import monotonic
from typing import Self

import torch
from torch import Tensor

from veriloop.pipeline.errors import StageError

PROC = Path("/proc/self/stat")  # of Linux only; elsewhere there is no CPU use and memory
TICKS = os.sysconf("SC_CLK_TCK")  # of CPU time per second
PAGE = os.sysconf("SC_PAGE_SIZE")  # bytes
GIB = 2**30  # bytes
_KIB_PER_GIB = 2**20
SAMPLE_S = 1.0  # between two samples of the GPU's utilization, as NVML averages them


class Tally:
    """Sums and maxima of scalars by name, in float64, kept on their device until `totals`.

    Reading a scalar waits for all work queued on the device, so a step reads them once.
    """

    def __init__(self) -> None:
        self.weight = 1  # of what is added; 0 for what another rank adds too
        self._scalars: dict[str, Tensor] = {}
        self._maxima = set[str]()

    def add(self, name: str, value: Tensor) -> None:
        """Add the detached scalar `value` to the sum of this name."""
        added = self.weight * value.detach().double()
        self._scalars[name] = added + self._scalars.get(name, 0.0)

    def add_max(self, name: str, values_M: Tensor) -> None:
        """Raise the maximum of this name, at least 0, to the largest of `values_M`; NaN stays."""
        self._maxima.add(name)
        values_M = values_M.detach().double()
        highest = self._scalars.get(name, values_M.new_zeros(()))
        self._scalars[name] = torch.cat([highest[None], values_M]).max()

    def totals(self, stacked: Callable[[Tensor], Tensor] | None = None) -> dict[str, float]:
        """All sums and maxima by name.

        `stacked` turns the values of this rank, [K], into those of all ranks, [ranks, K].
        """
        if not self._scalars:
            return {}
        values_K = torch.stack([*self._scalars.values()])
        if stacked is not None:
            maxima_K = torch.tensor([name in self._maxima for name in self._scalars])
            by_rank = stacked(values_K)
            maxima_K = maxima_K.to(by_rank.device)
            values_K = torch.where(maxima_K, by_rank.amax(0), by_rank.sum(0))
        return dict(zip(self._scalars, values_K.tolist(), strict=True))


class Clock:
    """Seconds spent in each named part of a step; a nested part is called "outer/inner".

    `exact` synchronizes with the accelerator at both ends of a part, so that its work counts in
    the part that launched it. This costs time and is meant for profiling.
    """

    def __init__(self, *, exact: bool = False) -> None:
        self.seconds: dict[str, float] = {}
        self._open_parts: list[str] = []
        self._exact = exact and torch.cuda.is_available()

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        self._open_parts.append(part)
        name, start = "/".join(self._open_parts), self._now()
        token = _current_clock.set(self)
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + self._now() - start
            _current_clock.reset(token)
            self._open_parts.pop()

    def add_concurrent(self, other: "Clock") -> None:
        """Add the times of work that overlapped another step; they are not part of the total."""
        self.seconds |= {f"beside/{part}": seconds for part, seconds in other.seconds.items()}

    def total(self) -> float:
        """Seconds of all top-level parts."""
        return sum(seconds for name, seconds in self.seconds.items() if "/" not in name)

    def metrics(self) -> dict[str, float]:
        """The times under their metric names."""
        return {"step_time": self.total()} | {f"time/{p}": s for p, s in self.seconds.items()}

    def _now(self) -> float:
        if self._exact:
            torch.cuda.synchronize()
        return monotonic()


_current_clock: ContextVar[Clock | None] = ContextVar("current_clock", default=None)


@contextmanager
def span(part: str) -> Iterator[None]:
    """Time the body as a part of the current clock, if there is one."""
    clock = _current_clock.get()
    if clock is None:
        yield
    else:
        with clock(part):
            yield


class MemoryBoundError(StageError):
    """A process held more memory than the recipe allows."""


def peak_gib(pid: int | None = None) -> float | None:
    """Peak resident memory of a process, by default this one, in GiB. None if it has ended, or
    where there is no /proc."""
    if pid is None:
        return _own_peak_gib()
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return None
    kib = (int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    return next((count / _KIB_PER_GIB for count in kib), None)  # None of one not waited for


def _own_peak_gib() -> float:
    """ru_maxrss is in bytes on macOS, in KiB on Linux (getrusage(2) of each)."""
    per_gib = GIB if sys.platform == "darwin" else _KIB_PER_GIB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / per_gib


def memory_peaks(sampler: int | None) -> dict[str, float]:
    """Peak GiB under metric names: this process, the sampler's process if there is one, the GPU.

    A sampler that has ended is left out: the next request to it says how.
    """
    peaks = {"memory/trainer": _own_peak_gib()}
    if sampler is not None and (peak := peak_gib(sampler)) is not None:
        peaks["memory/sampler"] = peak
    if torch.cuda.is_available():
        peaks["memory/card"] = torch.cuda.max_memory_allocated() / 2**30
    return peaks


def check_memory_bound(peaks: Mapping[str, float], bound_gib: float) -> None:
    """Raise MemoryBoundError if one of `peaks` exceeds the bound; 0 is no bound."""
    worst = max(peaks, key=peaks.__getitem__)
    if bound_gib and peaks[worst] > bound_gib:
        raise MemoryBoundError(
            f"{worst} reached {peaks[worst]:.2f} GiB, trainer.memory_gib allows {bound_gib:g}. "
            "Fewer rollout.prompts, a shorter trainer.row, fewer trainer.rows or "
            "trainer.gradient_checkpointing reduce it; earlier checkpoints are complete"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessUse:
    """CPU seconds of a process since its start, and its resident memory."""

    cpu_s: float
    ended_children_s: float
    resident_gib: float


class SystemUse:
    """Measures a run, which writes to `folder`, from one call of `metrics` to the next.

    While it is open, a thread samples the GPU's utilization if this process uses CUDA. If that is
    not available, `note` says why, once.
    """

    def __init__(self, folder: Path, note: Callable[[str], None]) -> None:
        self._folder, self._note = folder, note
        self._gpu: GpuSampler | None = None
        self._since = monotonic(), _cpu_seconds(*_uses())

    def __enter__(self) -> Self:
        self._since = monotonic(), _cpu_seconds(*_uses())
        return self

    def __exit__(self, *_: object) -> None:
        if self._gpu is not None:
            self._gpu.close()

    def metrics(self) -> dict[str, float]:
        """Cores in use since the last call, resident GiB, GPU, and free GiB, by metric name."""
        metrics = {"system/disk_free": shutil.disk_usage(self._folder).free / GIB}
        if PROC.exists():
            metrics |= self._processes()
        if torch.cuda.is_initialized():
            metrics |= self._card()
        return metrics

    def _processes(self) -> dict[str, float]:
        trainer, children = _uses()
        (before, last), now = self._since, monotonic()
        seconds = _cpu_seconds(trainer, children)
        self._since = now, seconds
        # A process that another one reaps outside this run takes its seconds with it.
        cores = [
            max(b - a, 0.0) / max(now - before, 1e-9) for a, b in zip(last, seconds, strict=True)
        ]
        metrics = {"system/cpu/trainer": cores[0], "system/memory/trainer": trainer.resident_gib}
        if children or cores[1]:
            metrics["system/cpu/children"] = cores[1]
            metrics["system/memory/children"] = sum(child.resident_gib for child in children)
        return metrics

    def _card(self) -> dict[str, float]:
        if self._gpu is None:
            self._gpu = GpuSampler(self._note)
        free, total = torch.cuda.mem_get_info()
        share = self._gpu.mean()
        utilization = {} if share is None else {"system/gpu/utilization": share}
        return {"system/gpu/memory": (total - free) / GIB, **utilization}


class GpuSampler:
    """Samples the utilization of this process's GPU in a thread, until closed."""

    def __init__(self, note: Callable[[str], None], every_s: float = SAMPLE_S) -> None:
        self._samples, self._end, self._every_s = list[float](), Event(), every_s
        self._gpu = torch.cuda.current_device()  # in another thread that is the first
        try:
            torch.cuda.utilization(self._gpu)
        except Exception as failure:  # noqa: BLE001  NVML, which may be missing or not permitted
            note(f"GPU utilization is not recorded: {type(failure).__name__}: {failure}")
            self._end.set()
        self._thread = Thread(target=self._sample, name="gpu-utilization", daemon=True)
        self._thread.start()

    def mean(self) -> float | None:
        """Mean share of time since the last call in which the GPU was busy; None: no sample."""
        taken, self._samples = self._samples, []
        return fmean(taken) if taken else None

    def close(self) -> None:
        self._end.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._end.wait(self._every_s):
            with suppress(Exception):  # a driver that fails for a moment leaves a gap
                self._samples.append(torch.cuda.utilization(self._gpu) / 100)


def _uses() -> tuple[ProcessUse, list[ProcessUse]]:
    """This process, and its descendants: the sampler, verifiers and their programs."""
    own, *rest = descendants(os.getpid())
    uses = (process_use(pid) for pid in rest)
    trainer = process_use(own)
    assert trainer is not None, "this process exists"
    return trainer, [use for use in uses if use is not None]


def _cpu_seconds(trainer: ProcessUse, children: list[ProcessUse]) -> tuple[float, float]:
    """CPU seconds of this process, and of all its descendants, ended ones included."""
    living = sum(child.cpu_s + child.ended_children_s for child in children)
    return trainer.cpu_s, trainer.ended_children_s + living


def descendants(root: int) -> list[int]:
    """A process and all processes below it, by id."""
    pids = [root]
    for pid in pids:  # grows
        pids += _children(pid)
    return pids


def _children(pid: int) -> Iterator[int]:
    with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(FileNotFoundError, ProcessLookupError):
                yield from map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())


def process_use(pid: int) -> ProcessUse | None:
    """What /proc says of a process; None if it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()  # from the third on: a name may hold spaces
    user, system, ended_user, ended_system = map(int, fields[11:15])
    return ProcessUse(
        cpu_s=(user + system) / TICKS,
        ended_children_s=(ended_user + ended_system) / TICKS,
        resident_gib=int(fields[21]) * PAGE / GIB,
    )
