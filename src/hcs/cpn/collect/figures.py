"""One round of questions to a cluster's Prometheus, and what came of it.

All questions of a round are about one moment of the server's clock, so that values, ages and the state of the targets
fit together. What a target exported before it died is left out, also where its samples carry their own times and
Prometheus goes on serving them; and so is what is too old to say anything.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final

import msgspec

from hcs.cpn.collect import queries
from hcs.cpn.collect.cards import CardReading, Series, places_of, read_cards, said, series_of, summary
from hcs.cpn.collect.failures import tidy
from hcs.cpn.collect.prometheus import Answer, Prometheus, QueryError, Sample
from hcs.cpn.collect.sources import Source
from hcs.wide.jobs import Bytes, Milliseconds

MANY: Final = 5000
"""Samples beyond which they are read beside the event loop, for others wait there."""
MAX_TARGETS: Final = 5
"""Dead targets that are named one by one."""

Target = tuple[str, str]
"""Job and instance, as the Prometheus that scraped it labels every series."""


Seconds = Annotated[float, msgspec.Meta(ge=0.05, le=86400)]


class Bounds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """In seconds: ``every``: between rounds; ``stale``: the age beyond which a figure is left out; ``window``: how long
    figures of an exporter that repeats old ones must stand still until they are doubted."""

    every: Seconds = 15.0
    stale: Seconds = 180.0
    window: Seconds = 600.0


class HostReading(msgspec.Struct, frozen=True):
    """What is known of one host: the share of its CPU in use, and bytes of memory free.

    ``places`` are the names and addresses that it is called by; ``node`` is the first of them.
    """

    node: str
    busy: float | None = None
    busy_age: Milliseconds = 0
    free: Bytes | None = None
    free_age: Milliseconds = 0
    places: tuple[str, ...] = ()


class Figures(msgspec.Struct, frozen=True):
    """One round. ``names`` are the metrics that were there, ``jobs`` the scrape jobs they came from."""

    cards: tuple[CardReading, ...] = ()
    hosts: tuple[HostReading, ...] = ()
    missing: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()
    jobs: frozenset[str] = frozenset()


async def ask(
    prometheus: Prometheus, sources: Sequence[Source], bounds: Bounds, known_jobs: frozenset[str] = frozenset()
) -> Figures:
    """Ask everything once.

    Args:
        prometheus: the server.
        sources: the tables of exporters.
        bounds: what is too old.
        known_jobs: scrape jobs that exported our figures before; their dead targets are worth a word.

    Raises:
        QueryError: not even which targets live, or which metrics there are, could be learned.
    """
    matchers = prometheus.matchers
    living = await prometheus.query(queries.living(matchers))
    at = living.at
    up: dict[Target, float | None] = {}
    for sample in living.samples:  # whom one of several servers reaches is alive
        up[_target(sample)] = max(sample.value or 0.0, up.get(_target(sample)) or 0.0)
    names = [name for source in sources for name in source.metrics()]
    found = await prometheus.query(queries.values(names, matchers), at=at)
    present = {sample.labels.get("__name__", "") for sample in found.samples} & set(names)
    pulses = [
        name for source in sources if source.repeats and present.intersection(source.metrics()) for name in source.pulse
    ]
    hosts = [source for source in sources if source.host and source.idle]
    asked = {"ages": queries.ages(present, matchers)} if present else {}
    if pulses:
        asked["still"] = queries.changes(pulses, matchers, f"{bounds.window:g}s")
    for source in hosts:
        asked[f"busy {source.name}"] = queries.busy(source.idle, matchers)
        asked[f"busy age {source.name}"] = queries.busy_age(source.idle, matchers)
    answers = await asyncio.gather(*(prometheus.query(text, at=at) for text in asked.values()), return_exceptions=True)
    told: dict[str, Answer] = {}
    troubles: list[str] = []
    for key, answer in zip(asked, answers, strict=True):
        if isinstance(answer, QueryError):
            troubles.append(answer.refusal.message)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            told[key] = answer
    for answer in (living, found, *told.values()):
        troubles.extend(f"Prometheus warns: {warning}" for warning in answer.warnings)
    if len(found.samples) > MANY:
        return await asyncio.to_thread(_read, sources, bounds, up, found, told, troubles, known_jobs)
    return _read(sources, bounds, up, found, told, troubles, known_jobs)


def _read(
    sources: Sequence[Source],
    bounds: Bounds,
    up: Mapping[Target, float | None],
    found: Answer,
    told: Mapping[str, Answer],
    troubles: list[str],
    known_jobs: frozenset[str],
) -> Figures:
    ages = _ages(told.get("ages", Answer()).samples)
    still = {
        series_of(sample.labels, sample.labels.get(queries.METRIC, "")): sample.value == 0
        for sample in told.get("still", Answer()).samples
    }
    usable: dict[str, list[Sample]] = defaultdict(list)
    dead, old = set[Target](), set[str]()
    for sample in found.samples:
        name = sample.labels.get("__name__", "")
        age = ages.get(series_of(sample.labels, name))
        if _dead(up, sample):
            dead.add(_target(sample))
        elif age is not None and age > bounds.stale:
            old.add(name)
        else:
            usable[name].append(sample)
    cards: list[CardReading] = []
    hosts: list[HostReading] = []
    doubts = list(troubles)
    for source in sources:
        samples = [sample for name in dict.fromkeys(source.metrics()) for sample in usable.get(name, ())]
        if source.host:
            hosts.extend(_hosts(source, samples, ages, told, up, bounds))
        elif samples:
            mine = {series: stood for series, stood in still.items() if series[0] in source.pulse}
            read = read_cards(source, samples, ages, mine, bounds.window)
            cards.extend(read.cards)
            doubts.extend(read.doubts)
    jobs = frozenset(said(sample.labels, "job") for samples in usable.values() for sample in samples) - {""}
    ports = {f":{source.port}" for source in sources if source.port is not None}
    worth = [
        target
        for target, value in up.items()
        if value == 0 and (target in dead or target[0] in jobs | known_jobs or target[1].endswith(tuple(ports)))
    ]
    missing = [f"figures of {name} are older than {bounds.stale:g} s and not used" for name in sorted(old)]
    missing.extend(_down(sorted(worth)))
    return Figures(
        cards=tuple(cards),
        hosts=tuple(hosts),
        missing=summary(missing, 16),
        doubts=summary(doubts, 16),
        names=frozenset(usable),
        jobs=jobs,
    )


def _hosts(
    source: Source,
    samples: Iterable[Sample],
    ages: Mapping[Series, float],
    told: Mapping[str, Answer],
    up: Mapping[Target, float | None],
    bounds: Bounds,
) -> list[HostReading]:
    """Readings of hosts. A rate outlives its exporter for minutes, so it counts only with a fresh sample under it."""
    busy: dict[Host, tuple[float, float]] = {}
    free: dict[Host, tuple[float, float]] = {}
    fresh = {
        frozenset(sample.labels.items()): sample.value
        for sample in told.get(f"busy age {source.name}", Answer()).samples
    }
    for sample in told.get(f"busy {source.name}", Answer()).samples:
        age = fresh.get(frozenset(sample.labels.items()))
        if sample.value is None or age is None or age > bounds.stale or _dead(up, sample):
            continue
        if -0.1 <= sample.value <= 1.0:  # rates are extrapolated: an idle host may come out a little below nothing
            _note(busy, _host(sample, source), max(0.0, sample.value), age)
    for sample in samples:
        age = ages.get(series_of(sample.labels, source.available))
        if sample.labels.get("__name__") != source.available or age is None or sample.value is None:
            continue
        if sample.value >= 0:
            _note(free, _host(sample, source), sample.value, age)
    return [
        HostReading(
            host[0][0],
            busy=busy[host][0] if host in busy else None,
            busy_age=round(busy[host][1] * 1000) if host in busy else 0,
            free=round(free[host][0]) if host in free else None,
            free_age=round(free[host][1] * 1000) if host in free else 0,
            places=host[0],
        )
        for host in sorted({*busy, *free})
    ]


Host = tuple[tuple[str, ...], str]
"""What a host is called, and the target that tells of it: behind one address there may be several hosts."""


def _host(sample: Sample, source: Source) -> Host:
    return places_of(sample.labels, source.node), said(sample.labels, "instance")


def _note(known: dict[Host, tuple[float, float]], host: Host, value: float, age: float) -> None:
    """Of two servers that tell of one host, the fresher counts."""
    if host not in known or age < known[host][1]:
        known[host] = value, max(0.0, age)


def _ages(samples: Iterable[Sample]) -> dict[Series, float]:
    return {
        series_of(sample.labels, sample.labels.get(queries.METRIC, "")): max(0.0, sample.value)
        for sample in samples
        if sample.value is not None
    }


def _target(sample: Sample) -> Target:
    return said(sample.labels, "job"), said(sample.labels, "instance")


def _dead(up: Mapping[Target, float | None], sample: Sample) -> bool:
    """Whether the target it came from does not answer; where nobody says so, it does."""
    labels = sample.labels
    scraped = labels.get("job", ""), labels.get("instance", "")
    return up.get(_target(sample), up.get(scraped, 1.0)) == 0


def _down(targets: Sequence[Target]) -> list[str]:
    told = [
        f"exporter {tidy(instance, 80)} (job {tidy(job, 80)}) is down, so its figures are not used"
        for job, instance in targets[:MAX_TARGETS]
    ]
    if len(targets) > MAX_TARGETS:
        told.append(f"{len(targets) - MAX_TARGETS} more exporters are down")
    return told
