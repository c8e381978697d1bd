"""The size of oneDNN's caches: it is set before torch is imported."""

import os

CAPACITY = "128"  # entries of each cache, instead of 1,024
# Compiled products, in oneDNN; their descriptions, in ideep, through which torch calls oneDNN.
VARIABLES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")


def limit_caches() -> None:
    """Set the capacity of both caches, unless the environment does.

    oneDNN compiles a matrix product for every number of positions, and RL has another number in
    almost every pass, so full caches are many small blocks all over the heap. The memory freed
    between them cannot be joined, and allocations search its pieces. The capacity changes no
    result: a product that has left the cache is compiled again.
    """
    for variable in VARIABLES:
        os.environ.setdefault(variable, CAPACITY)
