"""Placing with a memory: a fleet that changes, what is held of it, and the scores of requests seen before.

A placer stands for the snapshot of its fleet and its allocations: :func:`hcs.placement.engine.place` takes either and
gives the same answer. Where the snapshot is a value that never changes, the placer is told of each change, touches what
it concerns and nothing else, and so decides in a fraction of a millisecond on ten thousand nodes.

Each pod holds at most one allocation here: what it is bound with, or else what it is promised.
"""

from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec

from hcs.model.allocations import Allocation
from hcs.model.devices import NodeInventory
from hcs.model.requests import ComputeRequest
from hcs.placement.appraisals import ReferenceRates, VendorBound, appraise
from hcs.placement.asks import Ask
from hcs.placement.boards import Board
from hcs.placement.engine import NOT_MANAGED, RequestMix, arranged, laid_out, look_at, nodes_mask, place, placement_of
from hcs.placement.explanations import refuse_later
from hcs.placement.fleet import Fleet, Mask, build_fleet
from hcs.placement.nearness import relaxations
from hcs.placement.plans import NodeRefusal, Placement, Unplaceable, summarise
from hcs.placement.policies import POLICIES
from hcs.placement.snapshot import Snapshot

REQUESTS: Final = 256
"""Different requests that are remembered; the one longest unused goes first."""
LISTS: Final = 8
"""Different lists of nodes to choose from that are remembered."""
RELEARN: Final = 1.3
"""A learned mix is looked at anew whenever so many times as many requests have come."""


class _Known(msgspec.Struct, eq=False):
    """A request laid out, and what to say where it cannot be served."""

    ask: Ask
    wishes: bool = False
    """Whether it looks at the nodes' labels."""
    rates: ReferenceRates | None = None
    """Those it was laid out with, kept alive: a dead one's identity could pass to another."""
    refusals: dict[str, NodeRefusal] | None = None
    answers: "OrderedDict[int, tuple[object, Unplaceable]]" = msgspec.field(default_factory=OrderedDict)


class Placer:
    """A fleet with its allocations, and the memory of what was asked of it."""

    def __init__(
        self, nodes: Iterable[NodeInventory] = (), *, policy: str = "hcs", mix: RequestMix = (), seed: int = 0
    ) -> None:
        """Start with these nodes, on which nothing is held.

        Args:
            nodes: the fleet.
            policy: a name in :data:`hcs.placement.policies.POLICIES`.
            mix: requests that are likely, each with how often it comes; see :func:`hcs.placement.engine.place`.
            seed: for the policy that leaves the choice to chance.

        Raises:
            KeyError: there is no such policy.
        """
        self.policy = policy
        self._chooses = POLICIES[policy]
        self._mix: tuple[tuple[ComputeRequest, int], ...] = tuple(mix)
        self._seen: Counter[ComputeRequest] = Counter()
        self._learn_at = 1.0
        self._seed, self._decisions = seed, 0
        self._bound: dict[str, Allocation] = {}
        self._promised: dict[str, Allocation] = {}
        self._on_node: dict[str, dict[str, Allocation]] = {}
        self._start(Snapshot.of(build_fleet(nodes)))

    def _start(self, snapshot: Snapshot) -> None:
        outlook = look_at(snapshot.fleet, self.policy, self._mix)
        self._board = Board(snapshot, self._chooses, arranged, outlook=outlook)
        self._forget()

    def _forget(self) -> None:
        self._known: OrderedDict[object, _Known] = OrderedDict()
        self._lists: list[tuple[object, Mask | None, int]] = []

    @property
    def fleet(self) -> Fleet:
        """The hardware."""
        return self._board.fleet

    @property
    def snapshot(self) -> Snapshot:
        """The fleet and all that is held of it, as a value."""
        return self._board.snapshot()

    def snapshot_without(self, uids: Collection[str]) -> Snapshot:
        """The same without what these pods hold."""
        held = [allocation for uid in uids if (allocation := self._held(uid)) is not None]
        return self.snapshot.without_all(held) if held else self.snapshot

    def put_nodes(self, nodes: Iterable[NodeInventory]) -> None:
        """Take these nodes in place of all there are."""
        held = [allocation for of_node in self._on_node.values() for allocation in of_node.values()]
        self._start(Snapshot.of(build_fleet(nodes), held))

    def put_node(self, node: NodeInventory) -> None:
        """Add a node, or change the one of its name."""
        self._adopt(self.fleet.with_node(node), node.name)

    def drop_node(self, name: str) -> None:
        """Take a node away; what is held there is kept aside. Nothing happens where there is no such node."""
        if name in self.fleet.node_index:
            self._adopt(self.fleet.without_node(name), name)

    def bind(self, uid: str, allocation: Allocation | None) -> None:
        """A pod is bound with this allocation; None: it is bound no more."""
        self._set(self._bound, uid, allocation)

    def promise(self, uid: str, allocation: Allocation | None) -> None:
        """A pod is promised this allocation, which counts as long as it is not bound; None: it is promised nothing."""
        self._set(self._promised, uid, allocation)

    @contextmanager
    def supposing(self, *, without: Collection[str] = (), also: Sequence[Allocation] = ()) -> Iterator["Placer"]:
        """As if these pods held nothing, and these allocations were held as well."""
        aside = [allocation for uid in without if (allocation := self._held(uid)) is not None]
        for allocation in aside:
            self._board.remove(allocation)
        for allocation in also:
            self._board.add(allocation)
        try:
            yield self
        finally:
            for allocation in also:
                self._board.remove(allocation)
            for allocation in aside:
                self._board.add(allocation)

    def place(
        self,
        request: ComputeRequest,
        *,
        nodes: Collection[str] | None = None,
        reference_rates: ReferenceRates | None = None,
        bound: VendorBound | None = None,
    ) -> Placement | Unplaceable:
        """As :func:`hcs.placement.engine.place` on :attr:`snapshot`, from memory."""
        self._decisions += 1
        seed = (self._seed << 32) + self._decisions
        self._learn(request)
        mask, listed = self._mask(nodes)
        variants = relaxations(self.fleet, request) if request.locality.wishes else (request,)
        known = None
        for wanted in variants:
            known = self._look_up(wanted, reference_rates, bound)
            chosen = self._board.choose(known.ask, nodes=mask, seed=seed)
            if chosen is not None:
                return placement_of(self._board.live, request, known.ask.containers, chosen)
        assert known is not None  # there is at least one variant
        if request.capacities:
            return place(
                self.snapshot,
                request,
                nodes=nodes,
                reference_rates=reference_rates,
                bound=bound,
                policy=self.policy,
                mix=self._mix,
                seed=seed,
            )
        return self._refuse(known, nodes, listed)

    def _set(self, layer: dict[str, Allocation], uid: str, allocation: Allocation | None) -> None:
        before = self._held(uid)
        if allocation is None:
            layer.pop(uid, None)
        else:
            layer[uid] = allocation
        after = self._held(uid)
        if after == before:
            return
        if before is not None:
            self._board.remove(before)
            del self._on_node[before.node][uid]
        if after is not None:
            self._board.add(after)
            self._on_node.setdefault(after.node, {})[uid] = after

    def _held(self, uid: str) -> Allocation | None:
        return self._bound.get(uid) or self._promised.get(uid)

    def _adopt(self, fleet: Fleet, name: str) -> None:
        """Go on with a fleet that differs in one node."""
        held = self._on_node.get(name, {}).values()
        before = self.fleet
        same = _surroundings(before, name) == _surroundings(fleet, name)
        kept = self._board.adopt(fleet, name, held)
        if not kept:
            self._board.forget(look_at(fleet, self.policy, self._mix))
            self._known.clear()
        for known in self._known.values():
            known.refusals = None
            known.answers.clear()
        if kept and not (same and all(_plain(known.ask) for known in self._known.values())):
            self._known.clear()
        elif _labels(before, name) != _labels(fleet, name):
            self._known = OrderedDict((key, one) for key, one in self._known.items() if not one.wishes)
        self._lists.clear()

    def _learn(self, request: ComputeRequest) -> None:
        if not self._chooses.learns:
            return
        plain = request
        if request.preferences or request.group:
            plain = msgspec.structs.replace(request, preferences=(), group="")
        self._seen[_shape(plain)] += 1
        total = self._seen.total()
        if total >= self._learn_at:
            self._learn_at = max(total * RELEARN, total + 20)
            self._mix = tuple(self._seen.items())
            self._board.forget(look_at(self.fleet, self.policy, self._mix))

    def _look_up(
        self, request: ComputeRequest, reference_rates: ReferenceRates | None, bound: VendorBound | None
    ) -> _Known:
        key = _shape(request), bound, id(reference_rates)
        known = self._known.get(key)
        if known is None:
            appraisals = appraise(self.fleet, request, reference_rates, bound)
            known = self._known[key] = _Known(
                laid_out(self.fleet, request, appraisals), bool(request.preferences), reference_rates
            )
            if len(self._known) > REQUESTS:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(key)
        return known

    def _mask(self, nodes: Collection[str] | None) -> tuple[Mask | None, int]:
        """The nodes as a mask, None where they are all; and a number that says which list it was."""
        if nodes is None:
            return None, -1
        for place_, (known, mask, number) in enumerate(self._lists):
            if known is nodes or (type(known) is type(nodes) and known == nodes):
                if place_:
                    self._lists.insert(0, self._lists.pop(place_))
                return mask, number
        found: Mask | None = nodes_mask(self.fleet, nodes)
        if found is not None and found.all():
            found = None
        self._decisions += 1
        # A list that its owner may still change is remembered as it is now.
        self._lists.insert(0, (nodes if isinstance(nodes, tuple) else tuple(nodes), found, self._decisions))
        del self._lists[LISTS:]
        return found, self._decisions

    def _refuse(self, known: _Known, nodes: Collection[str] | None, listed: int) -> Unplaceable:
        """Why no node serves. The words follow from the hardware, its state and the request, never from what is free,
        so they are found once."""
        said = known.answers.get(listed)
        if said is not None:
            return said[1]
        if known.refusals is None:
            known.refusals = {one.node: one for one in refuse_later(self._board.live.vacant(), known.ask.containers)}
        names = known.refusals if nodes is None else sorted(set(nodes))
        unmanaged = NodeRefusal("", NOT_MANAGED, False)
        refusals = tuple(known.refusals.get(name) or msgspec.structs.replace(unmanaged, node=name) for name in names)
        answer = Unplaceable(refusals, summarise(refusals))
        known.answers[listed] = nodes, answer
        if len(known.answers) > LISTS:
            known.answers.popitem(last=False)
        return answer


def _surroundings(fleet: Fleet, name: str) -> NodeInventory | None:
    """What is known of a node beside its devices, their state and its own."""
    number = fleet.node_index.get(name)
    if number is None:
        return None
    bare = {"devices": (), "quarantine": (), "ready": True, "boards": (), "labels": ()}
    return msgspec.structs.replace(fleet.nodes[number], **bare)


def _labels(fleet: Fleet, name: str) -> tuple[tuple[str, str], ...]:
    """Of labels no ask knows but one that prefers nodes."""
    number = fleet.node_index.get(name)
    return () if number is None else fleet.nodes[number].labels


def _plain(ask: Ask) -> bool:
    """Whether an ask is laid out by kinds alone, so that another state of some devices changes nothing in it."""
    return ask.able is None and all(part.able is None for part in ask.parts)


def _shape(request: ComputeRequest) -> ComputeRequest:
    """What matters to placement; pods that differ in the rest share one memory."""
    if request.code_image or request.checkpoint or request.entrypoints or request.runtime:
        vendors = tuple((vendor, "") for vendor, _ in request.entrypoints)
        return msgspec.structs.replace(request, code_image="", checkpoint="", entrypoints=vendors, runtime="")
    return request
