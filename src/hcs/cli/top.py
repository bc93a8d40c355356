"""``hcs top``: what is given away of every card, live, whoever made it.

Figures are those of the router's books: what pods may use, not what they use at this moment. That is what decides
whether the next pod fits. Temperatures and use go to Prometheus; ``hcs agent once`` shows the cards of one machine.
"""

import time
from typing import Annotated, Any, Final

import typer

from hcs.cli.cluster import read_cluster
from hcs.cli.devices import Row, rows_of
from hcs.cli.errors import USAGE, CommandError
from hcs.cli.options import Context, Json, Kubeconfig
from hcs.cli.output import MARK, STYLES, say, write_data
from hcs.model.quantities import show_acu, show_bytes

_BAR: Final = 16
_FEWEST_SECONDS: Final = 0.5


def run(
    seconds: Annotated[float, typer.Option("--every", "-d", help="Seconds between two looks.")] = 2.0,
    once: Annotated[
        bool, typer.Option("--once", help="Look once and stop; so does output that is no terminal.")
    ] = False,
    node: Annotated[str | None, typer.Option("--node", help="Only the cards of this node.", metavar="NAME")] = None,
    vendor: Annotated[str | None, typer.Option("--vendor", help="Only the cards of this vendor.")] = None,
    json: Json = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """What is given away of every card, live.

    One row a card: memory and compute that pods hold of it, its tenants, its health. Ends with Ctrl-C.
    """
    import sys

    if seconds < _FEWEST_SECONDS:
        raise CommandError(
            f"every {seconds:g} s is too often",
            f"the API server is asked each time; {_FEWEST_SECONDS:g} s at least",
            "--every 2",
            code=USAGE,
        )

    def look() -> list[Row]:
        rows = rows_of(read_cluster(kubeconfig, context))
        return [row for row in rows if node in (None, row.node) and vendor in (None, row.device.vendor)]

    if json:
        write_data(look(), "line")
        return
    if once or not sys.stdout.isatty():
        for line in lines(look()):
            say("".join(text for text, _ in line))
        return
    _live(look, seconds)


def _live(look: Any, seconds: float) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(highlight=False)

    def picture() -> Text:
        drawn = Text(no_wrap=True, overflow="ellipsis")
        every = lines(look())
        shown = every[: max(3, console.height - 1)]
        for line in shown:
            for text, style in line:
                drawn.append(text, style=style)
            drawn.append("\n")
        if len(shown) < len(every):
            drawn.append(f"{len(every) - len(shown)} more lines; a taller terminal, --node or --vendor shows them")
        return drawn

    with Live(picture(), console=console, screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(seconds)
            live.update(picture(), refresh=True)


Line = list[tuple[str, str]]
"""Pieces of text, each with its style."""


def lines(rows: list[Row]) -> list[Line]:
    """The whole picture: totals, a header, and a line for each card."""
    if not rows:
        return [[("no cards", "")]]
    vram, held = sum(row.device.vram for row in rows), sum(row.vram_used for row in rows)
    sick = sum(row.device.verdict != "Healthy" or row.quarantine is not None for row in rows)
    head = f"{len(rows)} cards, {show_bytes(held)} of {show_bytes(vram)} given away"
    tenants = len({tenant for row in rows for tenant in row.tenants})
    head += f" to {tenants} pods" if tenants != 1 else " to 1 pod"
    result: list[Line] = [[(head, "bold"), (f", {sick} not well", "red") if sick else ("", "")], []]
    names = [f"{row.node}/{row.device.index}" for row in rows]
    models = [row.device.model + (MARK if row.device.emulated else "") for row in rows]
    wide, model_wide = max(4, *map(len, names)), max(5, *map(len, models))
    title = f"{'CARD':<{wide}}  {'MODEL':<{model_wide}}  {'VRAM':<{_BAR + 12}}  {'ACU':<{_BAR + 10}}  TENANTS"
    result.append([(title, "bold")])
    result += [
        _line(row, f"{name:<{wide}}  {model:<{model_wide}}  ")
        for row, name, model in zip(rows, names, models, strict=True)
    ]
    if any(row.device.emulated for row in rows):
        result += [[], [(f"{MARK} emulated", "dim")]]
    return result


def _line(row: Row, lead: str) -> Line:
    rate = row.device.rate()
    acu = rate.milliacu if rate else 0
    pieces: Line = [(lead, "")]
    pieces += _bar(row.vram_used, row.device.vram)
    pieces.append((f" {show_bytes(row.vram_used) + '/' + show_bytes(row.device.vram):<11}  ", ""))
    pieces += _bar(row.milliacu_used, acu)
    pieces.append((f" {show_acu(row.milliacu_used) + '/' + show_acu(acu) if acu else '-':<9}  ", ""))
    if row.quarantine is not None:
        pieces.append((f"Quarantined: {row.quarantine.reason}  ", "red"))
    elif row.device.verdict != "Healthy":
        word = f"{row.device.verdict}: {row.device.verdict_reason}".rstrip(": ")
        pieces.append((f"{word}  ", STYLES.get(row.device.verdict, "")))
    pieces.append(("held outside HCS" if row.device.foreign else ", ".join(row.tenants) or "-", "dim"))
    return pieces


def _bar(used: int, whole: int) -> Line:
    """A bar as wide as :data:`_BAR`; its colour repeats its length."""
    part = min(1.0, used / whole) if whole else 0.0
    full = round(part * _BAR)
    if used and not full:
        full = 1  # something is never drawn as nothing
    style = "red" if part > 0.9 else "yellow" if part > 0.6 else "green"
    return [("█" * full, style), ("░" * (_BAR - full), "dim")]
