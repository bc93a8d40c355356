"""``hcs measure`` on emulated cards: a table for people, data for programs, one sentence where it cannot."""

from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from hcs.cli.main import build
from hcs.measure.emulated_backend import Speed, write_speed
from hcs.vendors import emulated


def run(*arguments: str):
    return CliRunner().invoke(build(), ["measure", *arguments], prog_name="hcs")


@pytest.fixture
def cards(tmp_path: Path) -> str:
    for index, speed in enumerate((100.0, 80.0)):
        path = tmp_path / f"nvidia{index}.card"
        emulated.create_card(path, vendor="nvidia", model="L40S", uuid=f"GPU-{index}", index=index, total_bytes=1 << 30)
        write_speed(path, Speed({"fp16": speed}, 800.0, 20.0))
    return str(tmp_path)


def test_all_cards_are_measured_one_after_the_other(cards):
    result = run("--emulated-cards", cards)
    assert result.exit_code == 0
    heads = [line for line in result.stdout.splitlines() if line.endswith("emulated engine:")]
    assert heads == ["L40S (emulated), emulated engine:"] * 2
    assert "ACU in gemm (measured)" in result.stdout
    assert "copying to and from card 1" in result.stderr


def test_one_card_is_one_object(cards):
    data = msgspec.json.decode(run("--emulated-cards", cards, "--device", "GPU-1", "--peer", "GPU-0", "--json").stdout)
    figures = {figure["metric"]: figure["value"] for figure in data["figures"]}
    assert figures["gemm_fp16"] == pytest.approx(80, rel=0.03)
    assert figures["p2p_to_0"] == pytest.approx(20, rel=0.03)
    assert figures["p2p_from_0"] == pytest.approx(20, rel=0.03)
    assert data["emulated"] is True


def test_other_cards_are_left_alone_unless_they_are_named(cards):
    data = msgspec.json.decode(run("--emulated-cards", cards, "--device", "GPU-1", "--json").stdout)
    assert [figure["metric"] for figure in data["figures"]] == ["gemm_fp16", "mem_bandwidth"]


def test_a_peer_that_is_not_there_is_a_failure_of_its_own(cards):
    result = run("--emulated-cards", cards, "--device", "GPU-1", "--peer", "GPU-7", "--json")
    assert result.exit_code == 0
    (failure,) = msgspec.json.decode(result.stdout)["failures"]
    assert (failure["metric"], failure["peer"]) == ("p2p", "GPU-7")
    assert "lists no card GPU-7" in failure["why"]


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [(("--device", "GPU-9"), 2, "listed are GPU-0, GPU-1"), (("--device", "GPU-0", "-o", "xml"), 2, "invalid value")],
)
def test_a_card_that_is_not_there(cards, arguments, code, why):
    result = run("--emulated-cards", cards, *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert why in result.stderr


def test_a_folder_without_speeds(tmp_path):
    result = run("--emulated-cards", str(tmp_path))
    assert result.exit_code == 1
    assert "there is nothing to measure" in result.stderr
