"""The engine proper: which group of devices an ask gets, from scratch or from what is remembered.

:func:`choose` looks at every group, each time: slow, and the measure of what is right. A :class:`Board` gives the same
answers from memory: for each ask it keeps the score of every group and notes which groups changed since. A placement
changes one group, so the next decision scores a few rows anew and takes the largest number of an array.

What is remembered never decides: a board that forgets everything answers the same, only later.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

import msgspec
import numpy as np

from hcs.model.allocations import Allocation
from hcs.placement.asks import CARD, Ask
from hcs.placement.fleet import Fleet, Integers, Mask
from hcs.placement.outlook import Outlook, look_ahead
from hcs.placement.packing import Choice
from hcs.placement.policies import CPU, OUTLOOKS, Chosen, Policy
from hcs.placement.rows import Rows, bare_that_fit, cards_that_fit, rows_of, shares_that_fit
from hcs.placement.snapshot import Snapshot, StrayGrant, apply, moved, tag_of

REMEMBERED: Final = 256
"""Asks whose scores a board keeps; the one longest unused goes first."""
_BATCH: Final = 1024
"""Rows scored at once: enough to be fast, few enough to stay in the processor's cache."""
_DROPPED: Final = -1
_TOGETHER: Final = 1 << 40
"""More than any policy's score: a share goes to the card of its sharing group before all others."""
_LOG: Final = 1 << 17
"""Changes that are noted. Far more than there are groups: an ask that missed so many is scored anew instead."""


class Scores(msgspec.Struct, eq=False):
    """What an ask scores on every group [G], -1 where it does not fit, and the place of the device, -1 for cards."""

    score: Integers
    place: Integers
    seen: int = 0


def look(fleet: Fleet, policy: Policy, mix: Iterable[tuple[Ask, int]]) -> Outlook:
    """The outlook that a policy wants of a mix."""
    if policy.looks == "nowhere":
        return look_ahead(fleet, (), 0.0)
    if policy.looks == "fragments":
        # As published: of the columns, only the CPU counts.
        only = np.array([name == CPU for name in fleet.columns], dtype=np.int64)
        mix = [(msgspec.structs.replace(ask, needs=ask.needs * only), count) for ask, count in mix]
    return look_ahead(fleet, mix, OUTLOOKS[policy.looks])


def score(
    snapshot: Snapshot, ask: Ask, policy: Policy, outlook: Outlook, group: Integers | None = None
) -> tuple[Integers, Integers]:
    """Score some groups; all where none are named.

    Returns:
        For each the score, -1 where the ask does not fit, and the place of the device a share would get, -1 for cards.
    """
    count = len(snapshot.fleet.group_node) if group is None else len(group)
    if count > _BATCH:
        whole = np.arange(count) if group is None else group
        parts = [
            score(snapshot, ask, policy, outlook, whole[begin : begin + _BATCH]) for begin in range(0, count, _BATCH)
        ]
        return np.concatenate([one for one, _ in parts]), np.concatenate([two for _, two in parts])
    rows = rows_of(snapshot, group)
    if ask.compound:
        return _score_compound(rows, ask, policy, outlook), np.full(count, _DROPPED)
    if ask.cardless:
        fits = bare_that_fit(rows, ask)
        scores = policy.cards(rows, ask, np.zeros(rows.free.shape, dtype=np.float64), outlook)
        return np.where(fits, scores, _DROPPED), np.full(count, _DROPPED)
    best, place = np.full(count, _DROPPED), np.full(count, _DROPPED)
    if ask.by_kind.any_shared:
        best, place = _score_shares(rows, ask, policy, outlook)
    if ask.by_kind.any_whole:
        chosen = cards_that_fit(rows, ask)
        scores = np.where(
            chosen.any(axis=1), policy.cards(rows, ask, chosen.astype(np.float64) * CARD, outlook), _DROPPED
        )
        place = np.where(scores > best, _DROPPED, place)
        best = np.maximum(best, scores)
    return best, place


def _score_shares(rows: Rows, ask: Ask, policy: Policy, outlook: Outlook) -> tuple[Integers, Integers]:
    fits = shares_that_fit(rows, ask)
    scores = np.where(fits, policy.shares(rows, ask, fits, outlook), _DROPPED)
    if ask.key:
        scores += _TOGETHER * (fits & (rows.tenants > 0))
    best: Integers = scores.max(axis=1)
    if not policy.snug:
        return best, scores.argmax(axis=1)
    left = np.where(fits & (scores == best[:, None]), rows.free, np.inf)
    return best, left.argmin(axis=1)


def _score_compound(rows: Rows, ask: Ask, policy: Policy, outlook: Outlook) -> Integers:
    """Groups on which each container alone fits; whether all do together is found out when one is chosen."""
    able = np.ones(len(rows.group), dtype=np.bool_)
    some = np.zeros(rows.free.shape, dtype=np.bool_)
    for part in ask.parts:
        fits = shares_that_fit(rows, part) | cards_that_fit(rows, part)
        able &= fits.any(axis=1)
        some |= fits
    wanted = ask.by_kind.cards[rows.row_kind]
    chosen = some & (np.cumsum(some, axis=1) <= wanted[:, None])
    taken = np.where(chosen, np.minimum(rows.free, ask.by_kind.share[rows.row_kind][:, None]), 0.0)
    return np.where(able, policy.cards(rows, ask, taken, outlook), _DROPPED)


Arrange = Callable[[Snapshot, Ask, int], Choice | None]
"""Finds the devices for the containers of an ask in one group, or that there are none."""


def choose(
    snapshot: Snapshot,
    ask: Ask,
    policy: Policy,
    outlook: Outlook,
    arrange: Arrange,
    *,
    nodes: Mask | None = None,
    seed: int = 0,
) -> Chosen | None:
    """Choose among all groups, remembering nothing.

    Args:
        snapshot: what is free.
        ask: laid out for its fleet.
        policy: how to score.
        outlook: as :func:`look` makes it for the policy.
        arrange: finds the devices of several cards or containers.
        nodes: [N] the nodes to choose from; None for all.
        seed: decides for policies that leave it to chance.
    """
    scores, places = score(snapshot, ask, policy, outlook)
    return _take_best(snapshot, ask, policy, scores, places, arrange, nodes, seed)


def _take_best(
    snapshot: Snapshot,
    ask: Ask,
    policy: Policy,
    scores: Integers,
    places: Integers,
    arrange: Arrange,
    nodes: Mask | None,
    seed: int,
) -> Chosen | None:
    """The best group; groups on which nothing can be arranged after all are struck out of ``scores``."""
    if not len(scores):
        return None
    fleet = snapshot.fleet
    while True:
        left = scores if nodes is None else np.where(nodes[fleet.group_node], scores, _DROPPED)
        best = _by_lot(left, seed) if policy.chance else int(left.argmax())
        if left[best] < 0:
            return None
        if ask.cardless:
            return Chosen(best, (), int(scores[best]))
        if policy.chance and not ask.compound and places[best] >= 0:
            rows = rows_of(snapshot, np.array([best]))
            fits = shares_that_fit(rows, ask)[0]
            of_group = fits & (rows.tenants[0] > 0)
            fits = of_group if ask.key and of_group.any() else fits
            place = _by_lot(np.where(fits, 0, _DROPPED), seed + 1)
        else:
            place = int(places[best])
        if place >= 0:
            return Chosen(best, ((int(fleet.group_first[best]) + place,),), int(scores[best]))
        devices = arrange(snapshot, ask, best)
        if devices is not None:
            return Chosen(best, devices, int(scores[best]))
        scores[best] = _DROPPED


def _by_lot(scores: Integers, seed: int) -> int:
    """One of the entries that are not dropped, each with the same chance."""
    able = np.flatnonzero(scores >= 0)
    return int(able[_scrambled(seed) % len(able)]) if len(able) else 0


def _scrambled(number: int) -> int:
    """A number that looks like chance and is always the same for the same one (splitmix64)."""
    bits = (number * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15) & (1 << 64) - 1
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 & (1 << 64) - 1
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB & (1 << 64) - 1
    return bits ^ bits >> 31


def first_cards(snapshot: Snapshot, ask: Ask, group: int) -> Choice | None:
    """Arrange an ask of one container: the first cards of the group that it can have whole."""
    chosen = cards_that_fit(rows_of(snapshot, np.array([group])), ask)[0]
    begin = int(snapshot.fleet.group_first[group])
    return (tuple(begin + int(place) for place in np.flatnonzero(chosen)),) if chosen.any() else None


class Board:
    """A fleet and what is taken of it, which changes, and the scores of asks on it, which are remembered."""

    def __init__(self, snapshot: Snapshot, policy: Policy, arrange: Arrange, *, outlook: Outlook | None = None) -> None:
        """Start from a snapshot, which stays as it is.

        Args:
            snapshot: the fleet and what is taken of it.
            policy: how to score.
            arrange: finds the devices of several cards or containers.
            outlook: what is likely to be asked; by default nothing is known.
        """
        self._live = snapshot.writable()
        self._stray: list[StrayGrant] = list(snapshot.stray)
        self.policy, self._arrange = policy, arrange
        self.outlook = look_ahead(snapshot.fleet, ()) if outlook is None else outlook
        self._known: OrderedDict[int, tuple[Ask, Scores]] = OrderedDict()
        self._changes: list[int] = []
        self._frozen: Snapshot | None = None

    @property
    def fleet(self) -> Fleet:
        """The hardware."""
        return self._live.fleet

    @property
    def live(self) -> Snapshot:
        """The state itself, for a look and not to be kept: it changes."""
        return self._live

    def snapshot(self) -> Snapshot:
        """The state now, as a value."""
        if self._frozen is None:
            self._frozen = self._live.writable().frozen(tuple(sorted(self._stray)))
        return self._frozen

    def choose(self, ask: Ask, *, nodes: Mask | None = None, seed: int = 0) -> Chosen | None:
        """As :func:`choose`, from memory. The ask must be the same object for its memory to be found."""
        scores = self._scores(ask)
        return _take_best(self._live, ask, self.policy, scores.score, scores.place, self._arrange, nodes, seed)

    def add(self, allocation: Allocation) -> None:
        """Hold this allocation as well."""
        self._stray.extend(apply(self._live, allocation, 1))
        self._note(allocation.node)

    def remove(self, allocation: Allocation) -> None:
        """Free an allocation that is held."""
        for grant in apply(self._live, allocation, -1):
            self._stray.remove(grant)
        self._note(allocation.node)

    def take(self, ask: Ask, chosen: Chosen) -> None:
        """Give an ask what was chosen for it, without a record of whose it is: for simulations."""
        live, fleet = self._live, self.fleet
        node = int(fleet.group_node[chosen.group])
        for devices in chosen.devices:
            for position in devices:
                kind = fleet.kind[position]
                whole = bool(ask.whole[kind])
                live.used[:, position] += ask.bytes[kind], ask.milliacu[kind], 1, whole, 0 if whole else ask.key
        if not ask.cardless:
            live.hosts[tag_of(sum(map(len, chosen.devices)) if ask.whole.any() else 0), chosen.group] += 1
        live.taken[node] += ask.needs
        self._noted(node)

    def forget(self, outlook: Outlook | None = None) -> None:
        """Drop all that is remembered, and look ahead anew."""
        self.outlook = self.outlook if outlook is None else outlook
        self._known.clear()
        self._changes.clear()

    def adopt(self, fleet: Fleet, name: str, held: Iterable[Allocation]) -> bool:
        """Go on with a fleet that differs in one node.

        Args:
            fleet: the new one.
            name: the node that is new, changed or gone.
            held: the allocations on it.

        Returns:
            Whether what is remembered holds: the kinds, the columns and the groups are the same. Else the caller
            forgets, and lays its asks out anew.
        """
        before, live = self._live.fleet, self._live
        kept = (
            fleet.kinds == before.kinds
            and fleet.columns == before.columns
            and fleet.node_index.keys() == before.node_index.keys()
            and np.array_equal(fleet.group_first, before.group_first)
        )
        self._stray = [grant for grant in self._stray if grant.node != name]
        self._live = moved(live, fleet, name)
        for allocation in held:
            self._stray.extend(apply(self._live, allocation, 1))
        self._frozen = None
        self._note(name)
        return kept

    def _note(self, node: str) -> None:
        self._frozen = None
        number = self.fleet.node_index.get(node)
        if number is not None:
            self._noted(number)

    def _noted(self, node: int) -> None:
        self._frozen = None
        first = self.fleet.first_group
        self._changes.extend(range(int(first[node]), int(first[node + 1])))
        if len(self._changes) > _LOG:
            self._shorten()

    def _shorten(self) -> None:
        """Forget the older half of the changes, and those asks that have not seen them."""
        half = _LOG // 2
        for key, (_, known) in list(self._known.items()):
            if known.seen < half:
                del self._known[key]
            known.seen -= half
        del self._changes[:half]

    def _scores(self, ask: Ask) -> Scores:
        found = self._known.get(id(ask))
        if found is None:
            known = Scores(*score(self._live, ask, self.policy, self.outlook), len(self._changes))
            self._known[id(ask)] = ask, known
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
            return known
        self._known.move_to_end(id(ask))
        known = found[1]
        if known.seen < len(self._changes):
            self._refresh(ask, known)
        return known

    def _refresh(self, ask: Ask, known: Scores) -> None:
        """Score what changed since; when that is a fair part of all, all."""
        changed = self._changes[known.seen :]
        groups = np.array(sorted(set(changed)), dtype=np.int64)
        known.score[groups], known.place[groups] = score(self._live, ask, self.policy, self.outlook, groups)
        known.seen = len(self._changes)
