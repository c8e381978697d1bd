"""A soft edge before the length limit, so that nearly-too-long is not judged like far-too-long."""

import torch
from torch import Tensor

from verifiers.length import soft_overlong


def soft_overlong_penalty(lengths_N: Tensor, *, limit: int, cache: int) -> Tensor:
    """DAPO's penalty of each length, by verifiers.length.soft_overlong.

    `lengths_N` counts response tokens, int64, in any shape; the result is float32, unitless, to be
    added to the reward. Raises ValueError unless 0 < cache <= limit.
    """
    lengths = lengths_N.flatten().tolist()
    made = [soft_overlong(length, limit=limit, cache=cache) for length in lengths]
    return torch.tensor(made).reshape(lengths_N.shape)
