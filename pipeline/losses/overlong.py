"""A soft edge before the length limit, so that nearly-too-long is not judged like far-too-long."""

from torch import Tensor


def soft_overlong_penalty(lengths_N: Tensor, *, limit: int, cache: int) -> Tensor:
    """0 up to limit - cache tokens, then falling linearly to -1 at limit: DAPO, eq. 13
    (arXiv 2503.14476).

    `lengths_N` counts response tokens, int64; the result is float32, unitless, to be added to
    the reward. Raises ValueError unless 0 < cache <= limit.
    """
    if not 0 < cache <= limit:
        raise ValueError(f"cache must lie in [1, limit={limit}] tokens, got {cache}")
    return -((lengths_N - (limit - cache)) / cache).clamp(0, 1)
