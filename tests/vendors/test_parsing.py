"""Readers of tools' output on layouts of our own making, and on damaged output of any kind."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.vendors import texts
from tests.vendors.test_samples import CASES, PROBES

from hcs.vendors.parsing.report import FIELDS, Report
from hcs.vendors.parsing.tools import TOOLS, UnknownToolError, parse


def recorded() -> dict[str, tuple[str, str]]:
    """The shared samples, where they are."""
    if not PROBES.is_dir():
        return {}
    names = [(str(case.values[0]), str(case.values[1])) for case in CASES]
    return {f"{tool}/{name}": (tool, (PROBES / tool / name).read_text()) for tool, name in names}


WHOLE = {**texts.EVERYTHING, **recorded()}
AMOUNTS = [field for field in FIELDS if field not in ("vendor", "health", "compute_mode", "ecc_mode")]


def known(device: dict[str, Any]) -> dict[str, Any]:
    return {field: device[field] for field in FIELDS if device[field] is not None and field != "vendor"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "nvidia-table",
            [
                {"index": 0, "name": "NVIDIA A30", "bus_id": "00000000:3B:00.0", "memory_total_mib": 24576}
                | {"memory_used_mib": 2101, "utilization_pct": 17, "temperature_c": 41, "power_w": 61}
                | {"power_cap_w": 165, "ecc_errors": 3, "compute_mode": "Default"},
                {"index": 1, "bus_id": "00000000:5E:00.0", "memory_total_mib": 16376, "memory_used_mib": 513}
                | {"utilization_pct": 2, "temperature_c": 39, "power_cap_w": 320, "compute_mode": "E. Process"},
                {"index": 2, "name": "NVIDIA A100-SXM4-40GB", "bus_id": "00000000:86:00.0", "temperature_c": 30}
                | {"power_w": 55, "power_cap_w": 400, "compute_mode": "Default"},
            ],
            id="plain-table-with-partitions-processes-and-a-shortened-name",
        ),
        pytest.param(
            "metax",
            [
                {"index": 4, "name": "MetaX C500", "bus_id": "0000:0e:00.0", "memory_total_mib": 65536}
                | {"memory_used_mib": 1826, "utilization_pct": 8, "temperature_c": 36, "power_w": 55}
                | {"power_cap_w": 350, "health": "Available"},
                {"index": 5, "name": "MetaX C500", "bus_id": "0000:0f:00.0", "memory_total_mib": 65536}
                | {"health": "Not Available"},
            ],
            id="board-and-device-numbers-differ",
        ),
        pytest.param(
            "enflame",
            [
                {"index": 0, "name": "Enflame L300", "bus_id": "00:2d:00.0", "memory_total_mib": 147456}
                | {"utilization_pct": 12, "temperature_c": 35, "power_w": 68, "power_cap_w": 300, "ecc_mode": "Enable"},
                {"index": 1, "name": "Enflame S60", "bus_id": "00:3e:00.0", "memory_total_mib": 49120}
                | {"utilization_pct": 0, "ecc_mode": "Disable"},
            ],
            id="a-dash-for-power-and-limit-both",
        ),
        pytest.param(
            "ascend-310p",
            [
                {"index": 4, "npu_id": 32, "chip_id": 0, "name": "310P3", "bus_id": "0000:81:00.0", "health": "OK"}
                | {"memory_total_mib": 44280, "memory_used_mib": 1508, "utilization_pct": 9, "temperature_c": 51},
                {"index": 5, "npu_id": 32, "chip_id": 1, "name": "310P3", "bus_id": "0000:81:00.0", "health": "OK"}
                | {"memory_total_mib": 43693, "memory_used_mib": 1333, "utilization_pct": 0, "temperature_c": 48},
            ],
            id="two-chips-on-one-bus-id",
        ),
        pytest.param(
            "ascend-usages",
            [
                {"npu_id": 3, "chip_id": 0, "memory_total_mib": 21527, "utilization_pct": 40},
                {"npu_id": 3, "chip_id": 1, "memory_total_mib": 21528, "utilization_pct": 41},
            ],
            id="the-chip-is-named-below-its-figures",
        ),
        pytest.param(
            "ascend-common",
            [
                {"npu_id": 2944, "chip_id": 0, "utilization_pct": 11, "temperature_c": 45},
                {"npu_id": 2944, "chip_id": 1, "utilization_pct": 12, "temperature_c": 47},
            ],
            id="the-chip-is-named-above-and-the-board-is-no-chip",
        ),
        pytest.param(
            "ascend-map-950",
            [
                {"npu_id": 0, "chip_id": 0, "index": 3, "name": "Ascend950PR"},
                {"npu_id": 1, "chip_id": 0, "index": 4, "name": "Ascend950PR"},
            ],
            id="a-map-with-other-columns",
        ),
        pytest.param(
            "ascend-power", [{"npu_id": 6, "chip_id": 0, "power_w": 103.5}], id="the-board-is-named-below-its-power"
        ),
        pytest.param("ascend-list", [{"npu_id": 0}, {"npu_id": 5}], id="a-list-of-npus"),
        pytest.param(
            "intel-stats",
            [{"index": 1, "utilization_pct": 17, "temperature_c": 41, "memory_used_mib": 24}],
            id="a-value-for-each-tile-is-not-the-devices",
        ),
        pytest.param(
            "ascend-map",
            [
                {"npu_id": 8, "chip_id": 0, "index": 0, "name": "Ascend 310P3"},
                {"npu_id": 8, "chip_id": 1, "index": 1, "name": "Ascend 310P3"},
            ],
            id="the-management-unit-is-no-device",
        ),
        pytest.param(
            "nvidia-csv",
            [
                {"index": 0, "name": "NVIDIA A40", "memory_total_mib": 46068, "memory_used_mib": 12}
                | {"utilization_pct": 3, "power_w": 29.5, "power_cap_w": 300.0},
                {"index": 1, "name": "NVIDIA A40", "memory_total_mib": 46068},
            ],
            id="units-in-the-heading-alone",
        ),
        pytest.param(
            "nvidia-xml",
            [
                {"name": "NVIDIA L4 & friends", "uuid": "GPU-99999999-aaaa-bbbb-cccc-dddddddddddd"}
                | {"bus_id": "00000000:17:00.0", "memory_total_mib": 23034, "memory_used_mib": 400}
                | {"temperature_c": 44, "power_w": 31.25, "power_cap_w": 72.0, "pcie_replay": 6, "ecc_errors": 7}
            ],
            id="no-average-power-so-the-instant-one",
        ),
        pytest.param(
            "rocm-json",
            [
                {"index": 3, "name": "Made Up 7", "uuid": "0xabc123", "bus_id": "0000:C7:00.0", "pcie_replay": 3}
                | {"memory_total_mib": 196592, "memory_used_mib": 1, "utilization_pct": 88, "temperature_c": 61.0}
                | {"power_w": 210.5}
            ],
            id="the-hottest-sensor-where-the-edge-has-none",
        ),
        pytest.param(
            "hygon",
            [
                {"index": 0, "temperature_c": 41.0, "power_w": 151.0, "power_cap_w": 550.0, "utilization_pct": 12},
                {"index": 1},
            ],
            id="a-lost-card-has-no-load",
        ),
        pytest.param(
            "gaudi-newer",
            [
                {"index": 3, "name": "HL-325", "bus_id": "0000:a1:00.0", "memory_total_mib": 131072}
                | {"memory_used_mib": 1024, "utilization_pct": 12, "temperature_c": 31, "power_w": 141}
                | {"power_cap_w": 850}
            ],
            id="a-figure-under-compute-mode-is-no-mode-and-events-are-no-ecc-errors",
        ),
        pytest.param("intel-tiles", [{"index": 0}], id="the-last-tiles-load-is-not-the-devices"),
        pytest.param(
            "intel-summary",
            [
                {"index": 2, "name": "Intel(R) Arc(TM) Made Up", "bus_id": "0000:05:00.0", "memory_total_mib": 16304}
                | {"memory_used_mib": 512, "utilization_pct": 17, "temperature_c": 33, "power_w": 41}
                | {"power_cap_w": 190, "compute_mode": "Default"}
            ],
            id="intels-own-summary",
        ),
        pytest.param(
            "rocm-keyed",
            [
                {"index": 0, "name": "AMD Instinct Made Up", "bus_id": "0000:C3:00.0", "memory_total_mib": 65520}
                | {"memory_used_mib": 11, "utilization_pct": 7},
                {"index": 1, "bus_id": "0000:C4:00.0"},
            ],
            id="lines-that-name-their-card",
        ),
    ],
)
def test_other_versions_layouts_are_read_by_their_headings(text: str, expected: list[dict[str, Any]]) -> None:
    assert [known(device) for device in parse(*texts.EVERYTHING[text]).devices] == expected


def test_a_key_with_two_values_has_none() -> None:
    lines = ("GPU[0] : VRAM Total Memory (B): 68702699520", "GPU[0] : VRAM Total Memory (B): 34351349760", "")
    (device,) = parse("rocm-smi", "\n".join(lines)).devices
    assert known(device) == {"index": 0}


def test_the_old_text_of_nvidia_is_read_with_its_counters_and_reasons() -> None:
    first, lost = parse("nvidia-smi", texts.NVIDIA_OLD_Q).devices
    assert (first["ecc_errors"], first["ecc_corrected_errors"], first["power_cap_w"]) == (2, 5, 200.0)
    assert (first["pcie_gen_current"], first["pcie_gen_max"], first["pcie_width_current"]) == (1, 3, 8)
    assert first["throttle_reasons"] == ["hw_slowdown", "hw_thermal"]
    assert known(lost).keys() == {"name", "uuid", "bus_id"}


def test_topologies_keep_the_tools_words_and_leave_numbers_out() -> None:
    nvidia, amd = parse("nvidia-smi", texts.TOPOLOGY), parse("rocm-smi", texts.ROCM_TOPOLOGY)
    assert nvidia.links == {"GPU0-GPU1": "NV4", "GPU0-NIC0": "PXB", "GPU1-NIC0": "SYS"}
    assert nvidia.numa == {"GPU0": {"cpus": "0-31", "numa": 0}, "GPU1": {"cpus": "32-63", "numa": 1}}
    assert amd.links == {"GPU0-GPU1": "XGMI"}
    ascend = parse("npu-smi", texts.NPU_TOPOLOGY)
    assert ascend.gpus == ("Phy-ID0", "Phy-ID1", "Phy-ID2")
    assert ascend.links == {
        "Phy-ID0-Phy-ID1": "SIO",
        "Phy-ID0-Phy-ID2": "HCCS_SW",
        "Phy-ID1-Phy-ID2": "HCCS_SW",
    }
    assert ascend.numa["Phy-ID2"] == {"cpus": "40-79", "numa": None}
    assert amd.numa == {"GPU0": {"cpus": None, "numa": 0}, "GPU1": {"cpus": None, "numa": 1}}


def test_the_kernels_log_yields_faults_of_three_kinds() -> None:
    report = parse("kernel-log", texts.KERNEL_LOG)
    assert [(event["kind"], event.get("code"), event.get("severity")) for event in report.events] == [
        ("xid", 79, None),
        ("lost", None, None),
        ("xid", 31, None),
        ("aer", None, "corrected"),
        ("aer", None, "fatal"),
        ("ascend", "80E01801", None),
    ]
    assert [(card["bus_id"], card["xids"]) for card in report.devices] == [("0000:3b:00", [79]), ("0000:5e:00", [31])]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param(
            "NVRM: Xid (0000:03:00): 14, Channel 00000001",
            {"kind": "xid", "code": 14, "bus_id": "0000:03:00", "message": "Channel 00000001"},
            id="an-old-drivers-xid",
        ),
        pytest.param(
            "NVRM: Xid (PCI:0000:03:00): 43, pid=77, name=ray::Worker",
            {"kind": "xid", "code": 43, "bus_id": "0000:03:00", "pid": 77, "process": "ray::Worker"},
            id="nothing-behind-the-name",
        ),
        pytest.param(
            r"4,9,1234,-;NVRM: The NVIDIA GPU 0000:1a:00.0\x0aNVRM: (PCI ID: 10de:0000) installed in this system has"
            r"\x0aNVRM: fallen off the bus and is not responding to commands.",
            {"kind": "lost", "bus_id": "0000:1a:00.0", "message": "GPU has fallen off the bus", "time": "1234"},
            id="lost-before-the-driver-had-it",
        ),
        pytest.param(
            "pcieport 0000:00:07.0: AER: Multiple Uncorrectable (Non-Fatal) error message received from 0000:04:00.0",
            {"kind": "aer", "severity": "nonfatal", "bus_id": "0000:04:00.0", "message": "error received"},
            id="announced-without-a-colon",
        ),
        pytest.param("igb 0000:41:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fata", None, id="cut-off"),
        pytest.param("[ascend] [drv_pcie] [ERROR] open failed (err_code=0x00000016)", None, id="a-drivers-own-code"),
        pytest.param("[ascend] [devmm] [ERROR] pin failed, error_code=0xfffffff2", None, id="a-negative-number"),
        pytest.param(
            "[ascend] [dms] device_id=3, event_id=0x80e01801",
            {"kind": "ascend", "code": "80E01801", "device": 3}
            | {"message": "[ascend] [dms] device_id=3, event_id=0x80e01801"},
            id="a-word-in-brackets-is-no-time",
        ),
        pytest.param(
            "nvidia-nvswitch0: SXid (PCI:0000:ca:00.0): 19077, Non-fatal, Link 20 Timeout",
            None,
            id="a-switch-is-no-card",
        ),
    ],
)
def test_lines_of_other_kernels_and_drivers(line: str, expected: dict[str, Any] | None) -> None:
    events = parse("kernel-log", f"{line}\n").events
    assert [dict(event) for event in events] == ([] if expected is None else [expected])


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        pytest.param("0, NVIDIA A2, 16380 MiB, 3 MiB, 0 %, 30 C", {"memory_total_mib": 16380}, id="the-usual-question"),
        pytest.param("0, NVIDIA A2, 16380 MiB, 3 MiB, 30 C, 0 %", None, id="another-order"),
        pytest.param("0, NVIDIA A2, 16380, 3, 0, 30", None, id="no-units"),
    ],
)
def test_an_answer_without_heading_or_question_is_read_only_if_every_unit_fits(
    cells: str, expected: dict[str, Any] | None
) -> None:
    devices = parse("nvidia-smi", f"{cells}\n").devices
    assert [device["memory_total_mib"] for device in devices] == ([expected["memory_total_mib"]] if expected else [])


def test_the_question_gives_headerless_and_unitless_answers_their_meaning() -> None:
    command = "--query-gpu=index,temperature.gpu,memory.used,power.draw --format=csv,noheader,nounits"
    (device,) = parse("nvidia-smi", "2, 41, 100, 35.5\n", command).devices
    assert known(device) == {"index": 2, "temperature_c": 41, "memory_used_mib": 100, "power_w": 35.5}


def test_windows_line_ends_escapes_and_blanks_change_nothing() -> None:
    for tool, text in texts.EVERYTHING.values():
        dressed = "".join(f"\x1b[1m{line}\x1b[0m  \r\n" for line in text.split("\n"))
        assert parse(tool, dressed.encode("utf-8-sig")).devices == parse(tool, text).devices


def test_an_unknown_tool_is_named_with_those_there_are() -> None:
    with pytest.raises(UnknownToolError, match=r"'brsmi'; there are cnmon, .*nvidia-smi"):
        parse("brsmi", "")


@pytest.mark.parametrize("tool", TOOLS)
@given(text=st.text(max_size=200))
def test_no_text_at_all_breaks_a_reader(tool: str, text: str) -> None:
    assert isinstance(parse(tool, text).to_object(), dict)


@given(data=st.data())
def test_what_is_cut_off_says_nothing_that_the_whole_does_not(data: st.DataObject) -> None:
    """A figure of which the end is missing is another figure: it must not be reported."""
    tool, text = WHOLE[data.draw(st.sampled_from(sorted(WHOLE)))]
    cut = data.draw(st.integers(0, len(text)))
    check_cut(tool, text, cut)


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(WHOLE))
def test_every_place_to_cut_is_safe(name: str) -> None:
    tool, text = WHOLE[name]
    for cut in range(0, len(text), max(1, len(text) // 400)):
        check_cut(tool, text, cut)


def check_cut(tool: str, text: str, cut: int) -> None:
    whole, part = parse(tool, text), parse(tool, text[:cut])
    assert len(part.devices) <= len(whole.devices)
    for piece, full in zip(part.devices, whole.devices, strict=False):
        for field in AMOUNTS:
            if "Timestamp, DeviceId" in text:  # of two lines about one device the later counts
                continue
            assert piece[field] in (None, full[field]), (field, text[:cut][-80:])
    assert (part.links or {}).items() <= (whole.links or {}).items()
    assert part.driver in (None, whole.driver)


@given(data=st.data())
def test_no_damage_invents_a_number(data: st.DataObject) -> None:
    """Every number reported of damaged output stands in it, or follows from one that does by a change of unit."""
    tool, text = WHOLE[data.draw(st.sampled_from(sorted(WHOLE)))]
    damaged = data.draw(damage(text))
    report = parse(tool, damaged)
    there = numbers_in(damaged)
    for key, number in numbers_of(report):
        if "ecc" in key:  # a sum over several memories
            continue
        assert number in there, (key, number)


@st.composite
def damage(draw: st.DrawFn, text: str) -> str:
    lines = text.split("\n")
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(lines) - 1))
        kind = draw(st.sampled_from(["drop", "repeat", "swap", "letter", "insert", "foreign"]))
        if kind == "drop" and len(lines) > 1:
            del lines[at]
        elif kind == "repeat":
            lines.insert(at, lines[at])
        elif kind == "swap":
            other = draw(st.integers(0, len(lines) - 1))
            lines[at], lines[other] = lines[other], lines[at]
        elif kind == "foreign":
            lines.insert(at, draw(st.sampled_from(["Segmentation fault", "[W] 12, 13: retry", "| 9 | 9 |", "  7 : 8"])))
        else:
            line = lines[at]
            place = draw(st.integers(0, len(line)))
            letter = draw(st.sampled_from("0123456789 |:,.%CWMx/-<>\t\x1b\u0663"))
            lines[at] = line[:place] + letter + line[place + (kind == "letter") :]
    return "\n".join(lines)


def numbers_in(text: str) -> set[float]:
    text = re.sub(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[@-Z\\^_])?", "", text)
    plain = {float(found) for found in re.findall(r"\d+(?:\.\d+)?", text, re.ASCII)}
    signed = {float(found) for found in re.findall(r"[+-]\d+(?:\.\d+)?", text, re.ASCII)}
    whole = {float(part) for found in re.findall(r"\d+(?:\.\d+)?", text, re.ASCII) for part in found.split(".")}
    hexadecimal = {float(int(found, 16)) for found in re.findall(r"\b[0-9A-Fa-f]{8}\b", text)}
    speeds = {2.5: 1.0, 5.0: 2.0, 8.0: 3.0, 16.0: 4.0, 32.0: 5.0, 64.0: 6.0}
    return (
        plain
        | signed
        | whole
        | hexadecimal
        | {number / 2**20 for number in plain}
        | {number * 1024 for number in plain}
        | {number / 1024 for number in plain}
        | {number / 1000 for number in plain}
        | {speeds[number] for number in plain if number in speeds}
    )


def numbers_of(report: Report) -> Iterator[tuple[str, float]]:
    def walk(key: str, value: Any) -> Iterator[tuple[str, float]]:
        if isinstance(value, dict):
            for inner, below in value.items():
                yield from walk(inner, below)
        elif isinstance(value, list | tuple):
            for below in value:
                yield from walk(key, below)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield key, float(value)

    yield from walk("", report.to_object())
