"""The metrics of one cluster, asked for in rounds, for as long as the cluster is watched.

A round that fails changes nothing but a sentence: the last figures stay, and grow older, until they say nothing any
more. Every cluster asks by itself and with a deadline, so one that hangs keeps no other waiting.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from hcs.cpn.collect.figures import Bounds, Figures, ask
from hcs.cpn.collect.prometheus import Address, Prometheus, QueryError
from hcs.cpn.collect.sources import Source
from hcs.wide.jobs import Milliseconds

log = logging.getLogger(__name__)

_MOST_JOBS: Final = 100


class MetricsState:
    """The newest figures of one Prometheus."""

    def __init__(
        self,
        make: Callable[[], Prometheus],
        sources: Sequence[Source],
        *,
        bounds: Bounds,
        now: Callable[[], Milliseconds],
        changed: Callable[[], None],
        noted: Callable[[str, float], None] = lambda reason, seconds: None,
        pause: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        """Prepare; nothing is asked before :meth:`run`.

        Args:
            make: makes the client; it may refuse an address that cannot be one.
            sources: the tables of exporters.
            bounds: how often, and what is too old.
            now: the wall clock.
            changed: called after every round; must not block.
            noted: told of each round: the reason of its failure, empty if it succeeded, and how long it took.
            pause: how to wait.
        """
        self._make, self._sources, self._bounds, self._now = make, sources, bounds, now
        self._changed, self._noted, self._pause = changed, noted, pause
        self._jobs: frozenset[str] = frozenset()
        self.figures = Figures()
        self.asked: Milliseconds | None = None
        """When the question was put to which ``figures`` is the answer; None before the first answer."""
        self.failure = ""
        """Why the last round failed, as a sentence; empty if it did not."""

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            try:
                prometheus = self._make()
            except QueryError as error:
                self._fail(error, 0.0)
            else:
                try:
                    await self._rounds(prometheus)
                finally:
                    await prometheus.close()
            await self._pause(self._bounds.every)

    async def _rounds(self, prometheus: Prometheus) -> None:
        """Ask with one client until it turns out to be of no use, such as for a certificate that was renewed."""
        while True:
            begun, clock = self._now(), time.perf_counter()
            try:
                figures = await ask(prometheus, self._sources, self._bounds, self._jobs)
            except QueryError as error:
                self._fail(error, time.perf_counter() - clock)
                return
            except Exception as error:  # a fault of ours shall cost figures and nothing else
                log.exception("metrics not read: server=%s", prometheus.shown)
                failure = QueryError(
                    "MetricsNotRead", f"Prometheus at {prometheus.shown} was not understood: {error!r}"
                )
                self._fail(failure, time.perf_counter() - clock)
                return
            self._jobs = frozenset(sorted(self._jobs | figures.jobs)[:_MOST_JOBS])
            self.figures, self.asked, self.failure = figures, begun, ""
            self._noted("", time.perf_counter() - clock)
            self._changed()
            await self._pause(self._bounds.every)

    def _fail(self, error: QueryError, seconds: float) -> None:
        self.failure = error.refusal.message
        self._noted(error.refusal.reason, seconds)
        self._changed()


def prometheus_of(address: Address, deadline: float) -> Callable[[], Prometheus]:
    """Makes clients of one server."""
    return lambda: Prometheus(address, deadline=deadline)
