"""Takes entries on, one step at a time: many entries at once, never one entry twice.

A step is asked for whenever something about an entry changed, as often as one likes; what is asked for while a step
runs is done once more afterwards. A step says itself when it wants to be looked at again. One that raises is tried
again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

log = logging.getLogger(__name__)

Step = Callable[[str], Awaitable[float | None]]
"""Takes an entry one step on; returns seconds until the next look, or None: when something changes."""
AFTER_ERROR: Final = 5.0


class Stepper:
    """The line of entries to be looked at."""

    def __init__(self, step: Step, *, workers: int = 16) -> None:
        self._step, self._count = step, workers
        self._ready: dict[str, None] = {}
        self._active: set[str] = set()
        self._again: set[str] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._wake = asyncio.Event()

    def wake(self, id: str) -> None:
        """Look at an entry now."""
        if (timer := self._timers.pop(id, None)) is not None:
            timer.cancel()
        if id in self._active:
            self._again.add(id)
        else:
            self._ready[id] = None
            self._wake.set()

    @property
    def idle(self) -> bool:
        """Nothing is being done and nothing is due now."""
        return not self._ready and not self._active

    async def run(self) -> None:
        """Serve until cancelled; steps under way are cancelled too."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._count):
                    group.create_task(self._work())
        finally:
            for timer in self._timers.values():
                timer.cancel()
            self._timers.clear()

    async def _work(self) -> None:
        while True:
            while not self._ready:
                self._wake.clear()
                await self._wake.wait()
            id = next(iter(self._ready))
            del self._ready[id]
            self._active.add(id)
            try:
                again = await self._step(id)
            except asyncio.CancelledError:
                raise
            except Exception:
                log.exception("a step failed and is tried again: entry=%s", id)
                again = AFTER_ERROR
            finally:
                self._active.discard(id)
            if id in self._again:
                self._again.discard(id)
                self.wake(id)
            elif again is not None:
                self._timers[id] = asyncio.get_running_loop().call_later(again, self._due, id)

    def _due(self, id: str) -> None:
        self._timers.pop(id, None)
        self.wake(id)
