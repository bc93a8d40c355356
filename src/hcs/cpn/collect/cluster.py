"""One live cluster: its API and its metrics, put together as a view that can be read at any moment.

The two halves fail apart from each other: without metrics there are still cards, and a cluster whose API is cut off is
shown as it was, marked unreachable. Reading a view takes no time and waits for nobody. Whoever wants to know of changes
is told at most twenty times a second, and only when something is different that a decision could depend on.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from lightkube import AsyncClient

from hcs.cpn.collect.connection import Site, connect_site
from hcs.cpn.collect.inventory import Inventory
from hcs.cpn.collect.kubernetes import CredentialsError, ForeignJob, KubernetesState
from hcs.cpn.views import ClusterView
from hcs.kube.connection import ApiUnreachableError
from hcs.model.refusals import RefusedError
from hcs.wide.jobs import Milliseconds

log = logging.getLogger(__name__)


class Timing(msgspec.Struct, frozen=True):
    """How often things are asked, in seconds.

    ``beat``: between heartbeats of the API; ``deadline``: how long one may take. ``reconnect``: until a kubeconfig that
    did not work is read again. ``settle``: how long changes are gathered before anybody is told.
    """

    beat: float = 5.0
    deadline: float = 5.0
    reconnect: float = 10.0
    settle: float = 0.05


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
        timing: Timing | None = None,
        now: Callable[[], Milliseconds] = wall_clock,
        pause: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        """Prepare; nothing is asked before :meth:`run`.

        Args:
            site: how to reach it.
            queue: the id of our queue, see :data:`hcs.wide.entries.LABEL_QUEUE`; None: Jobs of any queue are ours.
            on_change: called with the name after a change; must not block.
            connect: makes a client.
            timing: how often things are asked.
            now: the wall clock.
            pause: how to wait.
        """
        self.site, self._queue, self._on_change, self._connect = site, queue, on_change, connect
        self._timing, self._now, self._pause = timing or Timing(), now, pause
        self._client: AsyncClient | None = None
        self._state: KubernetesState | None = None
        self._stock: Inventory | None = None
        self._shown = Inventory()
        self._seen: Milliseconds = 0
        self._failure = "it has not been asked yet"
        self._told: ClusterView | None = None
        self._timer: asyncio.TimerHandle | None = None

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

    def view(self) -> ClusterView:
        """What is known now; from memory, never waits."""
        state = self._state
        failure = self._failure if state is None else state.failure
        if failure is None and state is not None and not state.settled:
            failure = "its cards and pods are being listed"
        if state is not None and state.settled:
            if self._stock is None:
                self._stock = state.stock(lambda node, vendor: 0)
            self._shown = self._stock
        return ClusterView(
            name=self.name,
            reachable=failure is None,
            pools=self._shown.pools,
            foreign_jobs=len(self.foreign),
            missing=self._missing(),
            seen=self._seen,
            message="" if failure is None else f"cluster {self.name} cannot be used: {failure}",
        )

    async def run(self) -> None:
        """Watch it until cancelled; closes its connections then."""
        try:
            while True:
                try:
                    client = self._connect(self.site)
                except RefusedError as error:
                    self._fail(error.refusals[0].message)
                else:
                    await self._session(client)
                await self._pause(self._timing.reconnect)
        finally:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    async def _session(self, client: AsyncClient) -> None:
        """One connection, until it is of no use any more."""
        self._client = client
        self._state = KubernetesState(
            client,
            namespace=self.site.namespace,
            queue=self._queue,
            changed=self._changed,
            beat=self._timing.beat,
            deadline=self._timing.deadline,
            pause=self._pause,
        )
        try:
            await self._state.run(self._saw)
        except CredentialsError as error:
            self._fail(str(error))
        finally:
            self._state, self._client = None, None
            with contextlib.suppress(Exception):
                await client.close()

    def _saw(self) -> None:
        self._seen = self._now()

    def _fail(self, failure: str) -> None:
        self._failure = failure
        self._changed()

    def _missing(self) -> tuple[str, ...]:
        gaps = self._state.gaps if self._state is not None else ()
        return (*gaps, *self._nameless())

    def _nameless(self) -> tuple[str, ...]:
        nodes = self._shown.unlabelled
        if not nodes:
            return ()
        shown = ", ".join(nodes[:3]) + (f" and {len(nodes) - 3} more" if len(nodes) > 3 else "")
        verb = "announces" if len(nodes) == 1 else "announce"
        return (f"{shown} {verb} cards without a label that says which; they are named by their resource",)

    def _changed(self) -> None:
        self._stock = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._timing.settle, self._tell)

    def _tell(self) -> None:
        self._timer = None
        view = msgspec.structs.replace(self.view(), seen=0)
        if view == self._told:
            return
        before, self._told = self._told, view
        if view.reachable != (before is not None and before.reachable):
            log.log(
                logging.INFO if view.reachable else logging.WARNING,
                "cluster %s: cluster=%s message=%s",
                "reachable" if view.reachable else "unreachable",
                self.name,
                view.message,
            )
        self._on_change(self.name)
