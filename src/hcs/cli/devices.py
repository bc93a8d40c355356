"""``hcs devices``: one row a card."""

from typing import Annotated, Final

import msgspec
import typer

from hcs.cli.cluster import Cluster, read_cluster
from hcs.cli.options import Context, Json, Kubeconfig, NoHeaders, Output, chosen_format
from hcs.cli.output import Column, Table, tell, write_data, write_table
from hcs.model.devices import Device, Quarantine
from hcs.model.quantities import show_acu, show_bytes

_SHOWN_TENANTS: Final = 3


class Row(msgspec.Struct, frozen=True, rename="camel"):
    """A card with what is taken of it: ``vram_used`` bytes, ``milliacu_used`` thousandths of an ACU."""

    node: str
    device: Device
    vram_used: int
    milliacu_used: int
    tenants: tuple[str, ...]
    quarantine: Quarantine | None = None


def run(
    node: Annotated[str | None, typer.Option("--node", help="Only the cards of this node.", metavar="NAME")] = None,
    vendor: Annotated[str | None, typer.Option("--vendor", help="Only the cards of this vendor.")] = None,
    output: Output = None,
    json: Json = False,
    no_headers: NoHeaders = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """One row a card: memory used and there, tenants, verdict, and why it is quarantined if it is."""
    format = chosen_format(output, json)
    rows = [
        row
        for row in rows_of(read_cluster(kubeconfig, context))
        if node in (None, row.node) and vendor in (None, row.device.vendor)
    ]
    if write_data(rows, format, names=[f"{row.node}/{row.device.id}" for row in rows]):
        return
    if not rows:
        tell("no cards" + (f" on node {node}" if node else "") + (f" of vendor {vendor}" if vendor else ""))
        return
    write_table(_table(rows), wide=format == "wide", headers=not no_headers)


def rows_of(cluster: Cluster) -> list[Row]:
    """All cards, by node and index."""
    snapshot = cluster.snapshot
    fleet = snapshot.fleet
    tenants: dict[tuple[str, str], list[str]] = {}
    for pod, held in cluster.held.values():
        for id in held.devices():
            tenants.setdefault((held.node, id), []).append(pod.key)
    rows = []
    for position, device in enumerate(fleet.devices):
        inventory = fleet.nodes[int(fleet.node[position])]
        rows.append(
            Row(
                node=inventory.name,
                device=device,
                vram_used=int(snapshot.used[0, position]),
                milliacu_used=int(snapshot.used[1, position]),
                tenants=tuple(sorted(tenants.get((inventory.name, device.id), ()))),
                quarantine=inventory.quarantined(device.id),
            )
        )
    return sorted(rows, key=lambda row: (row.node, row.device.vendor, row.device.index, row.device.id))


def _table(rows: list[Row]) -> Table:
    return Table(
        (
            Column("NODE"),
            Column("INDEX", right=True),
            Column("ID"),
            Column("VENDOR"),
            Column("MODEL"),
            Column("USED", right=True),
            Column("VRAM", right=True),
            Column("ACU USED", right=True, wide=True),
            Column("ACU", right=True, wide=True),
            Column("SOURCE", wide=True),
            Column("NUMA", right=True, wide=True),
            Column("BUS", wide=True),
            Column("TENANTS"),
            Column("VERDICT"),
            Column("QUARANTINE"),
        ),
        [_cells(row) for row in rows],
    )


def _cells(row: Row) -> tuple[str, ...]:
    device, rate = row.device, row.device.rate()
    verdict = device.verdict + (f" ({device.verdict_reason})" if device.verdict_reason else "")
    return (
        row.node,
        str(device.index),
        device.id,
        device.vendor,
        device.model + (" (emulated)" if device.emulated else ""),
        show_bytes(row.vram_used),
        show_bytes(device.vram),
        show_acu(row.milliacu_used),
        show_acu(rate.milliacu) if rate else "-",
        rate.source if rate else "-",
        "-" if device.numa is None else str(device.numa),
        device.bus_id or "-",
        _tenants(row.tenants) if not device.foreign else "held outside HCS",
        verdict,
        f"{row.quarantine.reason} (by {row.quarantine.by or 'someone'})" if row.quarantine else "-",
    )


def _tenants(tenants: tuple[str, ...]) -> str:
    shown = ", ".join(tenants[:_SHOWN_TENANTS])
    more = f" and {len(tenants) - _SHOWN_TENANTS} more" if len(tenants) > _SHOWN_TENANTS else ""
    return shown + more or "-"
