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
    """Collect what nothing reaches any more, what was there inside `lasting` too.

    A model that was there when vLLM was imported would otherwise stay for good.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
