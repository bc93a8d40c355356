"""The controller's parts put together, as the program runs them and as tests do.

One process: the queue's file, the collectors of every cluster, the mover of bytes, the loop that decides, and the lease
that says whether it may act. Everything that runs beside the HTTP server is in :meth:`Parts.tasks`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from hcs.cpn.collect.cluster import LiveCluster
from hcs.cpn.collect.meters import ClusterMeters
from hcs.cpn.collect.registry import Registry
from hcs.cpn.collect.registry import Settings as Collecting
from hcs.cpn.controller import Controller
from hcs.cpn.controller import Settings as Controlling
from hcs.cpn.forecasts import Forecasts
from hcs.cpn.learning import Learner, restored, trained_before
from hcs.cpn.learning import Settings as Learning
from hcs.cpn.leases import Leadership
from hcs.cpn.tables import load_messages
from hcs.cpn.transfers import RATES, Mover
from hcs.cpn.transfers import Settings as Moving
from hcs.store.queue import QueueStore
from hcs.wide.jobs import Milliseconds
from hcs.wide.network import Link
from hcs.wide.planner import Planner
from hcs.wide.planner import Settings as Planning


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that may be set, as in the ``--config`` file.

    ``stores`` are stores of bytes that belong to no cluster: the address of each by its place.
    """

    controller: Controlling = Controlling()
    learning: Learning = Learning()
    transfers: Moving = Moving()
    planning: Planning = Planning()
    collecting: Collecting = Collecting()
    stores: dict[str, str] = {}


def wall_clock() -> Milliseconds:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class Parts:
    """A controller and what it needs; see the module."""

    def __init__(
        self,
        store: QueueStore,
        *,
        settings: Settings | None = None,
        trained: bytes | None = None,
        token: str = "",
        leadership: Leadership | None = None,
        metrics: CollectorRegistry | None = None,
        offload: Callable[[Callable[[], Any]], Awaitable[Any]] = asyncio.to_thread,
        now: Callable[[], Milliseconds] = wall_clock,
        make_cluster: Callable[..., LiveCluster] = LiveCluster,
    ) -> None:
        """
        Args:
            store: the queue, opened as its writer.
            settings: what may be set.
            trained: a predictor file whose runs count beside the queue's own, from now on.
            token: what the stores of bytes want to see of writers.
            leadership: the lease; None: this process always acts.
            metrics: where metrics live.
            offload: where long computations are done.
            now: the wall clock.
            make_cluster: makes a live cluster of its configuration.

        Raises:
            ModelFileError: ``trained`` is no predictor file.
        """
        self.store, self.settings, self.leadership = store, settings or Settings(), leadership
        self.clusters = Registry(make_cluster, queue=store.queue_id, **self.settings.collecting.arguments())
        before, learning = trained_before(store, trained), self.settings.learning
        self.forecasts = Forecasts(restored(store, before, seed=learning.seed))
        learner = Learner(store, self.forecasts, offload=offload, now=now, trained=before, settings=learning)
        self.mover = Mover(
            self._stores,
            self._lines,
            now=now,
            token=token,
            kept=store.kept(RATES),
            keep=lambda raw: store.keep(RATES, raw),
            changed=lambda: self.controller.wake(),
            settings=self.settings.transfers,
        )
        self.controller = Controller(
            store,
            self.clusters,
            forecasts=self.forecasts,
            learner=learner,
            messages=load_messages(),
            now=now,
            planner=Planner(self.settings.planning).decide,
            data=self.mover,
            may_act=leadership.may_act if leadership is not None else lambda: True,
            offload=offload,
            registry=metrics,
            settings=self.settings.controller,
        )
        self.clusters.on_change(lambda _: self.controller.wake())
        self.controller.registry.register(ClusterMeters(self.clusters.live))

    def tasks(self) -> Sequence[Callable[[], Awaitable[None]]]:
        """What runs until cancelled."""
        tasks: list[Callable[[], Awaitable[None]]] = [self._follow_clusters, self.mover.run, self.controller.run]
        if self.leadership is not None:
            tasks.append(self.leadership.run)
        return tasks

    async def _follow_clusters(self) -> None:
        try:
            await self.clusters.follow(self.store.clusters)
        finally:
            await self.clusters.close()

    def _stores(self) -> Mapping[str, str]:
        ours = {config.name: config.blobs for config in self.store.clusters() if config.blobs}
        return {**self.settings.stores, **ours}

    def _lines(self) -> list[Link]:
        return [link for config in self.store.clusters() for link in config.links()]
