"""Vendors through their tools: scripts that print what the tools print, and scripts that do not."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.vendors import texts

from hcs.agent.cards import Cards
from hcs.model.devices import Link
from hcs.ura.catalogue import load_catalogue
from hcs.vendors import registry
from hcs.vendors.base import Questioner, Vendor, VendorError, VendorHungError
from hcs.vendors.source import FilledSource, Query, SourcedVendor, ToolSource

CATALOGUE = load_catalogue()
Install = Callable[[str, str], Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put tools on the path, and only these."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def one(name: str, text: str) -> Path:
        path = folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    return one


def prints(folder: Path, text: str) -> str:
    file = folder / f"output-{abs(hash(text))}"
    file.write_text(text)
    return f"cat {file}"


@pytest.mark.parametrize(
    ("word", "tool", "text", "expected"),
    [
        pytest.param(
            "ascend",
            "npu-smi",
            texts.NPU_310P,
            [("Ascend310P (Atlas 300I Duo)", 4, 44280), ("Ascend310P (Atlas 300I Duo)", 5, 43693)],
            id="ascend",
        ),
        pytest.param("cambricon", "cnmon", texts.CNMON, [("MLU590", 7, 98304)], id="cambricon"),
        pytest.param("enflame", "efsmi", texts.EFSMI_17, [("L300", 0, 147456), ("S60", 1, 49120)], id="enflame"),
        pytest.param("hygon", "hy-smi", texts.HY_HCU, [("unknown", 0, 0), ("unknown", 1, 0)], id="hygon"),
        pytest.param("metax", "mx-smi", texts.MX_22, [("C500", 4, 65536), ("C500", 5, 65536)], id="metax"),
        pytest.param("amd", "rocm-smi", texts.ROCM_JSON, [("Made Up 7", 3, 196592)], id="amd"),
        pytest.param("nvidia", "nvidia-smi", texts.NVIDIA_XML, [("NVIDIA L4 & friends", 0, 23034)], id="nvidia"),
    ],
)
def test_a_vendor_without_its_library_answers_through_its_tool(
    install: Install, tmp_path: Path, word: str, tool: str, text: str, expected: list[tuple[str, int, int]]
) -> None:
    install(tool, prints(tmp_path, text))
    vendor = registry.FINDERS[word](CATALOGUE)
    assert vendor is not None
    assert vendor.word == word
    devices = vendor.probe()
    assert [(d.model, d.index, d.vram >> 20) for d in devices] == expected
    assert len({device.id for device in devices}) == len(devices), "two chips on one bus id are two devices"
    assert {observation.device for observation in vendor.read_health()} == {device.id for device in devices}


def test_a_machine_without_libraries_and_tools_has_no_vendors(install: Install) -> None:
    assert [vendor.word for vendor in registry.present(CATALOGUE)] == []


@pytest.mark.parametrize("label", ["GPU", "Phy-ID"])
def test_links_and_numa_nodes_come_from_the_topology(install: Install, tmp_path: Path, label: str) -> None:
    table = prints(tmp_path, texts.NVIDIA_CSV.replace("[N/A], [Not", "13, [Not"))
    matrix = prints(tmp_path, texts.TOPOLOGY.replace("GPU0", f"{label}0").replace("GPU1", f"{label}1"))
    install("nvidia-smi", f'case "$*" in "topo -m") {matrix};; *) {table};; esac')
    source = ToolSource([Query("nvidia-smi", ("--query",))], topology=Query("nvidia-smi", ("topo", "-m")))
    first, second = SourcedVendor("nvidia", source, CATALOGUE).probe()
    assert (first.links, first.numa) == ((Link(second.id, "NV4"),), 0)
    assert (second.links, second.numa) == ((Link(first.id, "NV4"),), 1)


def test_a_matrix_of_other_devices_is_not_used(install: Install, tmp_path: Path) -> None:
    table = prints(tmp_path, texts.CNMON)
    install("cnmon", f'case "$*" in "topo -m") {prints(tmp_path, texts.TOPOLOGY)};; *) {table};; esac')
    (device,) = registry.FINDERS["cambricon"](CATALOGUE).probe()  # type: ignore[union-attr]
    assert device.links == ()


def test_a_tool_is_not_asked_again_while_its_answer_is_young(install: Install, tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    install("cnmon", f"echo x >> {asked}; {prints(tmp_path, texts.CNMON)}")
    clock = [0.0]
    source = ToolSource([Query("cnmon")], clock=lambda: clock[0], period=10)
    vendor = SourcedVendor("cambricon", source, CATALOGUE)
    for now in (0.0, 5.0, 9.9, 10.0, 12.0):
        clock[0] = now
        vendor.read_health()
    assert asked.read_text().split() == ["x", "x"]


def test_a_tool_that_has_hung_is_left_alone_for_a_while() -> None:
    clock, asked = [0.0], []

    def run(arguments: object) -> bytes:
        asked.append(clock[0])
        raise VendorHungError("it hangs")

    source = ToolSource([Query("sh", tool="cnmon")], run=run, clock=lambda: clock[0], period=10)
    for now in (0.0, 10.0, 59.0, 60.0, 61.0):
        clock[0] = now
        with pytest.raises(VendorHungError, match="it hangs"):
            source.read()
    assert asked == [0.0, 60.0]


def test_what_a_library_leaves_open_a_tool_fills(install: Install, tmp_path: Path) -> None:
    install("cnmon", prints(tmp_path, texts.CNMON))
    install("other", prints(tmp_path, texts.CNMON.replace("70001", "  xxx").replace(" 48C", " N/A")))
    filled = FilledSource(ToolSource([Query("other", tool="cnmon")]), ToolSource([Query("cnmon")]))
    (device,) = filled.read()
    assert (device["memory_used_mib"], device["temperature_c"], device["index"]) == (70001, 48, 7)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("echo garbage", "", id="garbage-is-no-cards"),
        pytest.param("echo 'No devices were found'", "says: No devices were found", id="the-tool-complains"),
        pytest.param("exit 14", "exited with 14", id="fails"),
    ],
)
def test_a_tool_that_says_nothing_of_use_invents_no_card(
    install: Install, tmp_path: Path, text: str, message: str
) -> None:
    install("nvidia-smi", text)
    vendor = SourcedVendor("nvidia", ToolSource([Query("nvidia-smi", ("-q", "-x"))]), CATALOGUE)
    if message:
        with pytest.raises(VendorError, match=message):
            vendor.probe()
    else:
        assert vendor.probe() == []


def test_a_hanging_tool_makes_its_cards_unknown_and_an_answer_mends_it(install: Install, tmp_path: Path) -> None:
    switch = tmp_path / "switch"
    install("cnmon", f"test -e {switch} && sleep 600; {prints(tmp_path, texts.CNMON)}")

    def run(arguments: object) -> bytes:
        from hcs.vendors import commands

        return commands.run(list(arguments), limit=0.3)  # type: ignore[call-overload]

    vendor: Vendor = SourcedVendor("cambricon", ToolSource([Query("cnmon")], run=run, period=0), CATALOGUE)
    cards = Cards([vendor], asker=lambda vendor: Questioner(vendor, limit=30))

    async def story() -> list[tuple[str, str]]:
        seen = []
        await cards.probe()
        for hang in (False, True, False):
            switch.touch() if hang else switch.unlink(missing_ok=True)
            await cards.check()
            (device,) = cards.devices
            seen.append((device.verdict, device.verdict_reason))
        return seen

    assert asyncio.run(story()) == [("Healthy", ""), ("Unknown", "VendorHung"), ("Healthy", "")]


def test_figures_become_verdicts(install: Install, tmp_path: Path) -> None:
    install("mx-smi", prints(tmp_path, texts.MX_22))
    vendor = registry.FINDERS["metax"](CATALOGUE)
    assert vendor is not None
    cards = Cards([vendor])

    async def story() -> None:
        await cards.probe()
        await cards.check()

    asyncio.run(story())
    assert [(device.verdict, device.verdict_reason) for device in cards.devices] == [
        ("Healthy", ""),
        ("Failed", "NotAvailable"),
    ]
