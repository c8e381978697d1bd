"""Times the matrix products of a model, once for each input line: the bounds of `against_trl.py`.

    python benchmarks/bound_turns.py products MODEL '{"precision": "float32", "batch": 128}'

Each product of a linear layer is timed with as many positions as an update passes at once, and
those of a sampler's forward pass also with a batch of positions, by torch.mm and by oneDNN as
`pipeline/model/fused_layers.py` calls it. Times are of this process on its core (CPU seconds), so
other processes of the machine count only where they slow memory and caches. Answers each line with
one line of JSON: the seconds of each product by the faster library in this round, and the bytes
per second that memory was read at. See `grpo_turns.py` for the lines.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from grpo_turns import reply, wait_for_turn

ROWS = (1024, 8192)  # positions of a product, besides those of a batch: by the fastest
READ = 1 << 28  # bytes, more than the caches hold
REPEATS = 3  # of each product in a round


def products(model: Path, settings: Mapping[str, Any]) -> None:
    """Time all products for each line."""
    import publish  # noqa: F401  puts this checkout on the path
    import torch

    from veriloop.pipeline.model.prepare import DTYPES

    torch.set_num_threads(1)
    dtype = DTYPES[settings["precision"]]
    shapes = linear_shapes(model)
    memory = torch.zeros(READ // 4)
    while True:
        began = wait_for_turn()
        seconds = {
            f"{kind} {outputs} {inputs}": at
            for outputs, inputs in sorted(set(shapes))
            for kind, at in _of_a_layer(outputs, inputs, dtype, settings["batch"]).items()
        }
        read = READ / fastest([memory.sum, memory.max])
        reply(began, 0, products=seconds, read_bytes_s=read)


def linear_shapes(model: Path) -> list[tuple[int, int]]:
    """(outputs, inputs) of all linear layers of a checkpoint; the head is the last."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):
        empty = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model))
    layers = [m for m in empty.modules() if isinstance(m, torch.nn.Linear)]
    return [(layer.out_features, layer.in_features) for layer in layers]


def _of_a_layer(outputs: int, inputs: int, dtype: Any, batch: int) -> dict[str, float]:
    """Seconds for a position: of both passes of an update, and of a sampler's forward pass."""
    import torch

    from veriloop.pipeline.model.fused_layers import (
        linear_forward,
        linear_input_grad,
        linear_weight_grad,
    )

    weight = torch.randn(outputs, inputs, dtype=dtype)
    update, forward = list[float](), list[float]()
    for rows in (batch, *ROWS):
        x, grad = (torch.randn(rows, width, dtype=dtype) for width in (inputs, outputs))
        ways: tuple[list[Callable[[], Any]], ...] = (
            [lambda x=x: linear_forward(x, weight), lambda x=x: torch.mm(x, weight.t())],
            [lambda g=grad: linear_input_grad(g, weight), lambda g=grad: torch.mm(g, weight)],
            [
                lambda g=grad, x=x: linear_weight_grad(g, x),
                lambda g=grad, x=x: torch.mm(g.t(), x),
            ],
        )
        ahead, *back = (fastest(alternatives) / rows for alternatives in ways)
        forward.append(ahead)
        update.append(ahead + sum(back))
    return {"update": min(update), "sample": min(forward)}


def fastest(ways: Sequence[Callable[[], Any]]) -> float:
    """CPU seconds of the fastest of some calls that do the same."""
    return min(_cpu_s(way) for way in ways for _ in range(REPEATS))


def _cpu_s(call: Callable[[], Any]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


if __name__ == "__main__":
    {"products": products}[sys.argv[1]](Path(sys.argv[2]), json.loads(sys.argv[3]))
