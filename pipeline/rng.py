"""The state of every random generator of this process, to take a run up where it stopped."""

import random
from collections.abc import Mapping
from random import Random
from typing import Any

import numpy as np
import torch


def of_turn(purpose: str, seed: int, step: int) -> Random:
    """The generator of one purpose in a turn of the loop: the same in whatever process it runs."""
    return Random(f"{purpose}/{seed}/{step}")


def capture() -> dict[str, Any]:
    """State of python's `random`, numpy's global generator, and torch on CPU and this GPU.

    Holds only tensors, numbers, strings, tuples and dicts, so `torch.load(weights_only=True)`
    reads it back. "cuda" is the current device's state, None without CUDA.
    """
    numpy = np.random.get_state(legacy=False)
    return {
        "python": random.getstate(),
        "numpy": {
            "generator": str(numpy["bit_generator"]),
            "key": torch.tensor(numpy["state"]["key"].tolist(), dtype=torch.int64),  # uint32 [624]
            "position": int(numpy["state"]["pos"]),
            "has_gauss": int(numpy["has_gauss"]),
            "gauss": float(numpy["gauss"]),
        },
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
    }


def restore(state: Mapping[str, Any]) -> None:
    """Put every generator back. Raises ValueError when a part is missing.

    A state captured without CUDA leaves a GPU's generator alone, and one captured with CUDA goes
    back without it where there is none: what a run draws it draws from the others.
    """
    missing = sorted({"python", "numpy", "torch", "cuda"} - state.keys())
    if missing:
        raise ValueError(f"generator state lacks {missing}; it has {sorted(state)}")
    version, internal, gauss_next = state["python"]
    random.setstate((version, tuple(internal), gauss_next))
    numpy = state["numpy"]
    key = np.array(numpy["key"].tolist(), dtype=np.uint32)
    np.random.set_state(
        (numpy["generator"], key, numpy["position"], numpy["has_gauss"], numpy["gauss"])
    )
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
