"""Iluvatar's ``ixsmi``: the table and ``--query-gpu``, which know fewer fields than the tool they imitate."""

from hcs.vendors.parsing import csvs, matrices, tables, values
from hcs.vendors.parsing.nvidia_smi import KNOWN_COLUMNS, of_row
from hcs.vendors.parsing.report import Report, reading


def read(text: str, command: str = "") -> Report:
    """Whatever this output of ixsmi says."""
    if topology := matrices.read(text):
        return Report(tool="ixsmi", gpus=topology.devices, links=topology.links, numa=topology.numa)
    drawn = tables.devices(text)
    if not drawn and (rows := csvs.rows(text, command, KNOWN_COLUMNS)):
        return Report(tool="ixsmi", devices=tuple(of_row("iluvatar", row) for row in rows if "pid" not in row))
    return Report(
        tool="ixsmi",
        version=tables.search(r"IX-ML:[ \t]*([0-9][\w.]*)", text, values.version),
        driver=tables.search(r"Driver Version:[ \t]*([^|\s]+)", text, values.version),
        devices=tuple(reading("iluvatar", facts) for facts in drawn),
    )
