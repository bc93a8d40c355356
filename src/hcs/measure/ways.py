"""The ways between cards as they were measured, made ready for whoever places by them.

A copy is timed in each direction alone; a way's bandwidth is both added, as everywhere in this project. Figures that
differ by less than a measurement's error are made one figure, with two digits: what differs by noise must not look like
a better way, and nodes that are wired the same should look the same. Pure.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from hcs.measure.results import Result
from hcs.model.devices import Device, Link

SAME: Final = 0.05
"""Ways that differ by at most this part are the same."""
_TO, _FROM = "p2p_to_", "p2p_from_"

Pair = frozenset[str]


def tried(results: Iterable[Result]) -> frozenset[Pair]:
    """The pairs of cards between which a copy was timed, or found to be impossible."""
    return frozenset(frozenset((result.device, peer)) for result in results for peer in peers_of(result))


def peers_of(result: Result) -> frozenset[str]:
    """The cards that a result tells of beside its own."""
    named = {*(figure.peer for figure in result.figures), *(failure.peer for failure in result.failures)}
    return frozenset(named - {""})


def measured_ways(results: Iterable[Result]) -> dict[Pair, int]:
    """Megabytes per second of each pair that was measured in both directions, both added; only from steady figures."""
    directions: dict[Pair, dict[tuple[str, str], float]] = {}
    for result in sorted(results, key=lambda result: result.measured):
        for figure in result.figures:
            if not figure.peer or not figure.steady:
                continue
            ends = (result.device, figure.peer) if figure.metric.startswith(_TO) else (figure.peer, result.device)
            directions.setdefault(frozenset(ends), {})[ends] = figure.value
    whole = {pair: sum(found.values()) * 1000 for pair, found in directions.items() if len(found) == 2}
    return _alike(whole)


def with_ways(device: Device, ways: Mapping[Pair, int]) -> Device:
    """The card with what was measured beside each of its links; a way that no tool named has no word."""
    mine = {next(iter(pair - {device.id})): mbps for pair, mbps in ways.items() if device.id in pair and len(pair) == 2}
    links = [
        msgspec.structs.replace(link, mbps=mine.pop(link.peer)) if link.peer in mine else link for link in device.links
    ]
    links += [Link(peer, "", mbps) for peer, mbps in sorted(mine.items())]
    return msgspec.structs.replace(device, links=tuple(links))


def _alike(values: dict[Pair, float]) -> dict[Pair, int]:
    found: dict[Pair, int] = {}
    group: list[Pair] = []
    for pair in [*sorted(values, key=lambda pair: (values[pair], sorted(pair))), None]:
        if pair is not None and (not group or values[pair] <= values[group[0]] * (1 + SAME)):
            group.append(pair)
            continue
        middle = _two_digits(values[group[len(group) // 2]]) if group else 0
        found.update(dict.fromkeys(group, middle))
        group = [pair] if pair is not None else []
    return found


def _two_digits(value: float) -> int:
    """
    >>> _two_digits(263_412.0), _two_digits(7.0)
    (260000, 7)
    """
    return int(float(f"{value:.1e}"))
