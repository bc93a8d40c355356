"""One live cluster: its API and its metrics, put together as a view that can be read at any moment.

The two halves fail apart from each other: without metrics there are still cards, and a cluster whose API is cut off is
shown as it was, marked unreachable. Reading a view takes no time and waits for nobody. Whoever wants to know of changes
is told at most twenty times a second, and only when something is different that a decision could depend on.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec
from lightkube import AsyncClient

from hcs.cpn.collect.cards import CardReading
from hcs.cpn.collect.connection import Site, connect_site, edition
from hcs.cpn.collect.figures import Bounds, Figures, Seconds
from hcs.cpn.collect.inventory import Inventory, Machine
from hcs.cpn.collect.joining import Joined, Uses, aged, join
from hcs.cpn.collect.kubernetes import NOT_ASKED, CredentialsError, ForeignJob, KubernetesState
from hcs.cpn.collect.metrics import MetricsState, prometheus_of
from hcs.cpn.collect.notices import Notices
from hcs.cpn.collect.prometheus import Address, Prometheus, shown_url
from hcs.cpn.collect.sources import Source, load_sources
from hcs.cpn.views import ClusterView
from hcs.kube.connection import ApiUnreachableError
from hcs.model.refusals import RefusedError
from hcs.wide.jobs import Milliseconds


class Timing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How often things are asked, in seconds.

    ``beat``: between heartbeats of the API; ``deadline``: how long one, or a query for metrics, may take.
    ``reconnect``: until a kubeconfig that did not work is read again. ``settle``: how long changes are gathered before
    anybody is told. ``metrics``: how often metrics are asked for, and how old they may be.
    """

    beat: Seconds = 5.0
    deadline: Seconds = 5.0
    reconnect: Seconds = 10.0
    settle: Seconds = 0.05
    metrics: Bounds = Bounds()


def wall_clock() -> Milliseconds:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class LiveCluster:
    """A cluster that is being watched; satisfies :class:`hcs.cpn.views.Cluster`."""

    def __init__(
        self,
        site: Site,
        *,
        queue: str | None = None,
        on_change: Callable[[str], None] = lambda name: None,
        connect: Callable[[Site], AsyncClient] = connect_site,
        sources: Sequence[Source] | None = None,
        prometheus: Callable[[Address, float], Callable[[], Prometheus]] = prometheus_of,
        timing: Timing | None = None,
        now: Callable[[], Milliseconds] = wall_clock,
        pause: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        """Prepare; nothing is asked before :meth:`run`.

        Args:
            site: how to reach it.
            queue: the id of our queue, see :data:`hcs.wide.entries.LABEL_QUEUE`; None: Jobs of any queue are ours.
            on_change: called with the name after a change; must not block.
            connect: makes a client of the API.
            sources: the tables of exporters; None takes those of the package.
            prometheus: makes makers of clients of a Prometheus.
            timing: how often things are asked.
            now: the wall clock.
            pause: how to wait.
        """
        self.site, self._queue, self._connect = site, queue, connect
        self._timing, self._now, self._pause = timing or Timing(), now, pause
        self._client: AsyncClient | None = None
        self._retired: list[AsyncClient] = []
        self._edition = (0, 0)
        self._state: KubernetesState | None = None
        self._stock: Inventory | None = None
        self._shown, self._machines = _EMPTY, dict[str, Machine]()
        self._sources = tuple(load_sources() if sources is None else sources)
        self._metrics = self._make_metrics(prometheus) if site.prometheus else None
        self._joined: tuple[Figures, Inventory, Joined] | None = None
        self._sick: dict[tuple[str, str], int] = {}
        self.rounds: Counter[str] = Counter()
        """Rounds of metrics by the reason of their failure; those that succeeded under the empty text."""
        self.round_seconds = 0.0
        """Seconds all of them took together."""
        self._seen: Milliseconds = 0
        self._failure = NOT_ASKED
        self._notices = Notices(site.name, on_change)
        self._timer: asyncio.TimerHandle | None = None
        self._cost = 0.0

    @property
    def name(self) -> str:
        """Its name in the list of clusters."""
        return self.site.name

    @property
    def client(self) -> AsyncClient:
        """The connection in use.

        Raises:
            ApiUnreachableError: there is none, for the kubeconfig is not usable.
        """
        if self._client is None:
            raise ApiUnreachableError(self._failure)
        return self._client

    @property
    def foreign(self) -> tuple[ForeignJob, ...]:
        """Jobs of others that still run."""
        return self._state.foreign if self._state is not None else ()

    @property
    def cards(self) -> tuple[CardReading, ...]:
        """What exporters last said of single cards, one reading each; their ages are those :attr:`asked_ago`."""
        return self._join().cards

    @property
    def asked_ago(self) -> Milliseconds:
        """How long ago the question was put to which the present figures are the answer; 0 before the first."""
        metrics = self._metrics
        return max(0, self._now() - metrics.asked) if metrics is not None and metrics.asked is not None else 0

    def nodes_with(self, kind: str) -> tuple[str, ...]:
        """Nodes that have usable cards of a kind, those with most first."""
        self._join()
        found = [(-count, node) for (node, of), count in self._shown.by_node.items() if of == kind and count]
        return tuple(node for _, node in sorted(found))

    def view(self) -> ClusterView:
        """What is known now; from memory, never waits."""
        state = self._state
        failure = self._failure if state is None else state.failure
        if failure is None and state is not None and not state.settled:
            failure = _LISTING
        joined = self._join()
        passed, stale = self.asked_ago, round(self._timing.metrics.stale * 1000)
        nothing: Uses = (None, None, None)
        return ClusterView(
            name=self.name,
            reachable=failure is None,
            pools=tuple(
                msgspec.structs.replace(
                    pool,
                    busy=aged(joined.pools.get(pool.kind, nothing)[0], passed, stale),
                    used=aged(joined.pools.get(pool.kind, nothing)[1], passed, stale),
                    cpu_busy=aged(joined.pools.get(pool.kind, nothing)[2], passed, stale),
                )
                for pool in self._shown.pools
            ),
            cpu_busy=aged(joined.busy, passed, stale),
            host_free=aged(joined.free, passed, stale),
            foreign_jobs=len(self.foreign),
            missing=(*self._gaps(), *joined.missing),
            seen=self._seen,
            message="" if failure is None else f"cluster {self.name}{self._where()} cannot be used: {failure}",
            doubts=(*self._nameless(), *joined.doubts),
        )

    async def run(self) -> None:
        """Watch it until cancelled; closes its connections then."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow())
                if self._metrics is not None:
                    group.create_task(self._metrics.run())
        finally:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            await self._close_retired(leave=0)

    async def _follow(self) -> None:
        while True:
            self._edition = edition(self.site)
            try:
                client = self._connect(self.site)
            except RefusedError as error:
                self._fail(error.refusals[0].message)
            else:
                await self._session(client)
            await self._pause(self._timing.reconnect)

    async def _session(self, client: AsyncClient) -> None:
        """One connection, until it is of no use any more."""
        self._client, used = client, self._edition
        self._state = KubernetesState(
            client,
            namespace=self.site.namespace,
            queue=self._queue,
            changed=self._changed,
            beat=self._timing.beat,
            deadline=self._timing.deadline,
            renewed=lambda: edition(self.site) != used,
            pause=self._pause,
        )
        try:
            await self._state.run(self._saw)
        except CredentialsError as error:
            self._fail(str(error))
        finally:
            self._state, self._client = None, None
            self._retired.append(client)
            await self._close_retired(leave=2)

    async def _close_retired(self, *, leave: int) -> None:
        """Close connections of the past; the newest are left for whoever still has a request under way on them."""
        while len(self._retired) > leave:
            with contextlib.suppress(Exception):
                await self._retired.pop(0).close()

    def _saw(self) -> None:
        self._seen = self._now()

    def _fail(self, failure: str) -> None:
        self._failure = failure
        self._changed()

    def _make_metrics(self, make: Callable[[Address, float], Callable[[], Prometheus]]) -> MetricsState:
        site = self.site
        address = Address(
            site.prometheus, site.prometheus_token_file, site.prometheus_ca_file, dict(site.prometheus_labels)
        )

        def noted(reason: str, seconds: float) -> None:
            self.rounds[reason] += 1
            self.round_seconds += seconds

        return MetricsState(
            make(address, self._timing.deadline),
            self._sources,
            bounds=self._timing.metrics,
            now=self._now,
            changed=self._wake,
            noted=noted,
            pause=self._pause,
        )

    def _join(self) -> Joined:
        """Figures put to cards; computed anew only when one of both is new."""
        state, metrics = self._state, self._metrics
        settled = state is not None and state.settled
        if settled:
            assert state is not None
            if self._stock is None:
                self._stock = state.stock(lambda node, vendor: self._sick.get((node, vendor), 0))
            self._shown, self._machines = self._stock, dict(state.machines)
        figures = _NOTHING if metrics is None else metrics.figures
        if self._joined is None or self._joined[0] is not figures or not _alike(self._joined[1], self._shown):
            known = self._shown is not _EMPTY and metrics is not None and metrics.asked is not None
            joined = join(
                figures,
                self._shown,
                self._machines,
                self._sources,
                settled=known,
                node_of_pod=state.node_of_pod if state is not None else lambda address: None,
            )
            self._joined = figures, self._shown, joined
            if joined.sick != self._sick:
                self._sick, self._stock = joined.sick, None
                return self._join()
        return self._joined[2]

    def _where(self) -> str:
        return "" if self._client is None else f" at {shown_url(self._client.config.cluster.server)}"

    def _gaps(self) -> tuple[str, ...]:
        """What is not known at all, and why."""
        gaps = self._state.gaps if self._state is not None else ()
        metrics = self._metrics
        if metrics is None:
            return (*gaps, "it has no Prometheus address, so use of cards and hosts is not known")
        if metrics.failure:
            return (*gaps, metrics.failure)
        return gaps if metrics.asked is not None else (*gaps, "its Prometheus has not answered yet")

    def _nameless(self) -> tuple[str, ...]:
        nodes = self._shown.unlabelled
        if not nodes:
            return ()
        shown = ", ".join(nodes[:3]) + (f" and {len(nodes) - 3} more" if len(nodes) > 3 else "")
        verb = "announces" if len(nodes) == 1 else "announce"
        return (f"{shown} {verb} cards without a label that says which; they are named by their resource",)

    def _changed(self) -> None:
        self._stock = None
        self._wake()

    def _wake(self) -> None:
        if self._timer is None:
            wait = max(self._timing.settle, min(_LONGEST, _SHARE * self._cost))
            self._timer = asyncio.get_running_loop().call_later(wait, self._tell)

    def _tell(self) -> None:
        self._timer, clock = None, time.perf_counter()
        view = self.view()
        self._cost = time.perf_counter() - clock
        metrics = self._metrics
        unasked = metrics is not None and metrics.asked is None and not metrics.failure
        self._notices.tell(view, beginning=self._beginning, unasked=unasked)

    @property
    def _beginning(self) -> bool:
        """Whether an answer is still awaited, so that nothing can be said to be missing."""
        failure = self._failure if self._state is None else self._state.failure
        return failure == NOT_ASKED or (failure is None and self._state is not None and not self._state.settled)


_LISTING: Final = "its cards and pods are being listed"
_LONGEST: Final = 0.5
"""Seconds that changes may be gathered on the largest clusters, so that decisions follow within one."""
_SHARE: Final = 5.0
"""Looking at what changed takes at most one part in so many of the time."""
_EMPTY: Final = Inventory()
_NOTHING: Final = Figures()


def _alike(one: Inventory, other: Inventory) -> bool:
    """Whether figures are put to both in the same way, whoever holds the cards."""
    return one is other or (one.cards is other.cards and one.by_node == other.by_node)
