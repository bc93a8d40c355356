"""``hcs fleet``: all cards of the cluster in one view, by node and model.

Compute of different provenance is never added up: what was measured and what a sheet promises are different things.
"""

from collections import Counter
from typing import Final

import msgspec
import numpy as np

from hcs.cli.cluster import Cluster, read_cluster
from hcs.cli.options import Context, Json, Kubeconfig, NoHeaders, Output, chosen_format
from hcs.cli.output import MARK, Column, Table, say, share_of, tell, write_data, write_table
from hcs.model.devices import SOURCES
from hcs.model.quantities import show_acu, show_bytes

UNKNOWN: Final = "unknown"


class Cards(msgspec.Struct, frozen=True, rename="camel"):
    """The cards of one model on one node whose rates are known equally well.

    Memory in bytes, compute in thousandths of an ACU in the default class; ``free`` is what could still be given:
    nothing of a card that is quarantined, foreign or not healthy. ``health`` counts cards by verdict, a quarantined one
    as ``Quarantined``.
    """

    node: str
    vendor: str
    model: str
    count: int
    vram: int
    vram_free: int
    milliacu: int
    milliacu_free: int
    source: str
    health: dict[str, int]
    emulated: bool


class Sum(msgspec.Struct, frozen=True, rename="camel"):
    """Compute of one provenance."""

    source: str
    milliacu: int
    milliacu_free: int


class View(msgspec.Struct, frozen=True, rename="camel"):
    """The fleet."""

    nodes: int
    cards: int
    vram: int
    vram_free: int
    compute: tuple[Sum, ...]
    models: tuple[Cards, ...]


def run(
    output: Output = None,
    json: Json = False,
    no_headers: NoHeaders = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """All cards of the cluster in one view, by node and model.

    1 ACU is 1 % of an A100-SXM4-80GB in dense FP16 matrix multiplication. SOURCE says how a figure is known: measured,
    benchmark (with a caveat), datasheet, or derived.
    """
    format = chosen_format(output, json)
    view = view_of(read_cluster(kubeconfig, context))
    if write_data(view, format, names=[f"{cards.node}/{cards.vendor}/{cards.model}" for cards in view.models]):
        return
    if not view.models:
        tell("no cards: no ComputeNode has any; does the HCS agent run on the nodes?")
        return
    write_table(_table(view), wide=format == "wide", headers=not no_headers)
    if not no_headers:
        say()
        for line in totals(view):
            say(line)


def view_of(cluster: Cluster) -> View:
    """Sum the cards up."""
    snapshot = cluster.snapshot
    fleet = snapshot.fleet
    vram_free = np.where(fleet.usable, snapshot.free_bytes, 0)
    milliacu_free = np.where(fleet.usable, snapshot.free_milliacu, 0)
    groups: dict[tuple[str, str, str, str, bool], list[int]] = {}
    for position, device in enumerate(fleet.devices):
        rate = device.rate()
        source = rate.source if rate else UNKNOWN
        node = fleet.nodes[int(fleet.node[position])].name
        groups.setdefault((node, device.vendor, device.model, source, device.emulated), []).append(position)
    models = tuple(
        Cards(
            node=node,
            vendor=vendor,
            model=model,
            count=len(positions),
            vram=int(fleet.vram[positions].sum()),
            vram_free=int(vram_free[positions].sum()),
            milliacu=int(fleet.milliacu[positions].sum()),
            milliacu_free=int(milliacu_free[positions].sum()),
            source=source,
            health=dict(
                Counter(
                    "Quarantined"
                    if fleet.quarantined[p]
                    else "Foreign"
                    if fleet.foreign[p]
                    else fleet.devices[p].verdict
                    for p in positions
                )
            ),
            emulated=emulated,
        )
        for (node, vendor, model, source, emulated), positions in groups.items()
    )
    return View(
        nodes=len(cluster.inventories),
        cards=len(fleet.devices),
        vram=sum(cards.vram for cards in models),
        vram_free=sum(cards.vram_free for cards in models),
        compute=tuple(
            Sum(
                source,
                sum(cards.milliacu for cards in models if cards.source == source),
                sum(cards.milliacu_free for cards in models if cards.source == source),
            )
            for source in SOURCES
            if any(cards.source == source for cards in models)
        ),
        models=models,
    )


def totals(view: View) -> list[str]:
    """The sums in words; compute by provenance, never mixed."""
    vendors = len({cards.vendor for cards in view.models})
    lines = [
        f"{view.cards} cards of {_count(vendors, 'vendor')} on {_count(view.nodes, 'node')}, "
        f"{show_bytes(view.vram)} of memory, {show_bytes(view.vram_free)} free"
    ]
    lines += [
        f"{show_acu(total.milliacu)} ACU {total.source}, {show_acu(total.milliacu_free)} free" for total in view.compute
    ]
    unknown = sum(cards.count for cards in view.models if cards.source == UNKNOWN)
    if unknown:
        lines.append(f"{_count(unknown, 'card')} of unknown compute: measure them")
    if any(cards.emulated for cards in view.models):
        emulated = sum(cards.count for cards in view.models if cards.emulated)
        lines.append(f"{MARK} {'all' if emulated == view.cards else emulated} of them emulated")
    return lines


def _table(view: View) -> Table:
    return Table(
        (
            Column("NODE"),
            Column("VENDOR"),
            Column("MODEL"),
            Column("CARDS", right=True),
            Column("FREE VRAM", right=True),
            Column("FREE ACU", right=True),
            Column("SOURCE"),
            Column("HEALTH", flexible=True),
        ),
        [
            (
                cards.node,
                cards.vendor,
                cards.model + (MARK if cards.emulated else ""),
                str(cards.count),
                share_of(show_bytes(cards.vram_free), show_bytes(cards.vram)),
                share_of(show_acu(cards.milliacu_free), show_acu(cards.milliacu)) if cards.source != UNKNOWN else "-",
                cards.source,
                _health(cards.health),
            )
            for cards in view.models
        ],
    )


def _health(health: dict[str, int]) -> str:
    """What is wrong, if anything is."""
    total = sum(health.values())
    wrong = [f"{count} of {total} {verdict}" for verdict, count in sorted(health.items()) if verdict != "Healthy"]
    return ", ".join(wrong) or "Healthy"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
