"""The clusters by name, as they come and go while everything runs.

Told the list anew, it starts what is new, stops what is gone, and starts anew what changed; what is the same goes on
undisturbed. Each cluster is a task of its own: one that hangs keeps nobody else waiting.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from hcs.cpn.collect.cluster import LiveCluster, Timing
from hcs.cpn.collect.connection import Site, same_site
from hcs.cpn.collect.sources import load_sources
from hcs.cpn.views import Cluster

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 2.0


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What may be set about collecting. ``metrics_file`` is a site's own file of names of metrics; see
    :func:`~hcs.cpn.collect.sources.load_sources`."""

    timing: Timing | None = None
    metrics_file: str = ""

    def arguments(self) -> dict[str, Any]:
        """For every cluster; what is not set is left to it.

        Raises:
            RefusedError: ``BadMetricsFile``.
        """
        chosen: dict[str, Any] = {} if self.timing is None else {"timing": self.timing}
        if self.metrics_file:
            chosen["sources"] = load_sources(Path(self.metrics_file).expanduser())
        return chosen


class Registry:
    """All clusters. Use it as ``async with registry:`` or call :meth:`close` at the end."""

    def __init__(
        self, make: Callable[..., LiveCluster] = LiveCluster, *, queue: str | None = None, **settings: Any
    ) -> None:
        """Make an empty one.

        Args:
            make: makes a cluster of its site.
            queue: the id of our queue, by which our Jobs are told from those of others.
            settings: handed to every cluster, see :class:`~hcs.cpn.collect.cluster.LiveCluster`.
        """
        self._make, self._queue, self._settings = make, queue, settings
        self._live: dict[str, tuple[LiveCluster, asyncio.Task[None]]] = {}
        self._handlers: list[Callable[[str], None]] = []
        self._applying = asyncio.Lock()

    def clusters(self) -> dict[str, Cluster]:
        """Those of now, by name, in the order of names."""
        return {name: self._live[name][0] for name in sorted(self._live)}

    def live(self) -> dict[str, LiveCluster]:
        """The same, with what only the collectors know."""
        return {name: self._live[name][0] for name in sorted(self._live)}

    def on_change(self, handler: Callable[[str], None]) -> None:
        """Call with a cluster's name whenever it came, went, or looks different; must not block."""
        self._handlers.append(handler)

    async def apply(self, sites: Iterable[Site]) -> None:
        """Make the clusters be these. Of two with one name the last counts."""
        async with self._applying:
            wanted = {site.name: site for site in sites}
            gone = [
                name
                for name, (cluster, _) in self._live.items()
                if name not in wanted or not same_site(wanted[name], cluster.site)
            ]
            await self._stop(gone)
            for name, site in wanted.items():
                if name not in self._live:
                    cluster = self._make(site, queue=self._queue, on_change=self._tell, **self._settings)
                    task = asyncio.create_task(self._keep(cluster), name=f"cluster {name}")
                    self._live[name] = cluster, task
                    log.info("cluster added: cluster=%s", name)
                    self._tell(name)
            for name in gone:
                if name not in wanted:
                    self._tell(name)

    async def follow(self, read: Callable[[], Iterable[Site]], every: float = LOOK_SECONDS) -> None:
        """Look at a list again and again, until cancelled. A list that cannot be read leaves everything as it is."""
        failed = False
        while True:
            try:
                sites = list(read())
            except Exception as error:
                if not failed:
                    log.warning("list of clusters not readable: error=%r", error)
                failed = True
            else:
                failed = False
                await self.apply(sites)
            await asyncio.sleep(every)

    async def close(self) -> None:
        """Stop all, and wait until their connections are closed."""
        async with self._applying:
            await self._stop(list(self._live))

    async def __aenter__(self) -> "Registry":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _stop(self, names: Iterable[str]) -> None:
        tasks = []
        for name in names:
            _, task = self._live.pop(name)
            task.cancel()
            tasks.append(task)
            log.info("cluster removed: cluster=%s", name)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep(self, cluster: LiveCluster) -> None:
        """Run one; a fault of ours in it ends neither the others nor itself for good."""
        while True:
            try:
                await cluster.run()
            except Exception:
                log.exception("cluster failed: cluster=%s", cluster.name)
            await asyncio.sleep(LOOK_SECONDS)

    def _tell(self, name: str) -> None:
        for handler in self._handlers:
            try:
                handler(name)
            except Exception:
                log.exception("handler failed: cluster=%s", name)


@contextlib.asynccontextmanager
async def watching(sites: Iterable[Site], **settings: Any) -> AsyncIterator[Registry]:
    """A registry of these clusters, stopped at the end."""
    async with Registry(**settings) as registry:
        await registry.apply(sites)
        yield registry
