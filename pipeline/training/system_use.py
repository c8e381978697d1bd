"""Use of the machine by a run: CPU, resident memory, GPU and disk, measured at each step."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from threading import Event, Thread
from time import monotonic
from typing import Self

import torch

PROC = Path("/proc/self/stat")  # of Linux only; elsewhere there is no CPU use and memory
TICKS = os.sysconf("SC_CLK_TCK")  # of CPU time per second
PAGE = os.sysconf("SC_PAGE_SIZE")  # bytes
GIB = 2**30
SAMPLE_S = 1.0  # between two samples of the GPU's utilization, as NVML averages them


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
        try:
            torch.cuda.utilization()
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
                self._samples.append(torch.cuda.utilization() / 100)


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
