"""Bytes that the models of an algorithm take, by their role. Activations are not in it."""

from difflib import get_close_matches
from typing import Literal

from pipeline.failures import RecipeError
from pipeline.presets import Model

Dtype = Literal["float32", "bf16"]
WEIGHT_BYTES: dict[str, int] = {"float32": 4, "bf16": 2}
# Beside the weights, for each trained parameter: a gradient in the weights' type, the optimizer's
# moments in float32, and a float32 copy of the weights where they are kept in less.
MOMENT_BYTES: dict[str, int] = {"adamw": 8, "adamw8bit": 2, "muon": 4, "sgd": 0}
_UNITS = {"K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
TRAINED: tuple[Model, ...] = ("policy", "critic")


def bytes_per_parameter(model: Model, dtype: str, optimizer: str) -> int:
    """What one parameter of a model in this role takes, in bytes."""
    weight = WEIGHT_BYTES[_known("dtype", dtype, WEIGHT_BYTES)]
    moments = MOMENT_BYTES[_known("optimizer", optimizer, MOMENT_BYTES)]
    if model not in TRAINED:
        return weight
    return weight + weight + moments + (0 if weight == 4 else 4)


def parameters(size: str) -> int:
    """`7B`, `500M` or a plain number as a count. Raises RecipeError for anything else."""
    digits, unit = (size[:-1], size[-1].upper()) if size[-1:].isalpha() else (size, "")
    try:
        count = float(digits) * _UNITS.get(unit, 1)
    except ValueError:
        count = 0.0
    if count < 1 or (unit and unit not in _UNITS):
        raise RecipeError(
            f"--model-size {size!r} is no number of parameters; such as 7B, 500M or 500000"
        )
    return round(count)


def _known(what: str, name: str, allowed: dict[str, int]) -> str:
    if name in allowed:
        return name
    close = get_close_matches(name, allowed, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise RecipeError(f"no {what} {name!r}.{hint} Known: {', '.join(allowed)}")
