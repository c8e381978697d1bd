"""Profile of a training step: its parts as a waterfall, and the lower bound of an update's time.

The lower bound is the time of the products of the update's linear layers alone, at this machine's
speed. A forward pass takes two operations per weight and position (a multiply and an add); a
backward pass takes as many for the gradients of the inputs, and again for those of the weights if
they are trained.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from time import monotonic
from typing import Any

import torch

from veriloop.pipeline.model.fused_layers import (
    linear_forward,
    linear_input_grad,
    linear_weight_grad,
)

ROWS = 8192  # positions of a product that is timed
FORWARD, BACKWARD = 2, 4  # operations per parameter and position
TIME, BESIDE = "time/", "beside/"  # prefixes of metric names
WIDTH = 40  # characters of the longest bar
ORDER = ("sample", "verify", "update", "wait", "sync", "record")
INSIDE = ("assemble", "score", "forward", "backward", "optimizer")


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulSpeed:
    flops: float  # operations per second
    seconds: float  # of every product of every linear layer once, forward and backward


@dataclass(frozen=True, slots=True, kw_only=True)
class Positions:
    """Tokens that go through a model: those of prompts do not go through its head."""

    prompts: float
    answers: float

    def of(self, *, head: bool) -> float:
        return self.answers if head else self.prompts + self.answers

    def times(self, factor: float) -> "Positions":
        return Positions(prompts=factor * self.prompts, answers=factor * self.answers)


def matmul_speed(
    model: Any,
    dtype: torch.dtype,
    *,
    repeats: int = 5,
    rows: int = ROWS,
    now: Callable[[], float] = monotonic,
) -> MatmulSpeed:
    """Time products in the shapes of the model's linear layers, each by the faster of two
    implementations."""
    device = next(model.parameters()).device
    shapes = [m.weight.shape for m in model.modules() if isinstance(m, torch.nn.Linear)]
    seconds = flops = 0.0
    for outputs, inputs in set(shapes):
        count = shapes.count(torch.Size((outputs, inputs)))
        kind = {"dtype": dtype, "device": device}
        x, weight = torch.randn(rows, inputs, **kind), torch.randn(outputs, inputs, **kind)
        grad = torch.randn(rows, outputs, **kind)
        for alternatives in (
            (lambda x=x, w=weight: linear_forward(x, w), lambda x=x, w=weight: x @ w.t()),
            (
                lambda g=grad, w=weight: linear_input_grad(g, w),
                lambda g=grad, w=weight: g @ w,
            ),
            (lambda g=grad, x=x: linear_weight_grad(g, x), lambda g=grad, x=x: g.t() @ x),
        ):
            seconds += count * min(
                median(_seconds_of(product, device, now) for _ in range(repeats))
                for product in alternatives
            )
            flops += count * 2.0 * rows * inputs * outputs
    return MatmulSpeed(flops=flops / seconds, seconds=seconds)


def matmul_operations(parameters: int, trained: float, scored: float = 0.0) -> float:
    """Operations of the products for `trained` positions (forward and backward) and `scored`
    positions (forward only)."""
    return parameters * ((FORWARD + BACKWARD) * trained + FORWARD * scored)


def update_operations(model: Any, trained: Positions, scored: Positions) -> float:
    """Operations of the products of the model's linear layers for `trained` positions (forward and
    backward) and `scored` ones (forward only). Attention, adapters and embeddings are left out; the
    backward pass of a first layer needs no gradient of its inputs, which is counted all the same.
    """
    head = model.get_output_embeddings()
    operations = 0.0
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            size = module.in_features * module.out_features
            is_head = module is head
            passes = 3 if module.weight.requires_grad else 2
            operations += 2 * size * passes * trained.of(head=is_head)
            operations += 2 * size * scored.of(head=is_head)
    return operations


def _seconds_of(
    product: Callable[[], Any], device: torch.device, now: Callable[[], float]
) -> float:
    _synchronize(device)
    start = now()
    product()
    _synchronize(device)
    return now() - start


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One part of a step."""

    name: str  # without the names of the parts that contain it
    depth: int  # number of parts that contain it
    begins: float  # seconds after the start of the step, as if every part ran in one piece
    seconds: float


def bars(rows: Sequence[Mapping[str, float]]) -> list[Bar]:
    """Mean times over rows of metrics.jsonl, in the order of a step. A part's time outside its
    sub-parts is named "rest". Raises ValueError if no time was recorded."""
    if not rows or not any(name.startswith(TIME) for name in rows[0]):
        raise ValueError(f"{len(rows)} rows of metrics hold no time")
    names = {name for row in rows for name in row if name.startswith(TIME)}
    means = {name[len(TIME) :]: fmean(row.get(name, 0.0) for row in rows) for name in names}
    in_step = {name: s for name, s in means.items() if not name.startswith(BESIDE)}
    return _lay_out(in_step, "", 0, 0.0) + _concurrent_bars(means)


def waterfall(parts: Sequence[Bar], step: float) -> str:
    """A table with one bar per part: its position is the part's start, its length the duration."""
    lines = [f"{'part':<20}{'s':>8}{'share':>8}"]
    for bar in parts:
        begins, ends = (round(WIDTH * t / step) for t in (bar.begins, bar.begins + bar.seconds))
        drawn = " " * begins + "█" * max(ends - begins, 1 if bar.seconds else 0)
        label = "  " * bar.depth + bar.name
        lines.append(f"{label:<20}{bar.seconds:>8.3f}{bar.seconds / step:>7.1%}  {drawn}".rstrip())
    return "\n".join(lines)


def _lay_out(means: Mapping[str, float], parent: str, depth: int, begins: float) -> list[Bar]:
    children = {name: s for name, s in means.items() if name.rpartition("/")[0] == parent}
    laid_out, at = list[Bar](), begins
    for name in sorted(children, key=_rank):
        seconds = children[name]
        parts = _lay_out(means, name, depth + 1, at)
        laid_out.append(Bar(name=name.rpartition("/")[2], depth=depth, begins=at, seconds=seconds))
        laid_out += parts
        if parts:
            rest = seconds - sum(part.seconds for part in parts if part.depth == depth + 1)
            laid_out.append(
                Bar(name="rest", depth=depth + 1, begins=at + seconds - rest, seconds=rest)
            )
        at += seconds
    return laid_out


def _concurrent_bars(means: Mapping[str, float]) -> list[Bar]:
    """Work that overlapped with the step, such as sampling for the next one."""
    concurrent = {n[len(BESIDE) :]: s for n, s in means.items() if n.startswith(BESIDE)}
    laid_out, at = list[Bar](), 0.0
    for name in sorted(concurrent, key=_rank):
        laid_out.append(
            Bar(name=f"overlapping: {name}", depth=0, begins=at, seconds=concurrent[name])
        )
        at += concurrent[name]
    return laid_out


def _rank(name: str) -> tuple[int, str]:
    last = name.rpartition("/")[2]
    known = (*ORDER, *INSIDE)
    return (known.index(last) if last in known else len(known), last)
