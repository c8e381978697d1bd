"""How many compiled products oneDNN keeps: it is set before torch is imported."""

import os

KEPT = "128"  # instead of 1,024
# Of primitives, by oneDNN; of their descriptions, by ideep, through which torch calls oneDNN.
VARIABLES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")


def choose_kept() -> None:
    """Set how many are kept, unless the environment says it.

    oneDNN compiles a product for every number of positions, and RL has another number in almost
    every pass. What is kept of each are dozens of small blocks, between which freed memory stays
    in pieces: later stages of the process search them at each allocation. Compiling takes less
    than a millisecond. The choice changes no result.
    """
    for variable in VARIABLES:
        os.environ.setdefault(variable, KEPT)
