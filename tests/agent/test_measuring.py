"""The measuring process: a card by its id, an answer as data, and an end to it whatever happens."""

import asyncio
from pathlib import Path

import pytest

from hcs.agent.measuring import ProcessMeasurer, can_measure
from hcs.measure.emulated_backend import write_speed
from hcs.measure.results import rates_of
from hcs.model.devices import Device
from hcs.sandbox.speeds import HIGH, LOW, hidden_speed
from hcs.ura.catalogue import load_catalogue
from hcs.vendors import emulated

CARD = load_catalogue().find("L40S")
DEVICE = Device("GPU-7", 0, "nvidia", "L40S", 48 << 30, emulated=True)


@pytest.fixture
def cards(tmp_path: Path) -> Path:
    path = tmp_path / "nvidia0.card"
    emulated.create_card(path, vendor="nvidia", model="L40S", uuid=DEVICE.id, index=0, total_bytes=DEVICE.vram)
    write_speed(path, hidden_speed(CARD, "seed"))
    return tmp_path


def test_the_command_measures_the_card_that_is_named(cards: Path) -> None:
    measurer = ProcessMeasurer(emulated_cards=cards, drivers=lambda: {"nvidia": "550.1"})
    result = asyncio.run(measurer(DEVICE, ()))
    assert result is not None
    assert (result.device, result.model, result.driver, result.emulated) == ("GPU-7", "L40S", "550.1", True)
    true = hidden_speed(CARD, "seed").operations["fp16"]
    (gemm,) = [figure for figure in result.figures if figure.metric == "gemm_fp16"]
    assert gemm.value == pytest.approx(true, rel=0.03)
    assert [rate.workload for rate in rates_of(result)] == ["gemm", "decode"]


def test_a_card_that_nothing_drives_is_no_error(cards: Path) -> None:
    measurer = ProcessMeasurer(emulated_cards=cards, drivers=dict)
    assert asyncio.run(measurer(Device("GPU-8", 1, "nvidia", "L40S", 1), ())) is None


def test_nothing_is_measured_where_nothing_can_measure(cards: Path, tmp_path: Path) -> None:
    assert can_measure(cards)
    (tmp_path / "empty").mkdir()
    assert not can_measure(tmp_path / "empty")


def test_a_hidden_speed_is_near_the_rating_and_each_cards_own() -> None:
    speeds = [hidden_speed(CARD, str(seed)).operations["fp16"] for seed in range(50)]
    assert len(set(speeds)) == 50
    assert CARD.fp16_mtflops is not None
    assert all(LOW <= speed * 1000 / CARD.fp16_mtflops <= HIGH for speed in speeds)
    assert hidden_speed(CARD, "1") == hidden_speed(CARD, "1")
