"""``hcs devices``: one row a card; ``hcs devices repaired``: a person's word that a card is whole again."""

import datetime
from typing import Annotated, Any, Final

import msgspec
import typer
from lightkube import ApiError, AsyncClient
from lightkube.types import PatchType

from hcs.cli.cluster import Cluster, call, read_cluster
from hcs.cli.errors import CommandError
from hcs.cli.options import Context, Json, Kubeconfig, NoHeaders, Output, chosen_format
from hcs.cli.output import MARK, Column, Table, say, share_of, tell, write_data, write_table
from hcs.kube import resources
from hcs.model import names
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


app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def run(
    shell: typer.Context,
    node: Annotated[str | None, typer.Option("--node", help="Only the cards of this node.", metavar="NAME")] = None,
    vendor: Annotated[str | None, typer.Option("--vendor", help="Only the cards of this vendor.")] = None,
    output: Output = None,
    json: Json = False,
    no_headers: NoHeaders = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """One row a card: memory used and there, tenants, verdict, and why it is quarantined if it is.

    A card that failed stays failed until it is repaired: see 'hcs devices repaired --help'.
    """
    if shell.invoked_subcommand is not None:
        return
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


class Repaired(msgspec.Struct, frozen=True):
    """What ``--json`` says: which card, and the word that was written."""

    node: str
    device: str
    said: str
    verdict: str


@app.command()
def repaired(
    node: Annotated[str, typer.Argument(help="Name of the node.", metavar="NODE")],
    card: Annotated[str, typer.Argument(help="The card: its id, the beginning of it, or its number.", metavar="CARD")],
    json: Json = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Say that a card was reset or replaced, so that what happened to it before no longer counts.

    A fatal fault stays until the driver takes it back, the driver is loaded again, the machine is restarted, or you say
    so here. What the card still reads goes on counting, and a healer lets it serve only after its probation.

    Example: hcs devices repaired gpu-a GPU-5a3f
    """

    async def say_so(client: AsyncClient) -> Repaired:
        for attempt in range(5):
            found = await _compute_node(client, node)
            device = _one(found, card)
            now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            present = {d.id for d in found.status.devices}
            said = {id: when for id, when in _said(found).items() if id in present} | {device.id: now}
            body: dict[str, Any] = {
                "metadata": {
                    "resourceVersion": found.metadata.resourceVersion,
                    "annotations": {names.REPAIRED: msgspec.json.encode(said).decode()},
                }
            }
            try:
                await client.patch(resources.ComputeNode, node, body, patch_type=PatchType.MERGE)
            except ApiError as error:
                if error.status.code != 409 or attempt == 4:
                    raise
            else:
                return Repaired(node, device.id, now, device.verdict)
        raise AssertionError("the last attempt returns or raises")

    done = call(kubeconfig, context, say_so)
    if write_data(done, chosen_format(None, json)):
        return
    say(f"card {done.device} on {done.node}: repaired")
    tell(f"see how it is: hcs devices --node {done.node}")


async def _compute_node(client: AsyncClient, node: str) -> resources.ComputeNode:
    try:
        found: resources.ComputeNode = await client.get(resources.ComputeNode, node)
    except ApiError as error:
        if error.status.code == 404:
            raise CommandError(
                f"there is no node {node} with cards", "no agent has reported it", "hcs devices"
            ) from error
        raise
    return found


def _one(node: resources.ComputeNode, card: str) -> Device:
    """The card that is meant: by its id, else by the only beginning or number that fits."""
    name, devices = node.metadata.name, node.status.devices
    exact = [device for device in devices if device.id == card]
    loose = [device for device in devices if device.id.startswith(card) or str(device.index) == card]
    found = exact or loose
    if len(found) == 1:
        return found[0]
    there = ", ".join(f"{device.index} ({device.id})" for device in found or devices) or "none"
    what = "several cards" if found else "no card"
    raise CommandError(f"{what} {card} on node {name}", f"there are {there}", f"hcs devices --node {name} -o wide")


def _said(node: resources.ComputeNode) -> dict[str, str]:
    try:
        return msgspec.json.decode((node.metadata.annotations or {}).get(names.REPAIRED, "{}"), type=dict[str, str])
    except msgspec.MsgspecError:
        return {}  # nobody can have meant it


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
