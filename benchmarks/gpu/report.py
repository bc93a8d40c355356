"""The table that ``make gpu-check`` leaves: what was checked, on which card, by which command, and what came out."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec


class Row(msgspec.Struct, frozen=True):
    """One check: ``verdict`` is ``passed``, ``FAILED`` or ``left out``; ``why`` says what is to be said; ``figures``
    are bytes and ratios by name."""

    check: str
    verdict: str
    why: str = ""
    figures: Mapping[str, Any] = {}


class Setting(msgspec.Struct, frozen=True):
    """Where and how the checks were run."""

    date: str
    card: str
    driver: str
    command: str
    frameworks: Sequence[str]
    quota: int
    emulated: bool


_COLUMNS = ("held", "ledger", "driver", "context")


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table; bytes in MiB."""
    lines = ["| check | verdict | held | ledger | driver | context | |", "|---|---|---:|---:|---:|---:|---|"]
    for row in rows:
        cells = (_mebibytes(row.figures.get(name)) for name in _COLUMNS)
        lines.append(f"| {row.check} | {row.verdict} | {' | '.join(cells)} | {row.why} |")
    return "\n".join(lines) + "\n"


def page(setting: Setting, rows: Sequence[Row]) -> str:
    """A page for ``docs/measured``."""
    kind = "emulated card" if setting.emulated else "real card"
    return (
        f"# The interceptor on a {kind}\n\n"
        f"Written by the command below. MiB; *held* is what the framework says, *ledger* the most that was charged,\n"
        "*driver* what the driver said in the moment when both were furthest apart, *context* what the ledger held\n"
        "beyond the program's own memory.\n\n"
        "| | |\n|---|---|\n"
        f"| date | {setting.date} |\n"
        f"| card | {setting.card} |\n"
        f"| driver | {setting.driver} |\n"
        f"| frameworks | {', '.join(setting.frameworks) or 'none'} |\n"
        f"| quota | {setting.quota >> 20} MiB |\n"
        f"| command | `{setting.command}` |\n\n" + table(rows)
    )


def _mebibytes(value: Any) -> str:
    return f"{value / (1 << 20):.0f}" if isinstance(value, int) else ""
