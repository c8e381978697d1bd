"""A bound on the CPU time of a block that holds on slow and busy hosts."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

REFERENCE_S = 0.02  # `_calibrate()` on the host where the budgets were set
SLACK = 4.0  # code that is not linear exceeds its budget by a hundred times


def _calibrate() -> float:
    """Return the CPU seconds of a fixed amount of interpreter work."""
    began = time.process_time()
    sum(len(str(number)) for number in range(150_000))
    return time.process_time() - began


@contextmanager
def cpu_budget(seconds: float) -> Iterator[None]:
    """Fail when the block takes more CPU than `seconds`, scaled to the speed of this host."""
    began = time.process_time()
    yield
    used = time.process_time() - began
    limit = SLACK * seconds
    if used >= limit:  # only then does it matter how slow the host is
        limit *= max(1.0, *(_calibrate() / REFERENCE_S for _ in range(3)))
    assert used < limit, f"{used:.2f} CPU seconds, allowed {limit:.2f}"
