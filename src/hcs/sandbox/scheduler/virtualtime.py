"""An event loop whose clock jumps: whole scenarios with back-offs and expiries run in milliseconds, always alike.

Whenever every task waits, the clock goes straight to the next timer. Programs that take their time from the loop
(``asyncio.sleep``, ``wait_for``, ``loop.time``) need no change. Only for programs in one process without sockets and
threads: nothing outside could keep up with such a clock.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")


BUSY_ROUNDS: Final = 100_000
"""Rounds of the loop at one moment of virtual time after which somebody must be running in a circle."""


class StuckError(RuntimeError):
    """The story cannot go on: every task waits for another and no timer is left, or one of them runs in a circle."""


class _JumpingSelector(selectors.DefaultSelector):
    """Reports what is ready without waiting, and moves the clock instead of sleeping."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self._rounds = 0.0, 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        if ready or timeout == 0:
            self._rounds += 1
            if self._rounds > BUSY_ROUNDS:
                self._rounds = 0  # the loop still has to end its tasks
                raise StuckError(f"{BUSY_ROUNDS} rounds went by at second {self.now:g}; something runs in a circle")
            return ready
        if timeout is None:
            raise StuckError("every task waits for another one and no timer is left")
        self.now += max(timeout, 0.0)
        self._rounds = 0
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop on virtual time, starting at 0."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Virtual seconds since the start."""
        return self._jumping.now


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run a scenario on virtual time.

    Raises:
        StuckError: it can never end.
    """
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
