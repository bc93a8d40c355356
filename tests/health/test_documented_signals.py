"""``docs/probes.md`` says what the code does: every signal, every field, every tool, every Xid."""

import re
from pathlib import Path

from hcs.health import signals
from hcs.health.faults import LEVELS, XID_OF_APPLICATIONS, classify
from hcs.vendors.parsing.report import FIELDS
from hcs.vendors.parsing.tools import TOOLS

DOCUMENT = (Path(__file__).parents[2] / "docs/probes.md").read_text()


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading."""
    section = DOCUMENT.split(f"## {heading}\n")[1].split("\n## ")[0]
    table = re.findall(r"^\|(.*)\|$", section, re.MULTILINE)
    return [[cell.strip() for cell in line.split("|")] for line in table if not set(line) <= set("|-")][1:]


def test_every_signal_is_documented_in_order_with_its_reasons() -> None:
    documented = [row for row in rows("Health signals") if row[0] in {signal.name for signal in signals.SIGNALS}]
    assert [row[0] for row in documented] == [signal.name for signal in signals.SIGNALS]
    source = Path(signals.__file__).read_text()
    reasons = {reason for _, reason in re.findall(r'Fault\("(\w+)", "(\w+)"', source)}
    text = " ".join(" ".join(row) for row in documented)
    assert {reason for reason in reasons if f"`{reason}`" not in text} == set()
    assert {level for level in LEVELS if level not in text} == set()


def test_every_field_and_tool_is_documented() -> None:
    fields = " ".join(row[0] for row in rows("Fields"))
    assert re.findall(r"`(\w+)`", fields) == list(FIELDS)
    assert [row[0].strip("`") for row in rows("Tools")] == sorted(
        TOOLS, key=[row[0].strip("`") for row in rows("Tools")].index
    )
    assert len(rows("Tools")) == len(TOOLS)


def test_every_xid_is_in_the_row_of_its_effect() -> None:
    lines = {match[0]: match[1] for match in re.findall(r"^\| Xid ([0-9, ]+)[^|]*\|[^|]*\| ([^|]*)\|$", DOCUMENT, re.M)}
    documented = {int(code): effect for codes, effect in lines.items() for code in codes.split(",") if code.strip()}
    for code in range(1, 200):
        fault = classify("nvidia", code)
        effect = documented.get(code, "sub-health")
        if code in XID_OF_APPLICATIONS:
            assert "ProgramsFail" in effect
        elif fault.verdict == "Failed":
            assert effect.startswith("failed"), code
        elif fault.verdict == "SubHealthy":
            assert effect.startswith("sub-health"), code
        else:
            assert effect.startswith("none"), code
