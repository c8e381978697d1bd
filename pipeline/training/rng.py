"""Seeds, saves and restores the state of all random generators of this process."""

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def seed(number: int) -> None:
    """Seed every generator, so that a user's functions are reproducible whichever they use."""
    random.seed(number)
    np.random.seed(number % 2**32)
    torch.manual_seed(number)


@contextmanager
def seeded(number: int) -> Iterator[None]:
    """Every generator begins with this seed in the block, and goes on after it as before."""
    before = capture()
    seed(number)
    try:
        yield
    finally:
        restore(before)


def capture() -> dict[str, Any]:
    """State of python's `random`, numpy's global generator, and torch on CPU and this GPU.

    Holds only tensors, numbers, strings, tuples and dicts, so `torch.load(weights_only=True)`
    reads it back. "cuda" is the current device's state, None where this process does not use it.
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
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None,
    }


def restore(state: Mapping[str, Any]) -> None:
    """Restore every generator. Raises ValueError if a part is missing.

    The CUDA generator is restored only if the state has one and a GPU is present; training draws
    from the other generators.
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
