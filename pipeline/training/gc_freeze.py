"""Imports that stay until the process ends without the garbage collector, and seldom collections
while many objects are open.

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


SELDOM = 1000  # collections of the middle generation between two full ones; Python's default is 10


@contextmanager
def seldom_full() -> Iterator[None]:
    """Full collections are rare inside. Thousands of open requests are alive at each of them, so a
    walk finds nothing and takes longer the more there are."""
    young, middle, old = gc.get_threshold()
    gc.set_threshold(young, middle, max(old, SELDOM))
    try:
        yield
    finally:
        gc.set_threshold(young, middle, old)
