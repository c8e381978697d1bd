"""Imports that stay until the process ends, without the garbage collector.

torch, transformers and vLLM make a million objects. Walking them while they are made takes a fifth
of the time that importing does, and every later collection would walk them again.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def lasting() -> Iterator[None]:
    """No collection inside; where a module was imported, what is there is never walked again."""
    before, enabled = len(sys.modules), gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > before:
            gc.freeze()
        if enabled:
            gc.enable()


def collect_all() -> None:
    """Collect what nothing reaches any more, what `lasting` set aside too: the trainer of a stage
    in which a library was imported would otherwise stay for good.

    Nothing is set aside again: a sampler that is there now may be closed before the process ends.
    """
    gc.unfreeze()
    gc.collect()
