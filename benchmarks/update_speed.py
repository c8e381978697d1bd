"""CPU seconds of one GRPO update, and the lower bound by its matrix products on this core.

    python benchmarks/update_speed.py [--quick] [--json FILE]

128 sequences of 20 prompt and 80 answer tokens on a Qwen2 with random weights, one thread. All
settings take turns, several times; medians of process time. `plain` is torch's own linear layers
and rows under a mask. The floor is 6 x parameters x positions over the speed of this run's own
products at the model's shapes, each by the faster library.
"""

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from grpo_steps import answers, qwen2, stepper
from publish import arguments, publish, table

from veriloop.pipeline.config.sections import TrainerConfig
from veriloop.pipeline.model.prepare import DTYPES
from veriloop.pipeline.offline import profile

SIZES: dict[str, dict[str, int]] = {
    "1 M": {
        "hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 4, "vocab_size": 2048,
        "num_attention_heads": 4, "num_key_value_heads": 2,
    },
    "10 M": {
        "hidden_size": 320, "intermediate_size": 1024, "num_hidden_layers": 6, "vocab_size": 4096,
        "num_attention_heads": 5, "num_key_value_heads": 5,
    },
}  # fmt: skip
SETTINGS = {
    "plain float32": TrainerConfig(fused=False, packed_attention=False),
    "float32": TrainerConfig(),
    "bfloat16": TrainerConfig(compute="bfloat16"),
}
COUNT, PROMPT, ANSWER = 128, 20, 80
REPEATS, QUICK = 3, 1
AIMS = {("1 M", "float32"): 2.0, ("10 M", "bfloat16"): 2.5}  # times the floor, at most


def cpu_s(call: Callable[[], Any]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


def floor_s(model: Any, dtype: torch.dtype, repeats: int) -> tuple[float, float]:
    """Least seconds of an update's products, and the GFLOP/s they ran at."""
    speed = profile.matmul_speed(model, dtype, repeats=repeats + 2, now=time.process_time)
    parameters = sum(p.numel() for p in model.parameters())
    positions = COUNT * (PROMPT + ANSWER - 1)
    return profile.matmul_operations(parameters, positions) / speed.flops, speed.flops / 1e9


def measured(size: str, repeats: int) -> list[dict[str, Any]]:
    """One row per setting; the settings take turns."""
    graded = answers(COUNT, PROMPT, ANSWER, SIZES[size]["vocab_size"])
    steps = {name: stepper(qwen2(**SIZES[size]), graded, t) for name, t in SETTINGS.items()}
    taken: dict[str, list[float]] = {name: [] for name in steps}
    losses = {name: step().loss for name, step in steps.items()}
    floors: dict[str, list[tuple[float, float]]] = {name: [] for name in DTYPES}
    model = qwen2(**SIZES[size])
    for _ in range(repeats):
        for name, step in steps.items():
            taken[name].append(cpu_s(step))
        for name, dtype in DTYPES.items():
            floors[name].append(floor_s(model, dtype, repeats))
    rows = []
    for name, trainer in SETTINGS.items():
        least, gflops = (statistics.median(x) for x in zip(*floors[trainer.compute], strict=True))
        median = statistics.median(taken[name])
        rows.append(
            {
                "model": size,
                "parameters": sum(p.numel() for p in model.parameters()),
                "setting": name,
                "cpu_s": median,
                "all_cpu_s": taken[name],
                "loss": losses[name],
                "gflops": gflops,
                "floor_s": least,
                "times_floor": median / least,
                "times_plain": statistics.median(taken["plain float32"]) / median,
            }
        )
    return rows


def main() -> int:
    options = arguments(__doc__ or "")
    torch.set_num_threads(1)
    sizes = ["1 M"] if options.quick else list(SIZES)
    rows = [row for s in sizes for row in measured(s, QUICK if options.quick else REPEATS)]
    shown = [
        [r["model"], r["setting"], r["cpu_s"], r["times_plain"], r["gflops"], r["floor_s"],
         r["times_floor"]]
        for r in rows
    ]  # fmt: skip
    header = ["parameters", "setting", "CPU s", "x plain", "GFLOP/s", "floor s", "x floor"]
    failed = [
        f"update of {r['model']} parameters in {r['setting']}: {r['times_floor']:.2f} x the floor, "
        f"aim {aim}"
        for r in rows
        if (aim := AIMS.get((r["model"], r["setting"]))) and r["times_floor"] > aim
    ]
    return publish(options, table(header, shown), rows, failed=failed)


if __name__ == "__main__":
    sys.exit(main())
