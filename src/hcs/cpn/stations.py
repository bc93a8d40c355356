"""The clusters that are connected now: one station each, made and let go as clusters come, change and go."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import msgspec

from hcs.cpn.jobmanifest import Overlay
from hcs.cpn.views import Cluster
from hcs.cpn.watching import Station
from hcs.kube.connection import ApiUnreachableError
from hcs.store.clusters import ClusterConfig
from hcs.store.queue import QueueStore
from hcs.wide.jobs import Milliseconds
from hcs.wide.lifecycle import PLACED

log = logging.getLogger(__name__)


class Clusters(Protocol):
    """Those who come and go; :mod:`hcs.cpn.collect` is the real one."""

    def clusters(self) -> Mapping[str, Cluster]:
        """Those of now, by name."""
        ...


class Stations:
    """See the module. Iterating gives the stations of now."""

    def __init__(self, store: QueueStore, clusters: Clusters, wake: Callable[[str], None]) -> None:
        """
        Args:
            store: the queue, which also keeps what was said about each cluster.
            clusters: the live clusters.
            wake: called with the id of an entry of which something changed.
        """
        self._store, self._clusters, self._wake = store, clusters, wake
        self._stations: dict[str, tuple[Station, asyncio.Task[None]]] = {}
        self._configs: dict[str, ClusterConfig] = {}
        self.looked = False
        """Whether what runs was looked at since this process began to act."""
        self.read()

    def __iter__(self) -> Iterator[Station]:
        return iter([station for station, _ in self._stations.values()])

    def read(self) -> None:
        """Read anew what is said about the clusters."""
        self._configs = {config.name: config for config in self._store.clusters()}

    def meet(self) -> None:
        """Connect to clusters that came, let go of those that went."""
        self._spend_words()
        present = {}
        for name, cluster in self._clusters.clusters().items():
            with contextlib.suppress(ApiUnreachableError):
                present[name] = cluster, cluster.client
        for name, (station, task) in list(self._stations.items()):
            if present.get(name) != (station.cluster, station.client) or self._built_from(name) != station.built_from:
                task.cancel()
                del self._stations[name]
                self._wake_all(name)
        for name, (cluster, _) in present.items():
            if name not in self._stations:
                self._connect(name, cluster)

    @property
    def synced(self) -> bool:
        """Whether all that runs has been seen, on every cluster there should be."""
        names = {*self._configs, *self._clusters.clusters()}
        return all((station := self.get(name)) is not None and station.synced for name in names)

    def names(self) -> set[str]:
        """Of all that are connected."""
        return set(self._stations)

    async def close(self) -> None:
        """Let go of all."""
        tasks = [task for _, task in self._stations.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def get(self, name: str) -> Station | None:
        """The station of a cluster; None while there is none."""
        found = self._stations.get(name)
        return found[0] if found else None

    def gone(self, name: str) -> bool:
        """Whether a cluster is out of reach and its operator vouches that nothing runs there any more."""
        config, cluster = self._configs.get(name), self._clusters.clusters().get(name)
        # At the start nobody has answered yet: a word of long ago must not run again what runs there since.
        silent = self.looked and (cluster is None or not cluster.view().reachable)
        return config is not None and config.gone and silent

    def all_gone(self) -> frozenset[str]:
        """All clusters of which that is so."""
        return frozenset(name for name in self._configs if self.gone(name))

    def _connect(self, name: str, cluster: Cluster) -> None:
        overlay, blobs, lost_after = self._built_from(name)
        station = Station(
            cluster, self._store.queue_id, changed=self._wake, overlay=overlay, blobs=blobs, lost_after=lost_after
        )
        self._stations[name] = station, asyncio.create_task(station.run())
        self._wake_all(name)

    def _wake_all(self, name: str) -> None:
        for entry in self._store.entries(PLACED):
            if entry.placement is not None and entry.placement.cluster == name:
                self._wake(entry.id)

    def _spend_words(self) -> None:
        """A cluster that was given up and answers again is one as any other: its next silence is no loss."""
        for config in list(self._configs.values()):
            cluster = self._clusters.clusters().get(config.name) if config.gone else None
            if cluster is not None and cluster.view().reachable:
                log.info("a cluster that was gone is back: cluster=%s", config.name)
                self._store.put_cluster(msgspec.structs.replace(config, gone=False))

    def _built_from(self, name: str) -> tuple[Overlay, str, Milliseconds | None]:
        config = self._configs.get(name)
        if config is None:
            return Overlay(), "", None
        try:
            overlay = msgspec.convert(config.overlay, Overlay)
        except msgspec.ValidationError as error:
            log.error("overlay not understood, used without it: cluster=%s error=%s", name, error)
            overlay = Overlay()
        return overlay, config.blobs, config.lost_after
