"""``hl-smi`` for Gaudi, which Intel makes: the table and ``-Q``. Tool and driver may be of different releases."""

from hcs.vendors.parsing import csvs, tables, values
from hcs.vendors.parsing.nvidia_smi import KNOWN_COLUMNS, of_row
from hcs.vendors.parsing.report import Report, reading


def read(text: str, command: str = "") -> Report:
    """Whatever this output of hl-smi says."""
    drawn = tables.devices(text)
    if not drawn and (rows := csvs.rows(text, command, KNOWN_COLUMNS, units=False)):
        return Report(tool="hl-smi", devices=tuple(of_row("intel", row) for row in rows if "pid" not in row))
    return Report(
        tool="hl-smi",
        version=tables.search(r"HL-SMI Version:[ \t]*([^|\s]+)", text, values.version),
        driver=tables.search(r"(?<!Nic )Driver Version:[ \t]*([^|\s]+)", text, values.version),
        devices=tuple(reading("intel", facts) for facts in drawn),
    )
