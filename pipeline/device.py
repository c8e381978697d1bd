"""Where models compute, the processor or a card, and how what they read is brought there.

A model is put there when it is prepared (`pipeline/compute.py`); batches are assembled on the
processor, and one at a time follows the model that reads it.
"""

from dataclasses import fields, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from pipeline.failures import RecipeError

CPU = torch.device("cpu")
BFLOAT16 = (8, 0)  # compute capability from which a card multiplies it
Record = TypeVar("Record")


def chosen(asked: str) -> torch.device:
    """The device that `trainer.device` means on this machine; CUDA's own choice is set to it.

    `auto` is the first card where torch sees one, else the processor. Raises RecipeError for a
    card that is asked for and not here.
    """
    cards = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if asked == "cpu" or (asked == "auto" and not cards):
        return CPU
    index = int(asked.partition(":")[2] or 0)
    if index >= cards:
        raise RecipeError(f"trainer.device={asked}: {_found(cards)}; auto and cpu work here")
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


def told(device: torch.device) -> str:
    """The device in words, for who reads along."""
    if device.type == "cpu":
        return f"the processor, {torch.get_num_threads()} threads"
    card = torch.cuda.get_device_properties(device)
    return f"{device} ({card.name}, {card.total_memory / 2**30:.0f} GiB)"


def require_bfloat16(device: torch.device) -> None:
    """Raise RecipeError for a card without products in bfloat16."""
    if device.type != "cuda":
        return
    found = torch.cuda.get_device_capability(device)
    if found < BFLOAT16:
        raise RecipeError(
            f"trainer.compute=bfloat16: {told(device)} has compute capability {found[0]}."
            f"{found[1]}, bfloat16 needs {BFLOAT16[0]}.{BFLOAT16[1]}; set float32"
        )


def device_of(model: Any) -> torch.device:
    """Where the weights of a model lie."""
    return next(model.parameters()).device


def brought(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on `device`; to a card through pinned memory, and without waiting for it."""
    if tensor.device == device:
        return tensor
    if tensor.device == CPU:
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def onto(record: Record, device: torch.device) -> Record:
    """A record of the same values, its tensors on `device`."""
    held = {one.name: getattr(record, one.name) for one in fields(record)}  # type: ignore[arg-type]
    moved = {
        name: brought(value, device)
        for name, value in held.items()
        if isinstance(value, Tensor) and value.device != device
    }
    return replace(record, **moved) if moved else record  # type: ignore[type-var]


def give_back_unused() -> None:
    """Let other users of the card have what this process has freed there."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def _found(cards: int) -> str:
    if torch.version.cuda is None:
        return f"this torch ({torch.__version__}) is built without CUDA"
    if not cards:
        return f"torch is built for CUDA {torch.version.cuda} and sees no card"
    names = ", ".join(f"cuda:{i} ({torch.cuda.get_device_name(i)})" for i in range(cards))
    return f"here are {names}"
