"""Waiting for what no event tells of, such as a file that another process writes."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable

SECONDS = 60.0
"""A safety net, wide enough for a busy machine; nothing is decided by it."""


async def until(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    """Look again and again until a condition holds.

    Raises:
        TimeoutError: it does not within :data:`SECONDS`.
    """
    async with asyncio.timeout(SECONDS):
        while True:
            found = condition()
            if await found if inspect.isawaitable(found) else found:
                return
            await asyncio.sleep(0.01)
