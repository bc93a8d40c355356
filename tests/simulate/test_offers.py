"""What could be had now: each kind of card alone, as often as the pod fits, with reasons where it does not."""

from tests.placement.fleets import REFERENCE_RATES, node, share, whole

from hcs.model.quantities import GIB
from hcs.model.requests import ComputeRequest
from hcs.placement.engine import place
from hcs.placement.plans import Placement
from hcs.placement.snapshot import Snapshot
from hcs.simulate.offers import offers

NODES = (node("n1", "a100", "a100", "t4"), node("n2", "910b", "910b"), node("n3", "mlu"))


def kinds(request: ComputeRequest, *held: object, **options: object) -> dict[str, object]:
    return {row.model: row for row in offers(NODES, held, request, **options)}  # type: ignore[arg-type]


def test_copies_are_counted_until_nothing_fits():
    rows = kinds(ComputeRequest((share(16),)))
    assert {model: row.copies for model, row in rows.items()} == {
        "A100-SXM4-80GB": 10,
        "T4": 1,
        "910B2": 8,
        "MLU370-X8": 3,
    }
    assert rows["910B2"].nodes == ("n2",)
    assert (rows["T4"].bytes, rows["T4"].cards, rows["T4"].source) == (16 * GIB, 1, "datasheet")
    assert rows["MLU370-X8"].source == ""


def test_a_limit_stops_the_counting_and_says_so():
    row = kinds(ComputeRequest((share(1),)), limit=3)["A100-SXM4-80GB"]
    assert (row.copies, row.more) == (3, True)
    exactly = kinds(ComputeRequest((share(16),)), limit=10)["A100-SXM4-80GB"]
    assert (exactly.copies, exactly.more) == (10, False)


def test_what_is_held_is_not_offered():
    owner = place(Snapshot.build(NODES), ComputeRequest((whole(2),), models=("910B2",), sharing="exclusive"))
    assert isinstance(owner, Placement)
    row = kinds(ComputeRequest((share(16),)), owner.allocation("owner"))["910B2"]
    assert (row.copies, row.why) == (
        0,
        "0 of 1 nodes can serve: 1 CardsTaken (needs 16Gi on one card; the cards here that could serve are taken by "
        "other pods)",
    )


def test_named_cards_come_first_and_substitutes_show_their_rate():
    asked = ComputeRequest((whole(),), models=("A100-SXM4-80GB",), sharing="exclusive")
    rows = offers(NODES, (), asked, reference_rates=REFERENCE_RATES)
    assert [(row.model, row.named, row.copies) for row in rows] == [
        ("A100-SXM4-80GB", True, 2),
        ("910B2", False, 2),
        ("MLU370-X8", False, 0),
        ("T4", False, 0),
    ]
    assert rows[1].exchange is not None
    assert (rows[1].exchange.wanted_milliacu, rows[1].exchange.got_milliacu) == (100_000, 120_000)
    assert "stand in" in rows[2].why or "rate" in rows[2].why


def test_compute_is_of_the_pods_own_workload():
    asked = ComputeRequest((whole(),), models=("910B2",), workload="finetune", sharing="exclusive")
    assert kinds(asked)["910B2"].milliacu == 40_000
