"""PCIe errors from records, trace lines and counters; and which source is chosen."""

import asyncio
import struct
from pathlib import Path

import pytest
from tests.agent.test_bpf import FORMAT

from hcs.agent.aer import AerWatch, PcieError, counters, decode, read_pipe_line
from hcs.agent.bpf import TracingUnavailableError, close_tracefs, open_tracefs, read_format

SHIFTED = (
    FORMAT.replace("offset:8;\tsize:4", "offset:24;\tsize:4")
    .replace("offset:12;\tsize:4", "offset:28;\tsize:4")
    .replace("offset:16;\tsize:1", "offset:32;\tsize:1")
)


def record(name: str, status: int, severity: int, *, fields: int = 8, string: int = 40) -> bytes:
    """A record as the kernel lays it out: fixed fields, then the name, at places the format gives."""
    head = bytes(fields) + struct.pack("<HHIB", string, len(name) + 1, status, severity)
    return (head.ljust(string, b"\0") + name.encode() + b"\0").ljust(256, b"\0")


@pytest.mark.parametrize(
    ("status", "severity", "expected"),
    [
        pytest.param(0x1001, 2, PcieError("0000:3b:00.0", "corrected", ("Receiver Error", "Replay Timer Timeout"))),
        pytest.param(0x4000, 0, PcieError("0000:3b:00.0", "nonfatal", ("Completion Timeout",))),
        pytest.param(0x40010, 1, PcieError("0000:3b:00.0", "fatal", ("Data Link Protocol", "Malformed TLP"))),
        pytest.param(0x80000000, 2, PcieError("0000:3b:00.0", "corrected", ("bit 31",))),
    ],
)
def test_a_record_names_the_device_the_severity_and_the_errors(status: int, severity: int, expected: PcieError) -> None:
    assert decode(read_format(FORMAT), record("0000:3b:00.0", status, severity)) == expected
    moved = record("0000:3b:00.0", status, severity, fields=24, string=80)
    assert decode(read_format(SHIFTED), moved) == expected, "another kernel's places"


def test_a_record_that_makes_no_report_is_none() -> None:
    layout = read_format(FORMAT)
    assert decode(layout, record("", 1, 2)) is None
    assert decode(layout, record("0000:3b:00.0", 1, 9)) is None
    assert decode(layout, b"") is None


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            " irq/24-aerdrv-88 [001] .... 12.3: aer_event: 0000:3b:00.0 PCIe Bus Error: severity=Corrected, Bad TLP",
            PcieError("0000:3b:00.0", "corrected", ("Bad TLP",)),
        ),
        (
            "x: aer_event: 0000:3b:00.0 PCIe Bus Error: severity=Uncorrected, non-fatal, Completer Abort, TLP Header=n",
            PcieError("0000:3b:00.0", "nonfatal", ("Completer Abort",)),
        ),
        (
            "x: aer_event: 0000:3b:00.0 PCIe Bus Error: severity=Fatal, Malformed TLP",
            PcieError("0000:3b:00.0", "fatal", ("Malformed TLP",)),
        ),
        (  # some kernels write a corrected error like this
            "x: aer_event: 0000:3b:00.0 PCIe Bus Error: severity=Uncorrected, non-fatal, Bad TLP, TLP Header=n",
            PcieError("0000:3b:00.0", "corrected", ("Bad TLP",)),
        ),
        ("x: mc_event: 1 Corrected error", None),
    ],
)
def test_a_line_of_the_trace_says_the_same(line: str, expected: PcieError | None) -> None:
    assert read_pipe_line(line) == expected


def card_with_counters(sysfs: Path, corrected: int) -> None:
    folder = sysfs / "devices/pci0000:00/0000:00:01.0/0000:3b:00.0"
    folder.mkdir(parents=True, exist_ok=True)
    text = f"Receiver Error {corrected}\nBad TLP 0\nTOTAL_ERR_COR {corrected}\n"
    (folder / "aer_dev_correctable").write_text(text)
    (folder / "aer_dev_fatal").write_text("Undefined 0\nTOTAL_ERR_FATAL 0\n")
    (folder.parent / "aer_dev_correctable").write_text("TOTAL_ERR_COR 2\n")
    listed = sysfs / "bus/pci/devices"
    listed.mkdir(parents=True, exist_ok=True)
    if not (listed / "0000:3b:00.0").exists():
        (listed / "0000:3b:00.0").symlink_to(folder)


def test_counters_of_a_card_and_of_the_port_above_it_are_added(tmp_path: Path) -> None:
    card_with_counters(tmp_path, 5)
    buses = ["0000:3b:00.0", "0000:99:00.0"]
    assert counters(tmp_path / "bus/pci/devices", buses) == {
        ("0000:3b:00.0", "corrected"): 7,
        ("0000:3b:00.0", "fatal"): 0,
    }, "absent is not zero"


def test_without_the_tracepoint_growth_of_the_counters_is_told(tmp_path: Path) -> None:
    seen: list[PcieError] = []
    card_with_counters(tmp_path, 5)
    watch = AerWatch(seen.append, sysfs=tmp_path, buses=lambda: ["0000:3b:00.0"])

    async def story() -> None:
        source = watch.start()
        if source in ("bpf", "trace_pipe"):
            watch.stop()
            pytest.skip("this kernel reports PCIe errors itself")
        assert source == "sysfs"
        watch.poll()
        assert seen == [], "what was counted before is old"
        card_with_counters(tmp_path, 9)
        watch.poll()
        watch.poll()
        watch.stop()

    asyncio.run(story())
    assert seen == [PcieError("0000:3b:00.0", "corrected", count=4)]


def test_the_source_in_use_is_the_best_that_the_kernel_has() -> None:
    """A kernel with the tracepoint that lets us load programs must not end up with less than BPF."""
    watch = AerWatch(lambda _: None, buses=list)

    async def story() -> str:
        source = watch.start()
        watch.stop()
        return source

    source = asyncio.run(story())
    try:
        place = open_tracefs()
        has = (place / "events/ras/aer_event").is_dir()
        close_tracefs(place)
    except TracingUnavailableError:
        has = False
    assert (source == "bpf") == has or "denied" in watch.problem or "permitted" in watch.problem
    assert source != "none" or watch.problem
