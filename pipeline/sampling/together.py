"""Coroutines of one event loop that run at once and end at once."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

Result = TypeVar("Result")


async def gathered(calls: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
    """The results in order. If one fails, the others end before its error is raised: a connection
    that closes under them would count as a fault of their server."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
