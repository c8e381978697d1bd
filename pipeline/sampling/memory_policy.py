"""The memory policy of a thread: on which NUMA nodes its memory is allocated (set_mempolicy(2))."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

_WORDS = 16  # of the mask of nodes, 64 each: as many nodes as a kernel knows


@contextmanager
def memory_policy_kept() -> Iterator[None]:
    """The policy of this thread is after the block what it was before.

    Without libnuma, or on a kernel without nodes, nothing can have changed it.
    """
    try:
        libnuma = ctypes.CDLL("libnuma.so.1")
    except OSError:
        yield
        return
    mode, nodes = ctypes.c_int(), (ctypes.c_ulong * _WORDS)()
    bits = ctypes.c_ulong(8 * ctypes.sizeof(nodes))
    known = libnuma.get_mempolicy(ctypes.byref(mode), nodes, bits, None, ctypes.c_ulong()) == 0
    try:
        yield
    finally:
        if known:
            libnuma.set_mempolicy(mode, nodes if any(nodes) else None, bits)
