"""The most memory that torch's allocator had given out while something ran."""

from collections.abc import Callable
from typing import Any, cast

from torch.profiler import ProfilerActivity, profile


def memory_peak(work: Callable[[], Any]) -> int:
    """Bytes beyond those given out before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        work()
    held, highest, profiler = 0, 0, cast(Any, seen.profiler)
    events = [e for e in profiler.kineto_results.events() if e.name() == "[memory]"]
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        highest = max(highest, held)
    return highest
