"""What a cluster's API shows, kept fresh by list and watch: cards, who holds them, and Jobs that others created.

Four local copies (nodes, ComputeNodes, pods, Jobs) and one heartbeat. The heartbeat is what tells a quiet cluster from
one that is cut off: a watch over a dead connection is silent for ever, so after every failure all copies are listed
anew. A kind that may not be read, or is not defined there, is a sentence and not a failure: the rest still counts.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec
from lightkube import AsyncClient

from hcs.cpn.collect.failures import explain_api, status_code
from hcs.cpn.collect.inventory import (
    Card,
    Holding,
    Inventory,
    Machine,
    addresses_of,
    cards_of,
    holding_of,
    machine_of,
    running,
    take_stock,
)
from hcs.kube import resources
from hcs.kube.informer import ChangeKind, Informer
from hcs.model.pods import Pod
from hcs.wide.entries import LABEL_PULL, LABEL_QUEUE

log = logging.getLogger(__name__)

NOT_ASKED: Final = "it has not been asked yet"
_REFUSALS: Final = (401, 403, 404)
_RETRY: Final = 5.0
Pause = Callable[[float], Awaitable[Any]]


class CredentialsError(RuntimeError):
    """The API no longer accepts who we say we are."""


class ForeignJob(msgspec.Struct, frozen=True, order=True):
    """A Job of others that still runs."""

    namespace: str
    name: str


class KubernetesState:
    """The copies of one cluster."""

    def __init__(
        self,
        client: AsyncClient,
        *,
        namespace: str,
        queue: str | None,
        changed: Callable[[], None],
        beat: float,
        deadline: float,
        renewed: Callable[[], bool] = lambda: False,
        pause: Pause = asyncio.sleep,
    ) -> None:
        """Prepare; nothing is read before :meth:`run`.

        Args:
            client: the connection.
            namespace: where our Jobs go; the heartbeat asks for Jobs there.
            queue: the id of our queue; None takes every queue's Jobs for ours.
            changed: called after every change; must not block.
            beat: seconds between heartbeats.
            deadline: seconds a heartbeat may take.
            renewed: whether the credentials in use have been replaced; asked after a failure only.
            pause: how to wait; tests pass their own.
        """
        self._client, self._namespace, self._queue, self._changed = client, namespace, queue, changed
        self._beat, self._deadline, self._renewed, self._pause = beat, deadline, renewed, pause
        self._nodes = Informer(client, resources.Node, namespace=None, pause=pause)
        self._computenodes = Informer(client, resources.ComputeNode, namespace=None, pause=pause)
        self._pods = Informer(client, resources.Pod, pause=pause)
        self._jobs = Informer(client, resources.Job, pause=pause)
        self._copies: tuple[Informer[Any], ...] = (self._nodes, self._computenodes, self._pods, self._jobs)
        self._machines: dict[str, Machine] = {}
        self._cards: tuple[tuple[bool, bool], tuple[Card, ...]] | None = None
        """All cards, until a node changes: there are many, and pods come and go all the time."""
        self._holdings: dict[str, Holding] = {}
        self._addresses: dict[str, frozenset[str]] = {}
        self._pod_nodes: dict[str, tuple[str, str]] = {}
        self._ours: set[str] = set()
        self._foreign: dict[str, ForeignJob] = {}
        self._nodes.on_change(self._on_node)
        self._computenodes.on_change(self._on_computenode)
        self._pods.on_change(self._on_pod)
        self._jobs.on_change(self._on_job)
        self._tasks: list[asyncio.Task[None]] = []
        self._gaps: tuple[str, ...] = ()
        self._broken: list[Informer[Any]] = []
        self._failing: list[Informer[Any]] = []
        self.failure: str | None = NOT_ASKED
        """Why the API cannot be used; None while it can."""

    async def run(self, seen: Callable[[], None]) -> None:
        """Keep the copies fresh until cancelled.

        Args:
            seen: called after every good answer to a heartbeat.

        Raises:
            CredentialsError: the API refuses our credentials, or fails since they were replaced; a new connection may
                have better ones.
        """
        try:
            while True:
                try:
                    async with asyncio.timeout(self._deadline):
                        await self._ask()
                except Exception as error:
                    await self._stop()
                    self._fail(explain_api(error))
                    if status_code(error) == 401 or self._renewed():
                        raise CredentialsError(self.failure) from error
                else:
                    seen()
                    self._start()
                    self._fail(None)
                    self._note_gaps()
                await self._pause(self._beat)
        finally:
            await self._stop()

    @property
    def settled(self) -> bool:
        """Whether every copy has held a full list, or is known to be refused."""
        return all(copy.synced.is_set() or _refusal(copy) for copy in self._copies)

    def stock(self, sick: Callable[[str, str], int]) -> Inventory:
        """Count cards; see :func:`~hcs.cpn.collect.inventory.take_stock`."""
        without_nodes = _refusal(self._nodes) and not self._nodes.synced.is_set()
        undefined = _undefined(self._computenodes)
        if self._cards is None or self._cards[0] != (without_nodes, undefined):
            machines = None if without_nodes else self._machines
            nodes = () if undefined else self._computenodes.values()
            found = tuple(card for node in nodes for card in cards_of(node, machines))
            self._cards = (without_nodes, undefined), found
        return take_stock(
            [self._machines[name] for name in sorted(self._machines)],
            self._cards[1],
            self._holdings.values(),
            lambda holding: self._is_ours(holding.labels) or holding.owner in self._ours,
            sick,
        )

    @property
    def machines(self) -> Mapping[str, Machine]:
        """What the Node objects say, by name."""
        return self._machines

    def node_of_pod(self, address: str) -> str | None:
        """The node of the pod that has this address now; exporters that are pods are often scraped by theirs."""
        return self._pod_nodes.get(address, (None, ""))[0]

    @property
    def foreign(self) -> tuple[ForeignJob, ...]:
        """Jobs of others that still run."""
        return tuple(sorted(self._foreign.values()))

    @property
    def gaps(self) -> tuple[str, ...]:
        """What cannot be read there, and what is therefore not known. An interruption that passes is none."""
        return tuple(
            f"{what} cannot be read, so {effect}: {explain_api(copy.problem)}"
            for copy, what, effect in (
                (self._nodes, "nodes", "cards of nodes without HCS are not seen"),
                (self._computenodes, "computenodes", "cards of nodes with HCS are not seen"),
                (self._pods, "pods", "cards that others hold count as free"),
                (self._jobs, "Jobs of all namespaces", "those of others are not counted"),
            )
            if copy.problem is not None
            and (_refusal(copy) or copy in self._failing)
            and not (copy is self._computenodes and _undefined(copy))
        )

    def _note_gaps(self) -> None:
        """Look once a heartbeat: what failed at the last one and fails still is more than an interruption."""
        broken = [copy for copy in self._copies if copy.problem is not None]
        self._failing, self._broken = [copy for copy in broken if copy in self._broken], broken
        if self.gaps != self._gaps:
            self._gaps = self.gaps
            self._changed()

    async def _ask(self) -> None:
        """The heartbeat: a list that is nearly always empty, of the kind we must be able to write."""
        nobody: dict[str, Any] = {"metadata.name": "hcs-heartbeat"}
        async for _ in self._client.list(resources.Job, namespace=self._namespace, fields=nobody):
            pass

    def _start(self) -> None:
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._keep(copy)) for copy in self._copies]
            self._tasks.append(asyncio.create_task(self._settle()))

    async def _stop(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for copy in self._copies:
            copy.synced.clear()  # what it holds is old until it has been listed anew

    async def _keep(self, copy: Informer[Any]) -> None:
        while True:
            try:
                await copy.run()
            except Exception as error:  # an answer that is none, for instance of a proxy between
                copy.problem = error
                log.warning("copy interrupted: error=%r", error)
                await self._pause(_RETRY)

    async def _settle(self) -> None:
        """Tell of the moment at which everything is known, for an empty cluster has no change that would."""
        wait = 0.05
        while not self.settled:
            await self._pause(wait)
            wait = min(1.0, 2 * wait)
        self._changed()

    def _fail(self, failure: str | None) -> None:
        if failure != self.failure:
            self.failure = failure
            self._changed()

    def _is_ours(self, labels: Mapping[str, str]) -> bool:
        label = labels.get(LABEL_QUEUE) or labels.get(LABEL_PULL)
        return label is not None and self._queue in (None, label)

    def _on_node(self, kind: ChangeKind, node: resources.Node, _: resources.Node | None) -> None:
        name, before = node.metadata.name, self._machines.get(node.metadata.name)
        if kind == "DELETED":
            self._machines.pop(name, None)
            self._on_computenode()
        elif (machine := machine_of(node)) != before:  # nodes change every few minutes only to say that they live
            self._machines[name] = machine
            self._on_computenode()

    def _on_computenode(self, *_: object) -> None:
        self._cards = None
        self._changed()

    def _on_pod(self, kind: ChangeKind, pod: Pod, _: Pod | None) -> None:
        uid = pod.metadata.uid
        self._note_addresses(uid, pod, frozenset() if kind == "DELETED" else addresses_of(pod))
        before, now = self._holdings.get(uid), None if kind == "DELETED" else holding_of(pod)
        if now == before:
            return
        if now is None:
            del self._holdings[uid]
        else:
            self._holdings[uid] = now
        self._changed()

    def _note_addresses(self, uid: str, pod: Pod, now: frozenset[str]) -> None:
        """Addresses go from pod to pod, and the end of the old one may be told after the beginning of the new one."""
        before = self._addresses.pop(uid, frozenset())
        for address in before - now:
            if self._pod_nodes.get(address, ("", ""))[1] == uid:
                del self._pod_nodes[address]
        if now:
            self._addresses[uid] = now
            self._pod_nodes.update(dict.fromkeys(now, (pod.spec.nodeName or "", uid)))

    def _on_job(self, kind: ChangeKind, job: resources.Job, _: resources.Job | None) -> None:
        uid = job.metadata.uid
        before = uid in self._ours, self._foreign.get(uid)
        self._ours.discard(uid)
        self._foreign.pop(uid, None)
        if kind != "DELETED":
            if self._is_ours(job.metadata.labels or {}):
                self._ours.add(uid)
            elif running(job.status, job.spec):
                self._foreign[uid] = ForeignJob(job.metadata.namespace or "default", job.metadata.name)
        if before != (uid in self._ours, self._foreign.get(uid)):
            self._changed()


def _refusal(copy: Informer[Any]) -> bool:
    """Whether the last thing known of a copy is that we may not, or cannot, read it."""
    return copy.problem is not None and status_code(copy.problem) in _REFUSALS


def _undefined(copy: Informer[Any]) -> bool:
    """Whether the kind is not defined there."""
    return copy.problem is not None and status_code(copy.problem) == 404
