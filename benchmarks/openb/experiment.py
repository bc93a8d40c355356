"""The experiment: tasks arrive in a random order and never leave; each is placed or dropped for good.

Demand is brought to 130 % of the cluster by cloning or removing tasks drawn at random. The order of the nodes, which
breaks ties, is drawn once for a run. After each arrival one sample is taken, and samples are averaged over whole
percents of what has arrived. All after Weng et al., USENIX ATC 2023, and their published simulator.
"""

import random
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import numpy as np
from benchmarks.openb.exchange import Exchange
from benchmarks.openb.trace import CARD, Node, Task

from hcs.model.devices import Device, NodeInventory
from hcs.placement.asks import Ask
from hcs.placement.boards import Board, first_cards, look
from hcs.placement.fleet import Fleet, build_fleet
from hcs.placement.outlook import PUBLISHED, Outlook, look_ahead
from hcs.placement.policies import CPU, POLICIES
from hcs.placement.rows import rows_of
from hcs.placement.scorers import fragments
from hcs.placement.snapshot import Snapshot

ARRIVED: Final = (80, 90, 95, 100, 110, 120, 130)
FRAGMENTED: Final = (50, 70, *ARRIVED)
OVERLOAD: Final = 1.3
LEARNED: Final = 1.3
"""A learned mix is looked at anew whenever so many times as many tasks have come."""
MEMORY: Final = "memory"


class Run(msgspec.Struct):
    """What one run measured, by whole percent arrived."""

    allocation: dict[int, float]
    occupied: dict[int, float]
    fragmentation: dict[int, float]
    decisions: int
    seconds: float
    least_delivered: float = 1.0
    substituted: int = 0


def tune(tasks: Sequence[Task], capacity: int, chance: random.Random, overload: float = OVERLOAD) -> list[Task]:
    """The order of arrival: all tasks, shuffled, with clones at the end or with some missing."""
    arriving = sorted(tasks, key=lambda task: task.name)
    untuned = list(arriving)
    chance.shuffle(arriving)
    target = overload * capacity
    demand = sum(task.demand for task in arriving)
    if not demand:
        return arriving
    while demand < target:
        clone = chance.choice(untuned)
        if demand + clone.milli > target:  # as published: the share of one card, not of all
            break
        arriving.append(clone)
        demand += clone.demand
    while demand > target and len(arriving) > 1:
        demand -= arriving.pop(chance.randrange(len(arriving))).demand
    return arriving


def fleet_of(nodes: Sequence[Node], chance: random.Random) -> Fleet:
    """The cluster, its nodes in a random order: names decide it, so they begin with a number."""
    order = list(nodes)
    chance.shuffle(order)
    return build_fleet(
        NodeInventory(
            name=f"{number:06}-{node.name}",
            devices=tuple(
                Device(
                    id=str(card), index=card, vendor="trace", model=node.model or "any", vram=CARD, verdict="Healthy"
                )
                for card in range(node.cards)
            ),
            capacities=((CPU, node.cpu), (MEMORY, node.memory)),
        )
        for number, node in enumerate(order)
    )


def ask_for(fleet: Fleet, task: Task, exchange: Exchange | None = None) -> Ask:
    """A task as the engine takes it."""
    kinds = [device.model for device in fleet.kinds]
    named = np.array([not task.models or kind in task.models for kind in kinds], dtype=np.bool_)
    cards, share = np.zeros(len(kinds), np.int64), np.zeros(len(kinds), np.int64)
    for number, kind in enumerate(kinds):
        if not task.cards:
            continue
        if named[number]:
            cards[number], share[number] = task.cards, task.milli
        elif exchange is not None:
            cards[number], share[number] = exchange.amounts(task, kind)
    whole = (cards > 1) | (share == CARD)
    needs = {CPU: task.cpu, MEMORY: task.memory}
    return Ask(
        cards=cards,
        bytes=share,
        milliacu=np.zeros_like(cards),
        whole=whole,
        serves=cards > 0,
        substitute=~named,
        share=share,
        needs=np.array([needs[name] for name in fleet.columns], dtype=np.int64),
        thrift=np.zeros_like(cards),
    )


def run(nodes: Sequence[Node], tasks: Sequence[Task], policy: str, seed: int, exchange: Exchange | None = None) -> Run:
    """Play the experiment once."""
    chance = random.Random(seed)
    capacity = CARD * sum(node.cards for node in nodes)
    arriving = tune(tasks, capacity, chance)
    fleet = fleet_of(nodes, chance)
    asks: dict[tuple[object, ...], Ask] = {}

    def ask(task: Task) -> Ask:
        key = task.cpu, task.memory, task.cards, task.milli, task.models
        if key not in asks:
            asks[key] = ask_for(fleet, task, exchange)
        return asks[key]

    known = [(ask(task), 1) for task in tasks]
    chooses = POLICIES[policy]
    board = Board(
        Snapshot.of(fleet), chooses, first_cards, outlook=look(fleet, chooses, () if chooses.learns else known)
    )
    only_cpu = np.array([name == CPU for name in fleet.columns], dtype=np.int64)
    measure = look_ahead(
        fleet, [(msgspec.structs.replace(a, needs=a.needs * only_cpu), n) for a, n in known], PUBLISHED
    )
    samples = _Samples(capacity)
    wasted = _Fragments(board, measure)
    seen: dict[int, tuple[Ask, int]] = {}
    least, substituted, next_look, spent = 1.0, 0, 1.0, 0.0
    for number, task in enumerate(arriving):
        wish = ask(task)
        began = time.perf_counter()
        if chooses.learns:
            seen[id(wish)] = wish, seen.get(id(wish), (wish, 0))[1] + 1
            if number + 1 >= next_look:
                board.forget(look(fleet, chooses, seen.values()))
                next_look = max(next_look * LEARNED, next_look + 20)
        chosen = board.choose(wish, seed=(seed << 32) + 2 * number)
        if chosen is not None:
            board.take(wish, chosen)
        spent += time.perf_counter() - began
        placed = occupied = 0
        if chosen is not None:
            kind = int(board.fleet.kind[chosen.devices[0][0]]) if chosen.devices else 0
            placed, occupied = task.demand, int(wish.cards[kind] * wish.share[kind]) if chosen.devices else 0
            wasted.changed(chosen.group)
            if exchange is not None and chosen.devices and wish.substitute[kind]:
                substituted += 1
                least = min(least, exchange.delivered(task, fleet.kinds[kind].model, occupied))
        samples.add(task.demand, placed, occupied, wasted.percent)
    return Run(
        *samples.by_percent(), decisions=len(arriving), seconds=spent, least_delivered=least, substituted=substituted
    )


class _Samples:
    """One sample after each arrival, averaged by whole percent arrived; an empty percent takes its neighbour's."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._arrived = self._placed = self._occupied = 0
        self._sums: dict[int, list[float]] = {}

    def add(self, arrived: int, placed: int, occupied: int, fragmentation: Callable[[], float]) -> None:
        self._arrived += arrived
        self._placed += placed
        self._occupied += occupied
        percent = int(100 * self._arrived / self._capacity + 0.5)
        sums = self._sums.setdefault(percent, [0, 0.0, 0.0, 0.0])
        sums[0] += 1
        sums[1] += 100 * self._placed / self._capacity
        sums[2] += 100 * self._occupied / self._capacity
        sums[3] += fragmentation()

    def by_percent(self) -> tuple[dict[int, float], dict[int, float], dict[int, float]]:
        def at(column: int, percents: Sequence[int]) -> dict[int, float]:
            found = {}
            for percent in percents:
                nearest = min(self._sums, key=lambda there: (abs(there - percent), there))
                sums = self._sums[nearest]
                found[percent] = sums[column] / sums[0]
            return found

        return at(1, ARRIVED), at(2, ARRIVED), at(3, FRAGMENTED)


class _Fragments:
    """The published measure of fragmentation over the whole cluster, kept up to date group by group."""

    def __init__(self, board: Board, measure: Outlook) -> None:
        self._board, self._measure = board, measure
        rows = rows_of(board.live)
        self._useless = fragments(rows, measure)
        self._idle = rows.free.sum(axis=1)
        self._sums = float(self._useless.sum()), float(self._idle.sum())

    def changed(self, group: int) -> None:
        """A group has another state now."""
        rows = rows_of(self._board.live, np.array([group]))
        useless, idle = float(fragments(rows, self._measure)[0]), float(rows.free.sum())
        self._sums = (
            self._sums[0] + useless - float(self._useless[group]),
            self._sums[1] + idle - float(self._idle[group]),
        )
        self._useless[group], self._idle[group] = useless, idle

    def percent(self) -> float:
        """Of what is idle, how much is of no use."""
        useless, idle = self._sums
        return 100 * useless / max(self._measure.total, 1) / idle if idle else 0.0
