"""From an exporter's samples to one reading of each card: node, device, bytes, busy share, age, health.

Exporters differ in names, units and labels, and some say things that are not so. A figure that cannot be right, because
it is above its total, negative, or no card's memory in the unit it should have, is left out, and a sentence says so.
Nothing is filled in: a figure has a sample behind it, and an age.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from hcs.cpn.collect.failures import tidy
from hcs.cpn.collect.plugins import UNITS
from hcs.cpn.collect.prometheus import Metric, Sample
from hcs.cpn.collect.queries import METRIC
from hcs.cpn.collect.sources import BY_TOTAL, Health, Memory, Source
from hcs.health.faults import classify
from hcs.ura.naming import vendor_word
from hcs.wide.jobs import Bytes, Milliseconds

LEAST_CARD: Final = 256 << 20
MOST_CARD: Final = 4 << 40
"""Bytes between which the memory of a card lies, for a stated unit to be believed."""
_GUESSED: Final = (2 << 30, 1 << 40)
_GUESSES: Final = ("B", "KiB", "MiB")
_SLACK: Final = 1.001
_MAX_CODE: Final = 1 << 40
_TOGETHER: Final = 2.0
"""Seconds within which samples were taken at once."""

Series = tuple[str, frozenset[tuple[str, str]]]
"""The name of a metric, and all other labels."""


class CardReading(msgspec.Struct, frozen=True):
    """What one exporter says of one card. ``utilization`` is 0 to 1; None is not known.

    ``node`` is what the exporter calls the node: a name or an address, the first of ``places``, which are all it calls
    it. ``index`` is the driver's number, ``instance`` the target that was scraped. ``lag``: by so much longer the
    exporter may have known what it said, in milliseconds.
    """

    source: str
    vendor: str
    node: str
    device: str
    index: int | None = None
    model: str = ""
    used: Bytes | None = None
    total: Bytes | None = None
    utilization: float | None = None
    healthy: bool | None = None
    age: Milliseconds = 0
    instance: str = ""
    places: tuple[str, ...] = ()
    lag: Milliseconds = 0


class Read(msgspec.Struct, frozen=True):
    """Readings of one source, and what was not believed."""

    cards: tuple[CardReading, ...] = ()
    doubts: tuple[str, ...] = ()


def series_of(labels: Metric, name: str) -> Series:
    """What a sample is told from others by, when its metric's name may stand in one of several labels."""
    return name, frozenset((key, value) for key, value in labels.items() if key not in ("__name__", METRIC))


def said(labels: Mapping[str, str], name: str) -> str:
    """A label as the exporter's own server gave it: one that reads from that server may have put it aside.

    >>> said({"instance": "prometheus:9090", "exported_instance": "10.0.0.1:9400"}, "instance")
    '10.0.0.1:9400'
    """
    return labels.get(f"exported_{name}") or labels.get(name, "")


def places_of(labels: Mapping[str, str], names: Iterable[str]) -> tuple[str, ...]:
    """What these labels call the node, a name or an address without a port, in this order; at least one text.

    >>> places_of({"Hostname": "dcgm-exporter-x7k2p", "instance": "10.0.0.1:9400"}, ("Hostname", "node", "instance"))
    ('dcgm-exporter-x7k2p', '10.0.0.1')
    """
    return tuple(dict.fromkeys(_host(text) for name in names if (text := said(labels, name)))) or ("",)


def _host(text: str) -> str:
    host, colon, port = text.rpartition(":")
    return (host if colon and port.isdecimal() and (":" not in host or host.startswith("[")) else text).strip("[]")


def read_cards(
    source: Source, samples: Iterable[Sample], ages: Mapping[Series, float], still: Mapping[Series, bool], window: float
) -> Read:
    """Read one source.

    Args:
        source: its table.
        samples: of all its metrics, from targets that are alive, with ages within bounds.
        ages: of each series, in seconds.
        still: whether each pulse stood still over the window; only for sources that repeat old values.
        window: that window, in seconds.
    """
    doubts: dict[str, None] = {}
    found: dict[tuple[str, str, str, str], _Card] = {}
    wanted = set(source.metrics())
    for sample in samples:
        name = sample.labels.get("__name__", "")
        if name not in wanted:
            continue
        age = ages.get(series_of(sample.labels, name))
        device = next((sample.labels[key] for key in source.identity if sample.labels.get(key)), "")
        if not device:
            doubts[f"a series of {name} has none of the labels {', '.join(source.identity)}, which name a card"] = None
        if age is None or not device:
            continue
        if sample.value is None:
            doubts[f"{name} has values that are no numbers; they count as missing"] = None
            continue
        vendor = source.vendor or vendor_word(sample.labels.get(source.vendor_label, "")[:40])
        places, instance = places_of(sample.labels, source.node), said(sample.labels, "instance")
        card = found.setdefault((vendor, places[0], instance, device), _Card(vendor, places, device, sample.labels))
        card.note(name, next((sample.labels[key] for key in source.part if sample.labels.get(key)), ""), sample, age)
    frozen = _frozen(source, still)
    cards = []
    for card in found.values():
        reading = card.read(source, doubts)
        if (card.node, card.device) in frozen:
            reading = msgspec.structs.replace(reading, age=max(reading.age, round(window * 1000)))
            doubts[
                f"{source.name} has said the same of some cards for {window:g} s; it may be repeating old values, as "
                "it does when it can read no new ones"
            ] = None
        cards.append(reading)
    return Read(tuple(sorted(cards, key=lambda one: (one.node, one.instance, one.device))), tuple(doubts))


class _Card:
    """The samples of one card."""

    def __init__(self, vendor: str, places: tuple[str, ...], device: str, labels: Metric) -> None:
        self.vendor, self.node, self.places, self.device, self.labels = vendor, places[0], places, device, labels
        self._values: dict[str, dict[str, list[tuple[float, float]]]] = {}

    def note(self, metric: str, part: str, sample: Sample, age: float) -> None:
        """Take one series in; ``part`` is the slice of the card that it is about, empty: all of it."""
        assert sample.value is not None
        self._values.setdefault(metric, {}).setdefault(part, []).append((sample.value, age))

    def read(self, source: Source, doubts: dict[str, None]) -> CardReading:
        ages: list[float] = []
        utilization = self._utilization(source, ages, doubts)
        used, total = self._memory(source, ages, doubts)
        healthy = self._health(source.health, ages, doubts) if source.health is not None else None
        index = next((self.labels[key] for key in source.index if self.labels.get(key)), "")
        return CardReading(
            source=source.name,
            vendor=self.vendor,
            node=self.node,
            device=self.device,
            index=int(index) if index.isascii() and index.isdecimal() and len(index) < 6 else None,
            model=next((self.labels[key] for key in source.model if self.labels.get(key)), ""),
            used=used,
            total=total,
            utilization=utilization,
            healthy=healthy,
            age=max(0, round(max(ages, default=0.0) * 1000)),
            instance=said(self.labels, "instance"),
            places=self.places,
            lag=round(source.lag * 1000),
        )

    def _take(self, metrics: Iterable[str], ages: list[float], *, add: bool) -> tuple[float | None, bool]:
        """The value of the first of these metrics that is there, and whether it is about the whole card.

        Of a card in parts, it is their sum or the largest.
        """
        for name in metrics:
            if parts := self._values.get(name):
                whole = "" in parts
                chosen = [_latest(series) for series in ([parts[""]] if whole else parts.values())]
                ages.extend(age for _, age in chosen)
                numbers = [value for value, _ in chosen]
                return sum(numbers) if add else max(numbers), whole
        return None, True

    def _utilization(self, source: Source, ages: list[float], doubts: dict[str, None]) -> float | None:
        if source.utilization is None:
            return None
        value, _ = self._take(source.utilization.metrics, ages, add=False)
        if value is None:
            return None
        share = value / source.utilization.full
        if not 0 <= share <= _SLACK:
            doubts[
                f"{source.utilization.metrics[0]} is not always in 0 to {source.utilization.full:g}; that is left out"
            ] = None
            return None
        return min(1.0, share)

    def _memory(self, source: Source, ages: list[float], doubts: dict[str, None]) -> tuple[Bytes | None, Bytes | None]:
        used, _ = self._amount(source.used, ages)
        free, whole_free = self._amount(source.free, ages)
        total, whole_total = self._amount(source.total, ages)
        if total is None and used is not None and free is not None:
            total = used + free  # DCGM exports no total of its own
        unit = _unit(source, total)
        name = source.used.metrics[0] if source.used is not None else source.name
        if unit is None:
            if used is not None or total is not None:
                doubts[f"{name}: no unit makes its total the memory of a card; {_TELL}"] = None
            return None, None
        if total is not None and not LEAST_CARD <= total * unit <= MOST_CARD:
            stated = source.used.unit if source.used is not None else "B"
            doubts[f"{name}: counted in {stated}, its total is no card's memory, so it is left out; {_TELL}"] = None
            return None, None
        if used is not None and used < 0:
            doubts[f"{name} is negative on some cards; it is left out"] = None
            used = None
        if used is not None and total is not None and used > total * _SLACK:
            doubts[f"{name} is above the total on some cards; it is left out"] = None
            used = None
        if not (whole_free and whole_total):
            total = None  # of a card in slices, some of it may be in none
        return (None if used is None else round(used * unit), None if total is None else round(total * unit))

    def _amount(self, memory: Memory | None, ages: list[float]) -> tuple[float | None, bool]:
        return (None, True) if memory is None else self._take(memory.metrics, ages, add=True)

    def _health(self, health: Health, ages: list[float], doubts: dict[str, None]) -> bool | None:
        value, _ = self._take(health.metrics, ages, add=False)
        if value is None:
            return None
        if health.codes_of:
            code = int(value) if value == int(value) and 0 <= value < _MAX_CODE else -1
            return None if code < 0 else classify(health.codes_of, code).verdict != "Failed"
        if value in health.healthy:
            return True
        if value in health.unhealthy:
            return False
        doubts[f"{health.metrics[0]} has the value {value:g}, whose meaning is not known"] = None
        return None


def _latest(series: list[tuple[float, float]]) -> tuple[float, float]:
    """Value and age of series that differ only by who uses the card, or by who asked the exporter.

    The freshest count: samples with their own times outlive the pod that a label of theirs names. Of those the larger
    value is the safer one.
    """
    youngest = min(age for _, age in series)
    together = [one for one in series if one[1] <= youngest + _TOGETHER]
    return max(value for value, _ in together), max(age for _, age in together)


_TELL: Final = "say its unit in the metrics file (docs/cpn-collecting.md)"


def _unit(source: Source, total: float | None) -> int | None:
    """Bytes of one unit of memory; None where it can only be told from a total, and none fits."""
    stated = next((part.unit for part in (source.used, source.total, source.free) if part is not None), "B")
    if stated != BY_TOTAL:
        return UNITS[stated]
    fits = [UNITS[unit] for unit in _GUESSES if total is not None and _GUESSED[0] <= total * UNITS[unit] <= _GUESSED[1]]
    return fits[0] if len(fits) == 1 else None


def _frozen(source: Source, still: Mapping[Series, bool]) -> set[tuple[str, str]]:
    """The cards (node, device) none of whose pulses moved."""
    moved: dict[tuple[str, str], bool] = {}
    for (_, labels), stood in still.items():
        known = dict(labels)
        device = next((known[key] for key in source.identity if known.get(key)), "")
        place = places_of(known, source.node)[0], device
        moved[place] = moved.get(place, False) or not stood
    return {place for place, moves in moved.items() if not moves}


def summary(doubts: Iterable[str], limit: int = 8) -> tuple[str, ...]:
    """Sentences fit to be shown: one line each, each once, not endless."""
    told = sorted({tidy(doubt, 300) for doubt in doubts})
    return tuple(told) if len(told) <= limit else (*told[: limit - 1], f"and {len(told) - limit + 1} more of this kind")
