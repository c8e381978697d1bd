"""Imports that stay until the process ends, without the garbage collector.

torch, transformers and vLLM make a million objects. Walking them while they are made takes a fifth
of the time that importing does, and every later collection would walk them again.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_freezes = 0  # by `lasting`, in this process


@contextmanager
def lasting() -> Iterator[None]:
    """No collection inside; where a module was imported, what is there is never walked again."""
    global _freezes
    before, enabled = len(sys.modules), gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > before:
            gc.freeze()
            _freezes += 1
        if enabled:
            gc.enable()


@contextmanager
def collecting() -> Iterator[None]:
    """Collect garbage at the end, including what `lasting` set aside inside: otherwise the trainer
    of a stage in which a library was imported would stay for good.

    What was unfrozen is not set aside again: a sampler that is there now may be closed before the
    process ends.
    """
    before = _freezes
    yield
    if _freezes > before:
        gc.unfreeze()
    gc.collect()
