"""Where the time of an update goes: by part, by kind of kernel, and in the output head."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from publish import table
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from veriloop.pipeline.config.sections import TrainerConfig
from veriloop.pipeline.model.policy import score_hidden
from veriloop.pipeline.training.measurements import Clock

KINDS = {  # of kernels, and on a processor of operations, by parts of their names
    "attention": ("flash", "varlen", "attention", "fmha"),
    "optimizer": ("adam", "multi_tensor", "foreach"),
    "matrix products": ("gemm", "nvjet", "cutlass", "xmma", "mm", "linear", "matmul"),
    "compiled": ("triton",),
    "copies": ("memcpy", "memset", "copy"),
}
PARTS = ("forward", "backward", "optimizer")


def kind_of(name: str) -> str:
    """The first kind with a part of this name."""
    lowered = name.lower()
    found = (kind for kind, parts in KINDS.items() if any(part in lowered for part in parts))
    return next(found, "other")


def by_part(step: Callable[[], Any]) -> dict[str, float]:
    """Seconds of a step's parts; the device finishes each before the next begins."""
    clock = Clock(exact=True)
    with clock("update"):
        step()
    seconds = {part: clock.seconds.get(f"update/{part}", 0.0) for part in PARTS}
    return seconds | {"rest": clock.total() - sum(seconds.values())}


def by_kind(step: Callable[[], Any], device: str, seconds: float) -> dict[str, float]:
    """Seconds of a step in each kind of kernel; what the device was idle in `seconds`, the time of
    a step that is not profiled."""
    on_gpu = device != "cpu"
    activity = ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU
    with profile(activities=[activity]) as seen:
        step()
        if on_gpu:
            torch.cuda.synchronize()
    totals = dict.fromkeys([*KINDS, "other"], 0.0)
    for event in seen.key_averages():
        if not on_gpu:
            totals[kind_of(event.key)] += event.self_cpu_time_total / 1e6
        elif event.device_type == DeviceType.CUDA:
            totals[kind_of(event.key)] += event.self_device_time_total / 1e6
    return totals | {"idle": max(0.0, seconds - sum(totals.values()))}


def head(model: Any, trainer: TrainerConfig, positions: int) -> Callable[[], None]:
    """Both passes of the output head alone on so many positions."""
    weight_VD = model.get_output_embeddings().weight
    options = {"device": weight_VD.device, "dtype": torch.bfloat16, "requires_grad": True}
    hidden_MD = torch.randn(positions, weight_VD.shape[1], **options)
    targets_M = torch.randint(len(weight_VD), (positions,), device=weight_VD.device)

    def passes() -> None:
        logp_M, _ = score_hidden(
            model, hidden_MD, targets_M, temperature=1.0, chunk=trainer.logits_chunk
        )
        logp_M.sum().backward()
        model.zero_grad()

    return passes


def shown(name: str, one: Mapping[str, Any]) -> str:
    """The tables of one update."""
    whole = one["seconds"]
    rows = [["matrix products and attention at the roof", one["roof_s"]]]
    rows += [[f"part: {part}", seconds] for part, seconds in one["parts"].items()]
    rows += [["output head, both passes", one["head_s"]]]
    rows += [[f"kernels: {kind}", seconds] for kind, seconds in one["kinds"].items()]
    shares = [[what, seconds, f"{seconds / whole:.1%}"] for what, seconds in rows]
    return table([f"update of {name}", "s", "share"], [*shares, ["whole", whole, "100.0%"]])
