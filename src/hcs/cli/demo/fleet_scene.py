"""Scene *fleet*: all cards in one view, each figure measured or rated, and never the two in one sum."""

from rich.table import Table

from hcs.cli.demo.stage import Stage
from hcs.model.devices import SOURCES, Device
from hcs.model.quantities import show_acu, show_bytes

NODES = 4
VENDORS = 3


async def play(stage: Stage) -> None:
    """Show the fleet and check that it is one."""

    def ready() -> bool | None:
        nodes = list(stage.nodes.values())
        return (len(nodes) >= NODES and all(node.status.devices for node in nodes)) or None

    await stage.until("every node's agent has published its cards", ready)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("NODE", "VENDOR", "MODEL", "CARDS", "VRAM EACH", "ACU EACH", "HOW WE KNOW"):
        table.add_column(title, justify="right" if title in ("CARDS", "VRAM EACH", "ACU EACH") else "left")
    devices: list[Device] = []
    totals = dict.fromkeys(SOURCES, 0)
    for node in sorted(stage.nodes.values(), key=lambda node: node.metadata.name):
        kinds: dict[tuple[str, str], list[Device]] = {}
        for device in node.status.devices:
            devices.append(device)
            kinds.setdefault((device.vendor, device.model), []).append(device)
            rate = device.rate()
            if rate is not None:
                totals[rate.source] += rate.milliacu
        for (vendor, model), cards in kinds.items():
            rate = cards[0].rate()
            table.add_row(
                node.metadata.name,
                vendor,
                f"{model} [dim](emulated)[/]" if cards[0].emulated else model,
                str(len(cards)),
                show_bytes(cards[0].vram),
                show_acu(rate.milliacu) if rate else "unknown",
                rate.source if rate else "",
            )
    stage.show(table)
    sums = [f"{show_acu(amount)} ACU {source}" for source, amount in totals.items() if amount]
    stage.say(f"[bold]{len(devices)} cards[/], {show_bytes(sum(d.vram for d in devices))} of memory, {', '.join(sums)}")
    stage.say("[dim]1 ACU = 1 % of an A100-SXM4-80GB in dense FP16 matrix multiply[/]")
    vendors = sorted({device.vendor for device in devices})
    stage.claim(f"{len(stage.nodes)} nodes and {len(vendors)} vendors in one view", len(vendors) >= VENDORS)
    stage.claim(
        "every card has an ACU figure that says how it is known",
        all((rate := device.rate()) is not None and rate.source in SOURCES for device in devices),
    )
    stage.claim("all of them say that they are emulated", all(device.emulated for device in devices))
    stage.facts.update(
        nodes=sorted(node.metadata.name for node in stage.nodes.values()),
        vendors=vendors,
        cards=len(devices),
        vram_bytes=sum(device.vram for device in devices),
        milliacu={source: amount for source, amount in totals.items() if amount},
    )
