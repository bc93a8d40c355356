"""Figures put to the cards they are about, and what is missing said where it is missed.

Exporters and the API name cards and nodes in their own ways. A card is found by its id, or by its node and number; a
node by any of its names and addresses. Where that does not lead to one model, what the exporter calls the model is
looked up, and where even that says nothing, the vendor's only model of the cluster is meant. Anything else stays out.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from hcs.cpn.collect.cards import CardReading, summary
from hcs.cpn.collect.figures import Figures, HostReading
from hcs.cpn.collect.inventory import Card, Inventory, Machine
from hcs.cpn.collect.places import Places
from hcs.cpn.collect.sources import Source
from hcs.cpn.views import PoolView, Reading
from hcs.ura.catalogue import CardError, load_catalogue
from hcs.wide.jobs import Milliseconds

_FAR_OFF: Final = 1.25
"""A total that differs from the card's memory by more than this factor is in another unit, or of another card."""
_UNIQUE: Final = 16
"""Characters from which on an id is not a number in its node, but one that no other card has."""


Uses = tuple[Reading | None, Reading | None, Reading | None]


class Joined(msgspec.Struct, frozen=True):
    """A cluster's figures by pool: use of cards, of their memory, of their hosts' CPU.

    ``cards`` are all readings, with the node's name where it is known. ``sick`` counts unhealthy cards by (node,
    vendor).
    """

    pools: dict[str, Uses] = {}
    cards: tuple[CardReading, ...] = ()
    busy: Reading | None = None
    free: Reading | None = None
    missing: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    sick: dict[tuple[str, str], int] = {}


def join(
    figures: Figures,
    stock: Inventory,
    machines: Mapping[str, Machine],
    sources: Sequence[Source],
    *,
    settled: bool,
    node_of_pod: Callable[[str], str | None] = lambda address: None,
) -> Joined:
    """Put figures and cards together.

    Args:
        figures: the newest round.
        stock: the cards.
        machines: the nodes, by name.
        sources: the tables of exporters, for what to look at when something is missing.
        settled: whether the cards are all known; before, nobody can say which figures are missing.
        node_of_pod: the node of the pod that has an address.
    """
    places = Places(machines, node_of_pod)
    finder = _Finder(stock)
    doubts = list(figures.doubts)
    best: dict[tuple[str, str, str, str], tuple[CardReading, str]] = {}
    for reading in figures.cards:
        node = places.node(reading.places or (reading.node,))
        placed = msgspec.structs.replace(reading, node=node or reading.node)
        card = finder.card(placed)
        kind = card.kind if card is not None else finder.kind(placed)
        if card is not None:
            placed = msgspec.structs.replace(placed, node=card.node, device=card.id)
            placed = _believed(placed, card, doubts)
        elif not kind and settled:
            doubts.append(f"{reading.source} tells of {reading.vendor} cards that are none of this cluster's")
        key = (placed.vendor, placed.node, placed.instance, placed.device)
        if node or card is not None:
            key = (placed.vendor, placed.node, "", placed.device)
        elif len(placed.device) >= _UNIQUE:
            key = (placed.vendor, "", "", placed.device)
        before = best.get(key)
        best[key] = (_merge(before[0], placed) if before is not None else placed), kind
    readings = tuple(reading for reading, _ in best.values())
    by_kind = defaultdict[str, list[CardReading]](list)
    for reading, kind in best.values():
        if kind:
            by_kind[kind].append(reading)
    sick = Counter((reading.node, reading.vendor) for reading in readings if reading.healthy is False)
    doubts.extend(f"{vendor} cards of node {node} are unhealthy by their metrics" for node, vendor in sick)
    hosts = _hosts_of_cards(figures.hosts, places, stock)
    return Joined(
        pools={
            pool.kind: (*_pool_readings(by_kind.get(pool.kind, ())), _busy_beside(pool.kind, hosts, stock))
            for pool in stock.pools
        },
        cards=readings,
        busy=_mean((host.busy, host.busy_age) for host in hosts),
        free=_most((host.free, host.free_age) for host in hosts),
        missing=summary((*figures.missing, *(_missing(stock, by_kind, hosts, sources) if settled else ())), 24),
        doubts=summary(doubts, 16),
        sick=dict(sick),
    )


def aged(reading: Reading | None, by: Milliseconds, stale: Milliseconds) -> Reading | None:
    """A reading some time later; None once it is too old to say anything.

    One that was given a greater age than that, because its exporter may be repeating itself, is shown with it.
    """
    if reading is None or by > stale:
        return None
    older = reading.age + max(0, by)
    return None if reading.age <= stale < older else Reading(reading.value, older)


class _Finder:
    """The card, or at least the model, that a reading is about."""

    def __init__(self, stock: Inventory) -> None:
        self._by_place = {(card.node, card.id): card for card in stock.cards}
        self._by_number = {(card.vendor, card.node, card.index): card for card in stock.cards}
        by_id = defaultdict[str, list[Card]](list)
        for card in stock.cards:
            by_id[card.id].append(card)
        self._by_id = {id: cards[0] for id, cards in by_id.items() if len(cards) == 1}
        self._kinds = defaultdict[str, set[str]](set)
        self._kinds_of_node = defaultdict[tuple[str, str], set[str]](set)
        for kind, vendor in stock.vendors.items():
            self._kinds[vendor].add(kind)
        for node, kind in stock.by_node:
            self._kinds_of_node[node, stock.vendors[kind]].add(kind)

    def card(self, reading: CardReading) -> Card | None:
        found = self._by_place.get((reading.node, reading.device)) or self._by_id.get(reading.device)
        if found is None and reading.index is not None:
            found = self._by_number.get((reading.vendor, reading.node, reading.index))
        return found if found is not None and found.vendor == reading.vendor else None

    def kind(self, reading: CardReading) -> str:
        here = self._kinds_of_node.get((reading.node, reading.vendor), set())
        if len(here) == 1:
            return next(iter(here))
        every = self._kinds.get(reading.vendor, set())
        if reading.model:
            try:
                model = load_catalogue().find(reading.model[:80], reading.vendor, vram=reading.total).model
            except CardError:
                model = reading.model
            if model in every:
                return model
        return next(iter(every)) if len(every) == 1 else ""


def _believed(reading: CardReading, card: Card, doubts: list[str]) -> CardReading:
    """Without memory figures that this card cannot have."""
    off = reading.total is not None and not 1 / _FAR_OFF <= reading.total / max(1, card.memory) <= _FAR_OFF
    if off or (reading.used is not None and reading.used > card.memory * _FAR_OFF):
        doubts.append(
            f"{reading.source} tells of memory that {card.kind} does not have; it is left out, its unit may be another "
            "than the metrics file says"
        )
        return msgspec.structs.replace(reading, used=None, total=None)
    return reading


def _merge(one: CardReading, other: CardReading) -> CardReading:
    """Two exporters about one card: the fresher counts, the other fills what it lacks."""
    fresh, old = (one, other) if one.age <= other.age else (other, one)
    fills = {
        field: getattr(old, field)
        for field in ("used", "total", "utilization", "healthy")
        if getattr(fresh, field) is None and getattr(old, field) is not None
    }
    return msgspec.structs.replace(fresh, age=old.age, **fills) if fills else fresh


def _pool_readings(readings: Iterable[CardReading]) -> tuple[Reading | None, Reading | None]:
    readings = list(readings)
    return (
        _mean((one.utilization, one.age) for one in readings),
        _mean((None if one.used is None else float(one.used), one.age) for one in readings),
    )


def _busy_beside(kind: str, hosts: Sequence[HostReading], stock: Inventory) -> Reading | None:
    """How busy the CPUs of the hosts with usable cards of a model are; of all hosts where none can be told apart."""
    known = {node for node, _ in stock.by_node}
    here = {node for (node, of), count in stock.by_node.items() if of == kind and count}
    apart = any(host.node in known for host in hosts)
    return _mean((host.busy, host.busy_age) for host in hosts if host.node in here or not apart)


def _mean(values: Iterable[tuple[float | None, Milliseconds]]) -> Reading | None:
    """The mean, as old as the oldest in it."""
    known = [(value, age) for value, age in values if value is not None]
    if not known:
        return None
    return Reading(sum(value for value, _ in known) / len(known), max(age for _, age in known))


def _most(values: Iterable[tuple[int | None, Milliseconds]]) -> Reading | None:
    known = [(value, age) for value, age in values if value is not None]
    if not known:
        return None
    value, age = max(known, key=lambda one: one[0])
    return Reading(float(value), age)


def _hosts_of_cards(hosts: Iterable[HostReading], places: Places, stock: Inventory) -> list[HostReading]:
    """The hosts that have cards; all of them where none can be told apart."""
    every = [
        msgspec.structs.replace(host, node=places.node(host.places or (host.node,)) or host.node) for host in hosts
    ]
    with_cards = {node for node, _ in stock.by_node} | {card.node for card in stock.cards}
    return [host for host in every if host.node in with_cards] or every


def _missing(
    stock: Inventory,
    by_kind: Mapping[str, Sequence[CardReading]],
    hosts: Sequence[HostReading],
    sources: Sequence[Source],
) -> Iterable[str]:
    for pool in stock.pools:
        if pool.usable:
            yield from _missing_of_pool(pool, stock.vendors[pool.kind], by_kind.get(pool.kind, ()), sources)
    of_hosts = [source for source in sources if source.host]
    told = _advice(of_hosts)
    if of_hosts and not any(host.busy is not None for host in hosts):
        yield f"the CPU use of hosts is not known: no {' or '.join(source.idle for source in of_hosts)}; {told}"
    if of_hosts and not any(host.free is not None for host in hosts):
        yield f"free host memory is not known: no {' or '.join(source.available for source in of_hosts)}; {told}"


def _missing_of_pool(
    pool: PoolView, vendor: str, readings: Sequence[CardReading], sources: Sequence[Source]
) -> Iterable[str]:
    able = [source for source in sources if source.vendor == vendor or source.vendor_label]
    busy = [source.utilization.metrics[0] for source in able if source.utilization is not None]
    used = [source.used.metrics[0] for source in able if source.used is not None]
    known_busy = sum(one.utilization is not None for one in readings)
    known_used = sum(one.used is not None for one in readings)
    advice = _advice(able)
    if known_busy == known_used == 0:
        yield (
            f"utilisation and memory in use of {pool.kind} are not known: no {_either(busy)} and no {_either(used)}; "
            f"{advice}"
        )
        return
    for what, known, metrics in (("utilisation", known_busy, busy), ("memory in use", known_used, used)):
        if known == 0:
            yield f"{what} of {pool.kind} is not known: no {_either(metrics)}; {advice}"
        elif known < pool.usable:
            yield f"{what} is known of {known} of {pool.usable} {pool.kind} only; {advice}"


def _either(metrics: Sequence[str]) -> str:
    return " or ".join(metrics) or "metric of this name"


def _advice(sources: Sequence[Source]) -> str:
    named = [
        f"{source.name} (port {source.port})" if source.port is not None else source.name
        for source in reversed(sources)
    ]
    return f"let its Prometheus scrape {' or '.join(named)}" if named else "no exporter of this vendor is known"
