"""The most memory that torch's allocator had given out while something ran."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from torch.profiler import ProfilerActivity, profile


def memory_peak(work: Callable[[], Any]) -> int:
    """Bytes beyond those given out before. What was given out before and is freed meanwhile, such
    as the garbage of an earlier test, does not count."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        work()
    tree = cast(Any, seen.profiler).kineto_results.experimental_event_tree()
    events = [event for event in _all(tree) if event.name == "[memory]"]
    given: dict[int, int] = {}
    held = highest = 0
    for event in sorted(events, key=lambda event: event.start_time_ns):
        block, size = event.extra_fields.ptr, event.extra_fields.alloc_size
        if size > 0:
            given[block] = size
            held += size
        else:
            held -= given.pop(block, 0)
        highest = max(highest, held)
    return highest


def _all(events: Iterable[Any]) -> Iterator[Any]:
    for event in events:
        yield event
        yield from _all(event.children)
