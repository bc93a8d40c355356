"""``npu-smi``: ``info``, ``info -m``, ``info -l``, ``info -t TYPE`` and ``info -t topo``; also ``lspci | grep acce``.

The tool writes MB and means MiB. Cards of the 910 family have HBM, and beside it DDR that belongs to the chip's own
system; cards of the 310 family have DDR alone. A device's ``index`` is its physical number, from which its device node
follows: the Device or Phy-ID column where there is one, else the NPU's own number where each NPU has one chip. The
second die of a package prints no power, which is no fault.
"""

import re
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final

from hcs.vendors.parsing import lspci, matrices, outlines, tables, values
from hcs.vendors.parsing.report import Reading, Report, reading

VENDOR: Final = "ascend"
Read = Callable[[str | None], Any]

_MAP_HEADING: Final = re.compile(r"^[ \t]*(NPU ID[ \t]{2,}.*Chip Name)[ \t]*$", re.MULTILINE | re.IGNORECASE)
_MAP_COLUMNS: Final = {
    "npu id": "npu_id",
    "slot id": "slot_id",
    "chip id": "chip_id",
    "chip logic id": "logic_id",
    "chip phy-id": "physical_id",
    "chip phy id": "physical_id",
    "chip name": "name",
}
_CODE: Final = re.compile(r"[0-9A-Fa-f]{8}")
_COMPLAINT: Final = re.compile(
    r"^.*(?:Invalid card id|Error parameter|DrvMngGetConsoleLogLevel failed|dcmi (?:module|initialize).*failed"
    r"|not support|Failed to|does not exist|can ?not).*$",
    re.MULTILINE | re.IGNORECASE,
)


def _mb(text: str | None) -> Any:
    return values.total_memory(text, "MB", decimal_names=True)


def _celsius(text: str | None) -> Any:
    return values.celsius(text, "C")


def _watts(text: str | None) -> Any:
    return values.watts(text, "W")


def _percent(text: str | None) -> Any:
    return values.percent(text, "%")


def _megahertz(text: str | None) -> Any:
    return values.megahertz(text, "MHz")


_KEYS: Final[dict[str, tuple[str, Read]]] = {
    "npu id": ("npu_id", values.integer),
    "chip id": ("chip_id", values.integer),
    "chip logic id": ("index", values.integer),
    "chip name": ("name", values.name),
    "product name": ("product_name", values.word),
    "model": ("product_model", values.word),
    "manufacturer": ("manufacturer", values.word),
    "serial number": ("serial", values.identifier),
    "software version": ("driver_version", values.version),
    "firmware version": ("firmware_version", values.version),
    "compatibility": ("compatibility", values.word),
    "board id": ("board_id_hex", values.hexadecimal),
    "pcie bus info": ("bus_id", values.bus_id),
    "slot id": ("slot_id", values.integer),
    "health": ("health", values.state),
    "health status": ("health", values.state),
    "ddr capacity(mb)": ("ddr_total_mib", _mb),
    "hbm capacity(mb)": ("hbm_total_mib", _mb),
    "memory capacity(mb)": ("ddr_total_mib", _mb),
    "ddr usage rate(%)": ("ddr_usage_pct", _percent),
    "memory usage rate(%)": ("ddr_usage_pct", _percent),
    "hbm usage rate(%)": ("hbm_usage_pct", _percent),
    "aicore usage rate(%)": ("utilization_pct", _percent),
    "aivector usage rate(%)": ("aivector_usage_pct", _percent),
    "aicpu usage rate(%)": ("aicpu_usage_pct", _percent),
    "ctrlcpu usage rate(%)": ("ctrlcpu_usage_pct", _percent),
    "ddr bandwidth usage rate(%)": ("ddr_bandwidth_usage_pct", _percent),
    "hbm bandwidth usage rate(%)": ("hbm_bandwidth_usage_pct", _percent),
    "aicore freq(mhz)": ("aicore_clock_mhz", _megahertz),
    "temperature(c)": ("temperature_c", _celsius),
    "npu temperature(c)": ("temperature_c", _celsius),
    "hbm temperature(c)": ("hbm_temperature_c", _celsius),
    "power dissipation(w)": ("power_w", _watts),
    "npu real-time power(w)": ("power_w", _watts),
    "ddr single bit error count": ("ddr_single_bit_errors", values.integer),
    "ddr double bit error count": ("ddr_double_bit_errors", values.integer),
    "hbm single bit error count": ("hbm_single_bit_errors", values.integer),
    "hbm double bit error count": ("hbm_double_bit_errors", values.integer),
    "hbm single bit aggregate total err cnt": ("hbm_single_bit_errors_total", values.integer),
    "hbm double bit aggregate total err cnt": ("hbm_double_bit_errors_total", values.integer),
    "hbm single bit isolated pages count": ("hbm_single_bit_isolated_pages", values.integer),
    "hbm double bit isolated pages count": ("hbm_double_bit_isolated_pages", values.integer),
    "hbm single bit next-isolated pages count": ("hbm_single_bit_next_isolated_pages", values.integer),
    "hbm double bit next-isolated pages count": ("hbm_double_bit_next_isolated_pages", values.integer),
    "ecc enable": ("ecc_mode", values.word),
}


def read(text: str, command: str = "") -> Report:
    """Whatever this output of npu-smi says; ``-i`` and ``-c`` in the command tell which NPU it is about."""
    errors = tuple(dict.fromkeys(match.group().strip() for match in _COMPLAINT.finditer(text)))
    if lspci.is_lspci(text):
        return lspci.read(text, tool="npu-smi")
    if topology := matrices.read(text):
        return Report(tool="npu-smi", gpus=topology.devices, links=topology.links, numa=topology.numa, errors=errors)
    if heading := _MAP_HEADING.search(text):
        return _mapped(text, heading, errors)
    drawn = tables.devices(text)
    if drawn:
        return Report(
            tool="npu-smi",
            version=tables.search(r"npu-smi[ \t]+v?([0-9]\S*)", text, values.version),
            driver=tables.search(r"\bVersion:[ \t]*([^|\s]+)", text, values.version),
            devices=tuple(reading(VENDOR, facts) for facts in _chips(drawn)),
            errors=errors,
        )
    blocks = [] if errors else _blocks(outlines.pairs(text))
    asked = {"npu_id": _asked(command, "i"), "chip_id": _asked(command, "c")}
    described = tuple(
        reading(VENDOR, {**_described(block), **_missing(_described(block), asked, len(blocks))}) for block in blocks
    )
    drivers = {device.get("driver_version") for device in described}
    return Report(
        tool="npu-smi",
        driver=drivers.pop() if len(drivers) == 1 else None,
        devices=described,
        errors=errors,
    )


def _chips(drawn: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of the table with one memory figure, and an index."""
    chips_of = Counter(facts.get("npu_id") for facts in drawn)
    for facts in drawn:
        kind = "hbm" if facts.get("hbm_total_mib") else "ddr"
        if facts.get(f"{kind}_total_mib"):
            facts["memory_total_mib"] = facts[f"{kind}_total_mib"]
            facts["memory_used_mib"] = facts[f"{kind}_used_mib"]
        for memory in ("hbm", "ddr", "hugepages"):
            unit = "pages" if memory == "hugepages" else "mib"
            if not facts.get(f"{memory}_total_{unit}"):  # a chip without such memory prints 0 / 0
                facts[f"{memory}_total_{unit}"] = facts[f"{memory}_used_{unit}"] = None
        unnumbered = "index" not in facts and "physical_id" not in facts
        if facts.get("index") is None:
            facts["index"] = facts.get("physical_id")
        if unnumbered and facts.get("chip_id") == 0 and chips_of[facts.get("npu_id")] == 1:
            facts["index"] = facts.get("npu_id")
    return drawn


def _mapped(text: str, heading: re.Match[str], errors: tuple[str, ...]) -> Report:
    """``info -m``: which chip of which NPU has which number. Rows of the management unit are no devices."""
    columns = [_MAP_COLUMNS.get(title.lower()) for title in re.split(r"\s{2,}", heading.group(1))]
    devices: list[Reading] = []
    for line in text[heading.end() :].split("\n"):
        cells = re.split(r"\s{2,}", line.strip())
        if len(cells) != len(columns) or "mcu" in (cell.lower() for cell in cells):
            continue
        row = {column: cell for column, cell in zip(columns, cells, strict=True) if column is not None}
        facts: dict[str, Any] = {key: values.integer(cell) for key, cell in row.items() if key != "name"}
        if facts.get("npu_id") is None:
            continue
        logic = facts.pop("logic_id", None)
        facts["index"] = logic if "logic_id" in row else facts.get("physical_id")
        devices.append(reading(VENDOR, {**facts, "name": values.name(row.get("name"))}))
    names = tuple(str(device["name"]) for device in devices if device["name"] is not None)
    return Report(tool="npu-smi", devices=tuple(devices), gpus=names, errors=errors)


Block = list[tuple[str, str]]


def _blocks(pairs: Block) -> list[Block]:
    """``-t`` output of some NPUs, in runs of one chip each, every run with its NPU's number.

    The chip's number, or that it is the board's management unit, stands above its figures in some versions and below
    them in others. Where nothing tells the chips apart, a run ends where a key comes again. Management units go.
    """
    blocks: list[Block] = []
    npu: Block = []
    own: Block = []
    for key, value in [*pairs, ("NPU ID", "")]:
        if _plain(key) == "npu id":
            if npu or own:
                blocks += [npu + run for run in _runs(own) if not _is_unit(run)] if own else [npu]
            npu, own = [(key, value)], []
        elif _plain(key) not in ("chip count", "card count", "total count"):
            own.append((key, value))
    return [block for block in blocks if any(_plain(key) in _RECOGNISED for key, _ in block)]


def _runs(own: Block) -> list[Block]:
    named = [number for number, pair in enumerate(own) if _plain(pair[0]) == "chip id" or _is_unit([pair])]
    if named:
        first = next((number for number, (key, _) in enumerate(own) if _plain(key) in _RECOGNISED), 0)
        below = named[0] > first
        cuts = [number + 1 for number in named] if below else [*named, len(own)]
        # What stands behind the last name that stands below its figures has lost its own name.
        return [own[begin:end] for begin, end in pairwise(sorted({0, *cuts}))]
    runs: list[Block] = [[]]
    for key, value in own:
        if _plain(key) in {_plain(other) for other, _ in runs[-1]} and _plain(key) != "error information":
            runs.append([])
        runs[-1].append((key, value))
    return runs


def _is_unit(run: Block) -> bool:
    return any(_plain(key) == "chip name" and value.lower() in ("mcu", "3559") for key, value in run)


def _plain(key: str) -> str:
    return re.sub(r"\s*\(", "(", key.lower())


_RECOGNISED: Final = frozenset({*_KEYS, "error code", "error information"})


def _described(block: list[tuple[str, str]]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for key, value in block:
        known = _KEYS.get(_plain(key))
        if known is not None and facts.get(known[0]) is None:
            facts[known[0]] = known[1](value)
        elif _plain(key) == "error code":
            codes = [code.upper() for code in value.replace(",", " ").split() if _CODE.fullmatch(code)]
            facts["error_codes"] = codes or None
        elif _plain(key) == "error information":
            facts["error_information"] = values.word(value)
    if facts.get("hbm_total_mib") or facts.get("ddr_total_mib"):
        facts["memory_total_mib"] = facts.get("hbm_total_mib") or facts["ddr_total_mib"]
    if "hbm_double_bit_errors" in facts or "ddr_double_bit_errors" in facts:
        counts = [facts.get(key) for key in ("hbm_double_bit_errors", "ddr_double_bit_errors") if key in facts]
        facts["ecc_errors"] = None if None in counts else sum(count for count in counts if count is not None)
    return facts


def _asked(command: str, option: str) -> int | None:
    match = re.search(rf"(?:^|\s)-{option}\s*([0-9]+)(?:\s|$)", command)
    return int(match.group(1)) if match else None


def _missing(facts: dict[str, Any], asked: dict[str, int | None], blocks: int) -> dict[str, Any]:
    return {key: value for key, value in asked.items() if blocks == 1 and value is not None and facts.get(key) is None}
