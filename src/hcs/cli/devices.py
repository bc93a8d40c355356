"""``hcs devices``: one row a card."""

from typing import Annotated, Final

import msgspec
import typer

from hcs.cli.cluster import Cluster, read_cluster
from hcs.cli.options import Context, Json, Kubeconfig, NoHeaders, Output, chosen_format
from hcs.cli.output import MARK, Column, Table, say, share_of, tell, write_data, write_table
from hcs.model.devices import Device, Quarantine
from hcs.model.quantities import show_acu, show_bytes

_SHOWN_TENANTS: Final = 3
_SHOWN_ID: Final = 14


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
    write_table(_table(rows, format == "wide"), wide=format == "wide", headers=not no_headers)
    if any(row.device.emulated for row in rows) and not no_headers:
        say()
        say(f"{MARK} emulated")


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


def _table(rows: list[Row], wide: bool) -> Table:
    return Table(
        (
            Column("NODE"),
            Column("CARD", right=True),
            Column("ID"),
            Column("VENDOR"),
            Column("MODEL"),
            Column("USED VRAM", right=True),
            Column("USED ACU", right=True, wide=True),
            Column("SOURCE", wide=True),
            Column("NUMA", right=True, wide=True),
            Column("BUS", wide=True),
            Column("TENANTS", flexible=True),
            Column("VERDICT", flexible=True),
        ),
        [_cells(row, wide) for row in rows],
    )


def _cells(row: Row, wide: bool) -> tuple[str, ...]:
    device, rate = row.device, row.device.rate()
    return (
        row.node,
        str(device.index),
        device.id if wide or len(device.id) <= _SHOWN_ID else f"{device.id[: _SHOWN_ID - 1]}…",
        device.vendor,
        device.model + (MARK if device.emulated else ""),
        share_of(show_bytes(row.vram_used), show_bytes(device.vram)),
        share_of(show_acu(row.milliacu_used), show_acu(rate.milliacu)) if rate else "-",
        rate.source if rate else "unknown",
        "-" if device.numa is None else str(device.numa),
        device.bus_id or "-",
        "held outside HCS" if device.foreign else _tenants(row.tenants, len(row.tenants) if wide else _SHOWN_TENANTS),
        _verdict(row),
    )


def _tenants(tenants: tuple[str, ...], most: int) -> str:
    more = f" and {len(tenants) - most} more" if len(tenants) > most else ""
    return ", ".join(tenants[:most]) + more or "-"


def _verdict(row: Row) -> str:
    """The verdict with its reason; a quarantine comes first, whatever the card says of itself."""
    if row.quarantine:
        by = f" by {row.quarantine.by}" if row.quarantine.by else ""
        return f"Quarantined{by}: {row.quarantine.reason}"
    reason = row.device.verdict_reason
    return f"{row.device.verdict}: {reason}" if reason else row.device.verdict
