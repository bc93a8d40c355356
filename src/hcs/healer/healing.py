"""The healer's loop: look at every card, let the state machine decide, then write, tell and evict.

Level-triggered: each round starts from what the API server holds, and a step counts only once its quarantine is stored.
So a healer that was restarted, or whose write was lost or came too late, does in the next round what is still missing.

The quarantine comes first and waits for nobody. A pod is evicted only after the note that names its owner and its
resume point is stored as well: the replacement may be bound the moment the old pod is gone.
"""

import asyncio
import datetime
import logging
from collections.abc import Callable, Iterable
from typing import Final

import httpx2
import msgspec
from lightkube import ApiError, AsyncClient
from lightkube.types import PatchType
from prometheus_client import CollectorRegistry, Gauge

from hcs.healer.evictions import Evictions
from hcs.healer.holdings import Holdings
from hcs.healer.lookups import Locate, Lookups
from hcs.healer.telling import Teller
from hcs.health import notes
from hcs.health.budget import EvictionBudget
from hcs.health.cards import OUT_OF_SERVICE, CardState, Instruction, Observation, step
from hcs.health.quarantine import HEALER, wanted_entries
from hcs.kube import resources
from hcs.kube.informer import Informer
from hcs.kube.writes import EventRecorder
from hcs.model.devices import Device, EvictedOwner, Quarantine, Verdict

log = logging.getLogger(__name__)
Card = tuple[str, str]
"""Node name and device id."""
_MISSING: Final = ("CardMissing", "the node's agent no longer reports the card")
_MISSED: Final = datetime.timedelta(seconds=30)
"""How long a card must go unreported before it has failed."""
_BEFORE_VERDICT: Final = datetime.timedelta(seconds=10)
"""A program may die of a fault before the agent has seen it; its pod failed because of the card all the same."""
_ABANDONED: Final = datetime.timedelta(minutes=15)
"""A controller that has not made a replacement after this time will not; longer than a Job's longest back-off."""


class Round(msgspec.Struct):
    """What a round has decided about one node; states and orders count once ``entries`` are stored."""

    node: resources.ComputeNode
    states: dict[str, CardState]
    orders: list[tuple[Device, Instruction]]
    entries: tuple[Quarantine, ...]


class Healer:
    """Holds where each card stands; everything else is read from the informers."""

    def __init__(
        self,
        client: AsyncClient,
        nodes: Informer[resources.ComputeNode],
        pods: Informer[resources.Pod],
        *,
        locate: Locate,
        now: Callable[[], datetime.datetime],
        probation: float,
        budget: EvictionBudget,
        registry: CollectorRegistry,
    ) -> None:
        """Prepare.

        Args:
            client: the connection.
            nodes: all ComputeNodes.
            pods: all pods.
            locate: says where a pod should resume.
            now: the clock.
            probation: seconds a failed card must be healthy before it serves again.
            budget: how many pods may be evicted in a while.
            registry: where the metrics live.
        """
        self._client, self._nodes, self._pods, self._now, self._probation = client, nodes, pods, now, probation
        self.wake = asyncio.Event()
        self._teller = Teller(EventRecorder(client, "healer"))
        self._evictions = Evictions(client, self._teller, budget, registry)
        self._lookups = Lookups(locate, found=self.wake.set, now=lambda: now().timestamp())
        self._holdings = Holdings(pods)
        self._cards: dict[Card, CardState] = {}
        self._stored: set[Card] = set()
        """Cards whose entry the server was seen to hold."""
        self._missed: dict[Card, datetime.datetime] = {}
        """Cards that are no longer reported: since when."""
        self._idle: dict[str, datetime.datetime] = {}
        """By UID of a lost pod: since when nothing waits to replace it."""
        self._quarantined = Gauge("hcs_healer_quarantined_cards", "Cards out of service.", registry=registry)
        nodes.on_change(lambda *_: self.wake.set())
        pods.on_change(lambda *_: self.wake.set())

    async def run(self, pause: float = 1.0) -> None:
        """Reconcile on every change, and at least every ``pause`` seconds, until cancelled."""
        await asyncio.gather(self._nodes.synced.wait(), self._pods.synced.wait())
        try:
            while True:
                self.wake.clear()
                await self.reconcile()
                try:
                    await asyncio.wait_for(self.wake.wait(), pause)
                except TimeoutError:
                    continue
        finally:
            await self._lookups.close()

    async def reconcile(self) -> None:
        """Bring every card one step on: first all quarantines, then all that follows from them.

        What the server refuses is logged and left for the next round; it keeps no other node waiting.
        """
        nodes, moment = list(self._nodes.values()), self._now()
        present = {pod.metadata.uid: pod for pod in self._pods.values()}
        self._lookups.leave({uid for uid, pod in present.items() if not pod.finished})
        written = [note for node in nodes for entry in node.spec.quarantine for note in entry.evicted]
        closed = self._closed(written, present, moment)
        merged = list(notes.merged(written, self._lookups.places, closed))
        keep = notes.kept(merged, present, moment)
        rounds = []
        for node in nodes:
            decided = self._decide(node, closed, keep, moment)
            if await self._store(decided):
                self._cards |= {(node.metadata.name, device): state for device, state in decided.states.items()}
                rounds.append(decided)
        for decided in rounds:
            await self._follow(decided, moment)
        self._forget({node.metadata.name for node in nodes}, present, rounds)

    def _decide(
        self, node: resources.ComputeNode, closed: dict[str, str], keep: frozenset[str], moment: datetime.datetime
    ) -> Round:
        name, states, orders, owed = node.metadata.name, {}, [], {}
        entries = {entry.device: entry for entry in node.spec.quarantine}
        known = {
            device: notes.merged((n for n in entry.evicted if n.pod_uid in keep), self._lookups.places, closed)
            for device, entry in entries.items()
        }
        devices = (*node.status.devices, *self._missing(node, moment))
        for device in devices:
            entry = entries.get(device.id)
            before = self._state(node, device, entry, moment)
            seen = Observation(
                device.verdict,
                device.verdict_reason,
                device.verdict_message,
                len(self._holdings.holders(name, device.id)),
                max(moment.timestamp(), before.since),
            )
            states[device.id], told = step(before, seen, probation=self._probation)
            orders += [(device, order) for order in told]
            fresh: tuple[EvictedOwner, ...] = ()
            if states[device.id].phase in OUT_OF_SERVICE and device.verdict == "Failed":
                noted = {note.pod_uid for note in known.get(device.id, ())}
                fresh = tuple(self._lost(name, device, entry, noted, moment))
            owed[device.id] = notes.fitting((*known.get(device.id, ()), *fresh))
        wanted = wanted_entries(node.spec.quarantine, devices, states, {**known, **owed}, notes.stamp(moment))
        return Round(node, states, orders, wanted)

    def _state(
        self, node: resources.ComputeNode, device: Device, entry: Quarantine | None, moment: datetime.datetime
    ) -> CardState:
        card, now = (node.metadata.name, device.id), moment.timestamp()
        ours = entry is not None and entry.by == HEALER and not entry.lifted
        state = self._cards.get(card)
        if state is None:
            return CardState("Quarantined", now, ("restored",)) if ours else CardState("Serving", now)
        if ours:
            self._stored.add(card)
        elif card in self._stored and entry is None and state.phase in OUT_OF_SERVICE and device.verdict != "Failed":
            log.info("card taken back into service by a person: node=%s device=%s", *card)
            state = CardState("Serving", max(now, state.since), (*state.history, "lifted by a person"))
        if not ours:
            self._stored.discard(card)
        return state

    def _missing(self, node: resources.ComputeNode, moment: datetime.datetime) -> Iterable[Device]:
        """Stand-ins for cards that should be there: held by a pod, or in our quarantine, but no longer reported.

        They are Unknown for a while, since a pod may be seen before the card it was bound to; and for as long as a
        vendor is silent, which proves nothing.
        """
        name, reported = node.metadata.name, {device.id for device in node.status.devices}
        ours = {entry.device: entry for entry in node.spec.quarantine if entry.by == HEALER and not entry.lifted}
        sure = any(c.type == "Probed" and c.status == "True" for c in node.status.conditions)
        for identifier in reported:
            self._missed.pop((name, identifier), None)
        for identifier in sorted({*ours, *self._holdings.devices(name)} - reported):
            gone = moment - self._missed.setdefault((name, identifier), moment) >= _MISSED
            verdict: Verdict = "Failed" if sure and gone else "Unknown"
            held = [self._holdings.allocation(pod) for pod in self._holdings.holders(name, identifier)]
            vendor, model = (held[0].vendor, held[0].model) if held and held[0] is not None else ("", "card")
            entry = ours.get(identifier)
            reason, message = (entry.reason, entry.message) if entry is not None else _MISSING
            yield Device(
                identifier, 0, vendor, model, 0, verdict=verdict, verdict_reason=reason, verdict_message=message
            )

    def _lost(
        self, node: str, device: Device, entry: Quarantine | None, noted: set[str], moment: datetime.datetime
    ) -> Iterable[EvictedOwner]:
        """New notes about pods that lose the card, as far as it is known where they resume."""
        begun = notes.moment(entry.since) if entry is not None and not entry.lifted else None
        earliest = (begun or moment) - _BEFORE_VERDICT
        lost = [(pod, moment) for pod in self._holdings.holders(node, device.id)]
        for pod in self._holdings.casualties(node, device.id):
            ended = notes.failed_at(pod)
            if ended is not None and ended >= earliest:
                lost.append((pod, ended))
        for pod, since in lost:
            if pod.controller is None:
                continue
            place = self._lookups.follow(pod)
            if place is not None and pod.metadata.uid not in noted:
                yield notes.note_of(pod, device.vendor, place, since)

    def _closed(
        self, written: list[EvictedOwner], present: dict[str, resources.Pod], moment: datetime.datetime
    ) -> dict[str, str]:
        """Who took over for whom; nobody, where nothing has waited to do so for long."""
        if not written:
            self._idle = {}
            return {}
        closed = notes.replacements(written, present.values())
        waiting = {
            pod.controller.uid
            for pod in present.values()
            if pod.controller is not None and not pod.finished and not pod.spec.nodeName
        }
        idle = {}
        for note in written:
            lost = present.get(note.pod_uid)
            if note.pod_uid in closed or note.owner_uid in waiting or (lost is not None and not lost.finished):
                continue
            idle[note.pod_uid] = self._idle.get(note.pod_uid, moment)
            if moment - idle[note.pod_uid] >= _ABANDONED:
                closed[note.pod_uid] = notes.NOBODY
        self._idle = idle
        return closed

    async def _store(self, decided: Round) -> bool:
        """Store the quarantine if it differs; False when somebody else wrote in between, or the server refused."""
        node = decided.node
        if decided.entries == node.spec.quarantine:
            return True
        body = {
            "metadata": {"resourceVersion": node.metadata.resourceVersion},
            "spec": {"quarantine": msgspec.to_builtins(decided.entries)},
        }
        try:
            await self._client.patch(resources.ComputeNode, node.metadata.name, body, patch_type=PatchType.MERGE)
        except (ApiError, httpx2.HTTPError) as error:
            if not (isinstance(error, ApiError) and error.status.code in (404, 409)):
                log.warning("quarantine not written, trying again: node=%s error=%r", node.metadata.name, error)
            return False
        log.info(
            "quarantine written: node=%s devices=%s", node.metadata.name, [entry.device for entry in decided.entries]
        )
        return True

    async def _follow(self, decided: Round, moment: datetime.datetime) -> None:
        noted = {note.pod_uid for entry in decided.entries for note in entry.evicted}
        for device, order in decided.orders:
            if order.action == "tell":
                await self._teller.card(decided.node, device, order, moment)
            elif order.action == "evict":
                for pod in self._holdings.holders(decided.node.metadata.name, device.id):
                    if pod.controller is None or pod.metadata.uid in noted:
                        await self._evictions.evict(pod, device, order, moment)

    def _forget(self, nodes: set[str], present: dict[str, resources.Pod], rounds: list[Round]) -> None:
        """Drop what is known of nodes and pods that are gone."""
        self._cards = {card: state for card, state in self._cards.items() if card[0] in nodes}
        self._stored = {card for card in self._stored if card[0] in nodes}
        self._missed = {card: since for card, since in self._missed.items() if card[0] in nodes}
        self._evictions.forget(present)
        open_notes = {n.pod_uid for r in rounds for e in r.entries for n in e.evicted if not n.replaced_by}
        self._lookups.forget({*present, *open_notes})
        self._quarantined.set(sum(state.phase in OUT_OF_SERVICE for state in self._cards.values()))
