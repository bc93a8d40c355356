"""A request meets a card: what it takes of it, in the two units every ledger is kept in, or why it never will."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcs.model import names
from hcs.model.devices import Device, Rate
from hcs.model.quantities import GIB
from hcs.model.refusals import Refusal
from hcs.model.requests import ComputeRequest, ContainerRequest, Total
from hcs.ura.demand import Demand, Wanted, demand, label


def device(vram: int = 64, source: str = "measured", **acu: int) -> Device:
    """A card called X of some vendor; rates in whole ACU by class."""
    rates = tuple(Rate(workload, amount * 1000, source) for workload, amount in acu.items())  # type: ignore[arg-type]
    return Device(
        id="x",
        index=0,
        vendor="ascend",
        model="X",
        vram=vram * GIB,
        rates=rates,
        fp16_mtflops=300_000,
        verdict="Healthy",
    )


def ask(
    *,
    cards: int = 1,
    vram: int = 0,
    acu: int = 0,
    total: Total | None = None,
    workload: str = "gemm",
    sharing: str = "",
) -> tuple[ContainerRequest, ComputeRequest]:
    """A container's request and its pod's; vram in Gi."""
    container = ContainerRequest("main", cards, vram * GIB, acu * 1000, total)
    kind = sharing or ("shared" if vram and cards == 1 else "exclusive")
    return container, ComputeRequest((container,), workload=workload, sharing=kind)  # type: ignore[arg-type]


FP16 = names.FP16_TFLOPS
SHARE, WHOLE = False, True


@pytest.mark.parametrize(
    ("asked", "on", "expected"),
    [
        pytest.param(ask(vram=16), device(gemm=100), (1, 16, 0, SHARE), id="a-share-of-memory-alone"),
        pytest.param(ask(vram=16, acu=40), device(gemm=100), (1, 16, 40_000, SHARE), id="a-share-with-compute"),
        pytest.param(ask(vram=16), device(), (1, 16, 0, SHARE), id="memory-needs-no-rate"),
        pytest.param(
            ask(vram=16, acu=40, workload="decode"),
            device(gemm=120, decode=80),
            (1, 16, 60_000, SHARE),
            id="another-class-in-the-ledger-of-the-default",
        ),
        pytest.param(
            ask(vram=16, acu=1, workload="decode"),
            device(gemm=10, decode=3),
            (1, 16, 3_334, SHARE),
            id="and-rounded-up",
        ),
        pytest.param(ask(cards=4, vram=16), device(gemm=100), (4, 64, 100_000, WHOLE), id="several-cards-are-whole"),
        pytest.param(ask(vram=16, sharing="exclusive"), device(gemm=100), (1, 64, 100_000, WHOLE), id="exclusive"),
        pytest.param(ask(sharing="shared"), device(gemm=100), (1, 64, 100_000, WHOLE), id="no-quota-is-no-share"),
        pytest.param(ask(cards=2), device(), (2, 64, 0, WHOLE), id="whole-cards-need-no-rate"),
        pytest.param(
            ask(vram=8, total=Total(FP16, 75)), device(gemm=100), (1, 8, 25_000, SHARE), id="a-quarter-of-a-card"
        ),
        pytest.param(
            ask(vram=8, total=Total(FP16, 300)), device(gemm=100), (1, 8, 100_000, SHARE), id="exactly-one-card"
        ),
        pytest.param(
            ask(vram=8, total=Total(FP16, 301)), device(gemm=100), (2, 64, 100_000, WHOLE), id="a-little-over-one-card"
        ),
        pytest.param(
            ask(total=Total(FP16, 75)), device(gemm=100), (1, 64, 100_000, WHOLE), id="a-total-without-memory-is-whole"
        ),
        pytest.param(
            ask(total=Total(names.TOTAL_ACU, 250)), device(gemm=100), (3, 64, 100_000, WHOLE), id="acu-in-total"
        ),
        pytest.param(
            ask(vram=8, total=Total(names.TOTAL_ACU, 20), workload="decode"),
            device(gemm=100, decode=80),
            (1, 8, 25_000, SHARE),
            id="acu-in-total-of-another-class",
        ),
    ],
)
def test_a_request_becomes_exact_amounts(
    asked: tuple[ContainerRequest, ComputeRequest], on: Device, expected: tuple[int, int, int, bool]
) -> None:
    cards, vram, milliacu, is_whole = expected
    assert demand(*asked, on) == Demand(cards, vram * GIB, milliacu, is_whole)


@pytest.mark.parametrize(
    ("asked", "on", "reason", "words"),
    [
        pytest.param(
            ask(vram=65), device(gemm=9), "VramTooSmall", "needs 65Gi on one card; Ascend X has 64Gi", id="vram"
        ),
        pytest.param(ask(cards=2, vram=65), device(gemm=9), "VramTooSmall", "65Gi", id="vram-of-whole-cards"),
        pytest.param(
            ask(vram=8, acu=81, workload="decode"),
            device(gemm=100, decode=80),
            "AcuTooHigh",
            "needs 81 ACU in decode on one card; Ascend X does 80",
            id="too-slow-in-the-class-it-is-asked-in",
        ),
        pytest.param(ask(cards=2, acu=101), device(gemm=100), "AcuTooHigh", "101 ACU", id="whole-cards-too-slow"),
        pytest.param(ask(vram=8, acu=1), device(decode=80), "NoRate", "Ascend X in gemm", id="no-rate"),
        pytest.param(
            ask(vram=8, acu=1, workload="decode"), device(decode=80), "NoRate", "gemm", id="no-rate-to-keep-a-ledger-in"
        ),
        pytest.param(ask(total=Total(names.TOTAL_ACU, 9)), device(), "NoRate", "not known", id="no-rate-for-a-total"),
        pytest.param(
            ask(total=Total(names.INT8_TOPS, 9)), device(gemm=1), "NoRatedFigure", "needs 9 int8-tops", id="not-rated"
        ),
    ],
)
def test_hardware_that_never_serves_says_why(
    asked: tuple[ContainerRequest, ComputeRequest], on: Device, reason: str, words: str
) -> None:
    refusal = demand(*asked, on)
    assert isinstance(refusal, Refusal)
    assert refusal.reason == reason
    assert words in refusal.message


def wanted(acu: int, source: str = "measured") -> Wanted:
    return Wanted("A100", Rate("gemm", acu * 1000, source))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "on", "instead_of", "expected"),
    [
        pytest.param(ask(cards=2), device(gemm=50), wanted(100), 4, id="twice-as-many-half-as-fast"),
        pytest.param(ask(cards=1), device(gemm=99), wanted(100), 2, id="never-less-than-asked"),
        pytest.param(ask(cards=4), device(gemm=300), wanted(100), 2, id="fewer-that-are-faster"),
        pytest.param(ask(cards=1, acu=90), device(gemm=50), wanted(100), 2, id="the-count-makes-up-for-slow-cards"),
        pytest.param(ask(vram=8, acu=40), device(gemm=50), wanted(100), 1, id="a-share-stays-one-share"),
        pytest.param(ask(vram=8), device(gemm=50), wanted(100), 1, id="also-without-acu"),
    ],
)
def test_a_substitute_does_at_least_as_much(
    asked: tuple[ContainerRequest, ComputeRequest], on: Device, instead_of: Wanted, expected: int
) -> None:
    found = demand(*asked, on, wanted=instead_of)
    assert isinstance(found, Demand)
    assert found.cards == expected


@pytest.mark.parametrize(
    ("asked", "on", "instead_of", "reason"),
    [
        pytest.param(ask(cards=1), device(source="derived", gemm=99), wanted(100), "DerivedRateOnly", id="its-own"),
        pytest.param(ask(cards=1), device(gemm=99), wanted(100, "derived"), "DerivedRateOnly", id="the-other-side"),
        pytest.param(
            ask(vram=8), device(source="derived", gemm=99), wanted(100), "DerivedRateOnly", id="for-shares-as-well"
        ),
        pytest.param(ask(vram=8), device(), wanted(100), "NoRate", id="less-than-derived-is-nothing"),
        pytest.param(ask(cards=8, vram=65), device(gemm=99), wanted(1), "VramTooSmall", id="memory-is-never-exchanged"),
        pytest.param(ask(vram=8, acu=60), device(gemm=50), wanted(100), "AcuTooHigh", id="a-share-cannot-be-split"),
    ],
)
def test_not_every_card_may_stand_in(
    asked: tuple[ContainerRequest, ComputeRequest], on: Device, instead_of: Wanted, reason: str
) -> None:
    refusal = demand(*asked, on, wanted=instead_of)
    assert isinstance(refusal, Refusal)
    assert refusal.reason == reason


def test_a_derived_rate_serves_where_nothing_is_substituted() -> None:
    assert isinstance(demand(*ask(vram=8, acu=40), device(source="derived", gemm=50)), Demand)


@given(asked=st.integers(1, 100_000), gemm=st.integers(1, 1_000_000), decode=st.integers(1, 1_000_000))
def test_a_ledger_never_gives_away_compute(asked: int, gemm: int, decode: int) -> None:
    """A share takes at least what it asked of the card, rounded up by less than one, and never more than the card."""
    card = Device("x", 0, "ascend", "X", GIB, (Rate("gemm", gemm, "measured"), Rate("decode", decode, "measured")))
    container = ContainerRequest("main", 1, GIB, asked)
    found = demand(container, ComputeRequest((container,), workload="decode"), card)
    if asked > decode:
        assert isinstance(found, Refusal)
        return
    assert isinstance(found, Demand)
    assert found.milliacu <= gemm
    assert found.milliacu * decode >= asked * gemm > (found.milliacu - 1) * decode


@pytest.mark.parametrize(
    ("vendor", "model", "expected"),
    [
        ("nvidia", "L4", "NVIDIA L4"),
        ("ascend", "910B2", "Ascend 910B2"),
        ("ascend", "Ascend910B2", "Ascend910B2"),
        ("mthreads", "S4000", "Moore Threads S4000"),
    ],
)
def test_a_card_is_called_by_vendor_and_model_once(vendor: str, model: str, expected: str) -> None:
    assert label(Device("x", 0, vendor, model, GIB)) == expected


@pytest.mark.parametrize(
    ("request_", "serves"),
    [
        pytest.param(ComputeRequest((ContainerRequest("c", vram=8 * GIB),)), False, id="share"),
        pytest.param(ComputeRequest((ContainerRequest("c", vram=8 * GIB, milliacu=1000),)), False, id="share-with-acu"),
        pytest.param(
            ComputeRequest((ContainerRequest("c", vram=8 * GIB),), sharing="exclusive"), True, id="the-whole-card"
        ),
    ],
)
def test_a_share_is_never_promised_where_nothing_holds_it(request_: ComputeRequest, serves: bool) -> None:
    card = msgspec.structs.replace(device(gemm=100), whole_only=True)
    found = demand(request_.containers[0], request_, card)
    assert isinstance(found, Demand) == serves
    assert serves or (isinstance(found, Refusal) and found.reason == "ShareNotEnforceable")
