"""What a training step is measured by: sums of scalars, wall time and peak memory."""

import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from time import monotonic

import torch
from torch import Tensor

from veriloop.pipeline.errors import StageError

_KIB_PER_GIB = 2**20


class Tally:
    """Sums and maxima of scalars by name, in float64, kept on their device until `totals`.

    Reading a scalar waits for all work queued on the device, so a step reads them once.
    """

    def __init__(self) -> None:
        self._scalars: dict[str, Tensor] = {}

    def add(self, name: str, value: Tensor) -> None:
        """Add the detached scalar `value` to the sum of this name."""
        self._scalars[name] = value.detach().double() + self._scalars.get(name, 0.0)

    def add_max(self, name: str, values_M: Tensor) -> None:
        """Raise the maximum of this name, at least 0, to the largest of `values_M`; NaN stays."""
        values_M = values_M.detach().double()
        highest = self._scalars.get(name, values_M.new_zeros(()))
        self._scalars[name] = torch.cat([highest[None], values_M]).max()

    def totals(self) -> dict[str, float]:
        """All sums and maxima by name."""
        if not self._scalars:
            return {}
        values = torch.stack([*self._scalars.values()]).tolist()
        return dict(zip(self._scalars, values, strict=True))


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


def peak_gib(pid: int | None = None) -> float:
    """Peak resident memory of a running process, by default this one, in GiB."""
    if pid is None:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _KIB_PER_GIB
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / _KIB_PER_GIB


def memory_peaks(sampler: int | None) -> dict[str, float]:
    """Peak GiB under metric names: this process, the sampler's process if any, the GPU."""
    peaks = {"memory/trainer": peak_gib()}
    if sampler is not None:
        peaks["memory/sampler"] = peak_gib(sampler)
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
