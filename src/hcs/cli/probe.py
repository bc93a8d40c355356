"""``hcs probe parse``: what a vendor's tool printed, as one object in one set of units."""

import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from hcs.cli.errors import USAGE, CommandError
from hcs.cli.options import Json, NoHeaders, Output, chosen_format
from hcs.cli.output import Column, Table, say, tell, write_data, write_table
from hcs.vendors.parsing.report import Report
from hcs.vendors.parsing.tools import TOOLS, parse

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    help="What vendors' tools say about cards.",
)

_COLUMNS: Final = (
    Column("INDEX", right=True),
    Column("VENDOR"),
    Column("NAME", flexible=True),
    Column("BUS ID"),
    Column("MIB", right=True),
    Column("%", right=True),
    Column("C", right=True),
    Column("W", right=True),
    Column("HEALTH"),
    Column("UUID", wide=True),
    Column("PCIE", wide=True),
    Column("ECC", wide=True),
)


@app.callback()
def probe() -> None:
    """What vendors' tools say about cards."""


@app.command("parse")
def parse_file(
    file: Annotated[str, typer.Argument(metavar="FILE", help="File with the tool's output; - for standard input.")],
    tool: Annotated[str, typer.Option("--tool", metavar="TOOL", help=f"The tool that printed it: {', '.join(TOOLS)}.")],
    command: Annotated[
        str,
        typer.Option("--command", metavar="ARGUMENTS", help="What it was called with, for output without headings."),
    ] = "",
    output: Output = None,
    json: Json = False,
    no_headers: NoHeaders = False,
) -> None:
    """Read a tool's output, in one set of units; what the tool did not say, or masked, is null.

    For example: `nvidia-smi -q -x | hcs probe parse --tool nvidia-smi - --json`

    or: `hcs probe parse --tool npu-smi --command "info -t topo" topo.txt`
    """
    format = chosen_format(output, json)
    if tool not in TOOLS:
        why = f"there are {', '.join(TOOLS)}"
        raise CommandError(f"no tool is called {tool}", why, "hcs probe parse --tool nvidia-smi FILE", code=USAGE)
    report = parse(tool, _read(file), command)
    if report.empty:
        tell(f"nothing in it is known as output of {tool}; is --tool right, and is the output whole?")
    if not write_data(report.to_object(), format, names=[_label(device) for device in report.devices]):
        _draw(report, wide=format == "wide", headers=not no_headers)


def _read(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise CommandError(
            f"{file} cannot be read", error.strerror or str(error), "a file's path, or - for standard input", code=USAGE
        ) from error


def _draw(report: Report, *, wide: bool, headers: bool) -> None:
    versions = (("version", report.version), ("driver", report.driver))
    known = ", ".join(f"{name} {value}" for name, value in versions if value)
    if known:
        tell(f"{report.tool}: {known}")
    if report.devices:
        write_table(Table(_COLUMNS, [_cells(device) for device in report.devices]), wide=wide, headers=headers)
    for event in report.events:
        place = event.get("bus_id") or event.get("device") or "-"
        say(f"{event['kind']} {event.get('code') or event.get('severity')} at {place}: {event.get('message', '')}")
    if report.links:
        rows = [(*pair.split("-", 1), word) for pair, word in report.links.items()]
        write_table(Table((Column("FROM"), Column("TO"), Column("LINK")), rows), headers=headers)
    for error in report.errors:
        tell(f"the tool says: {error}")


def _cells(device: dict[str, Any]) -> tuple[str, ...]:
    used, total = device["memory_used_mib"], device["memory_total_mib"]
    current, most = device["pcie_width_current"], device["pcie_width_max"]
    return (
        _shown(device["index"] if device["index"] is not None else device["npu_id"]),
        device["vendor"],
        _shown(device["name"]),
        _shown(device["bus_id"]),
        _shown(None if used is None and total is None else f"{_shown(used)}/{_shown(total)}"),
        _shown(device["utilization_pct"]),
        _shown(device["temperature_c"]),
        _shown(device["power_w"]),
        _shown(device["health"]),
        _shown(device["uuid"]),
        f"gen{_shown(device['pcie_gen_current'])} x{current}/{_shown(most)}" if current is not None else "-",
        _shown(device["ecc_errors"]),
    )


def _label(device: dict[str, Any]) -> str:
    return next((str(device[key]) for key in ("uuid", "bus_id", "index") if device[key] is not None), "unknown")


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:g}" if isinstance(value, float) else str(value)
