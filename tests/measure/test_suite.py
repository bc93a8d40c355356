"""Hidden speeds are found from timed work; what cannot be measured says why, and stops nothing else."""

import datetime
import itertools
import math
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hcs.measure.backends import BackendError, Unit
from hcs.measure.choice import backends, find_unit
from hcs.measure.emulated_backend import EmulatedBackend, Speed, write_speed
from hcs.measure.numpy_backend import NumpyBackend
from hcs.measure.results import COPY_A100, GEMM_FP16_A100, is_slow, merged, rates_of, result_of
from hcs.measure.suite import Failure, Figure, measure, time_repeats
from hcs.model.devices import Rate
from hcs.vendors import emulated

TODAY = datetime.date(2026, 11, 21)


def card(folder: Path, index: int, speed: Speed) -> None:
    path = folder / f"nvidia{index}.card"
    emulated.create_card(path, vendor="nvidia", model="L40S", uuid=f"GPU-{index}", index=index, total_bytes=48 << 30)
    write_speed(path, speed)


def figures(backend: EmulatedBackend, unit: int = 0, **options: object) -> dict[str, Figure | Failure]:
    return {outcome.metric: outcome for outcome in measure(backend, unit, **options)}  # type: ignore[arg-type]


@given(st.floats(5, 2000), st.floats(1, 200), st.floats(100, 8000), st.floats(20, 900), st.integers(0, 2**16))
@example(half=5.0, single=1.0, memory=100.0, peer=20.0, seed=189)
@example(half=5.0, single=1.0, memory=8000.0, peer=900.0, seed=0)
def test_the_suite_finds_the_true_speed_within_three_percent(tmp_path_factory, half, single, memory, peer, seed):
    folder = tmp_path_factory.mktemp("cards")
    for index in (0, 1):
        card(folder, index, Speed({"fp16": half, "fp32": single}, memory, peer))
    found = figures(EmulatedBackend(folder, seed=seed), peers=[Unit(1, "", "GPU-1")])
    true = {"gemm_fp16": half, "gemm_fp32": single, "mem_bandwidth": memory, "p2p_to_1": peer, "p2p_from_1": peer}
    assert set(found) == set(true)
    for metric, value in true.items():
        figure = found[metric]
        assert isinstance(figure, Figure)
        assert figure.steady
        assert figure.spread <= 0.03
        assert figure.value == pytest.approx(value, rel=0.03)


def test_what_a_card_lacks_is_not_measured(tmp_path):
    card(tmp_path, 0, Speed({"bf16": 100.0}, 500.0))
    card(tmp_path, 1, Speed({"bf16": 100.0}, 500.0))
    found = figures(EmulatedBackend(tmp_path), peers=[Unit(1, "", "GPU-1")])
    assert set(found) == {"gemm_bf16", "mem_bandwidth", "p2p_to_1", "p2p_from_1"}
    assert found["p2p_from_1"].peer == "GPU-1"
    failure = found["p2p_to_1"]
    assert isinstance(failure, Failure)
    assert "cannot copy to card 1 directly" in failure.why


def test_cards_without_a_speed_and_foreign_files_are_left_out(tmp_path):
    card(tmp_path, 0, Speed({"fp16": 1.0}, 1.0))
    (tmp_path / "x.speed").write_text("{}")
    emulated.create_card(tmp_path / "a.card", vendor="nvidia", model="T4", uuid="u", index=1, total_bytes=1 << 30)
    backend = EmulatedBackend(tmp_path)
    assert [(unit.uuid, unit.name) for unit in backend.units()] == [("GPU-0", "L40S (emulated)")]
    with pytest.raises(BackendError, match="no emulated card 3"):
        backend.copy(3, 1, 1)


def test_a_card_is_found_by_its_uuid(tmp_path):
    card(tmp_path, 0, Speed({"fp16": 1.0}, 1.0))
    found = find_unit(backends(tmp_path), "GPU-0")
    assert found is not None
    assert (found[0].name, found[1].index) == ("emulated engine", 0)
    assert find_unit(backends(tmp_path), "GPU-9") is None
    assert find_unit([NumpyBackend()], "processor") is None  # a processor is no card


def test_the_processor_is_always_there():
    backend = NumpyBackend()
    assert not backend.is_card
    assert backend.multiply(0, 8, "fp32", 2) > 0
    assert backend.copy(0, 1024, 2) > 0
    with pytest.raises(BackendError, match="fp16"):
        backend.multiply(0, 8, "fp16", 1)


def figure(metric: str, value: float, *, steady: bool = True) -> Figure:
    return Figure(metric, value, "", 0.01, steady, 11)


def result(*outcomes: Figure | Failure):
    return result_of(
        outcomes, device="d", vendor="v", model="m", backend="b", driver="1", clocks={"sm": 1410}, today=TODAY
    )


def test_rates_follow_from_the_figures_that_have_a_reference():
    one = result(figure("gemm_fp16", GEMM_FP16_A100), figure("mem_bandwidth", COPY_A100 / 2), figure("gemm_int8", 5))
    assert [(rate.workload, rate.milliacu, rate.source, rate.as_of) for rate in rates_of(one)] == [
        ("gemm", 100_000, "measured", "2026-11-21"),
        ("decode", 50_000, "benchmark", "2026-11-21"),
    ]


def test_what_did_not_hold_still_is_shown_and_never_used():
    one = result(figure("gemm_fp16", 100.0, steady=False), Failure("mem_bandwidth", "out of memory"))
    assert rates_of(one) == ()
    assert len(one.figures) == len(one.failures) == 1


def test_a_measured_class_replaces_the_models_rate_and_no_other():
    known = (Rate("gemm", 1, "datasheet"), Rate("pretrain", 2, "measured"))
    own = (Rate("gemm", 3, "measured"),)
    assert merged(known, own) == (own[0], known[1])


@pytest.mark.parametrize(
    ("own", "all_cards", "slow"),
    [(89, (89, 100, 100), True), (90, (90, 100, 100), False), (10, (10,), False), (100, (100, 100, 80), False)],
)
def test_a_card_is_slow_beside_others_of_its_model(own, all_cards, slow):
    assert is_slow(own, all_cards) == slow


class Blind:
    """A framework that numbers its cards and tells no UUIDs."""

    name, is_card = "blind", True

    def __init__(self, count: int, *vendors: str) -> None:
        self.vendors = frozenset(vendors)
        self._units = [Unit(index, "NPU") for index in range(count)]

    def units(self) -> list[Unit]:
        return self._units


@pytest.mark.parametrize(
    ("backend", "visible", "expected"),
    [
        pytest.param(Blind(1, "ascend"), (), 0, id="the-only-one"),
        pytest.param(Blind(2, "ascend"), ("a", "b"), 1, id="by-its-place-among-those-made-visible"),
        pytest.param(Blind(1, "cambricon"), (), None, id="another-vendors-card"),
        pytest.param(Blind(3, "ascend"), ("a", "b"), BackendError, id="not-those-made-visible"),
        pytest.param(Blind(1, "ascend"), ("a",), BackendError, id="another-was-made-visible"),
        pytest.param(Blind(2, "ascend"), (), BackendError, id="which-one"),
    ],
)
def test_a_card_without_uuid_is_not_guessed(backend, visible, expected):
    if expected is BackendError:
        with pytest.raises(BackendError, match="cards without UUIDs"):
            find_unit([backend], "b", vendor="ascend", visible=visible)
        return
    found = find_unit([backend], "b", vendor="ascend", visible=visible)
    assert (found and (found[1].index, found[1].uuid)) == (None if expected is None else (expected, "b"))


def test_a_copy_grows_on_a_fast_card_as_far_as_there_is_room(tmp_path):
    class Full(EmulatedBackend):
        """Has room for copies of up to 2 GiB."""

        def copy(self, unit: int, amount: int, repeats: int) -> float:
            if amount > 2 << 30:
                raise BackendError("out of memory")
            return super().copy(unit, amount, repeats)

    card(tmp_path, 0, Speed({"fp16": 100.0}, 8000.0))
    details = [figures(made(tmp_path))["mem_bandwidth"].detail for made in (EmulatedBackend, Full)]
    assert details == ["copy of 4096 MiB, read and written", "copy of 2048 MiB, read and written"]


@pytest.mark.parametrize(("most_seconds", "steady"), [(math.inf, True), (1000.0, False)])
def test_what_was_disturbed_is_measured_again_where_time_is_not_bounded(most_seconds, steady):
    runs = itertools.count()

    def work(repeats: int) -> float:
        return 1.0 + (number % 2 if (number := next(runs)) < 125 else 0.0)

    timing, _ = time_repeats(work, most_seconds=most_seconds)
    assert timing.steady == steady
