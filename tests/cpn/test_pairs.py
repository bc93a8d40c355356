"""Two jobs on one card: when one is gone, the other ends as planned, sooner, or for a reason later."""

import pytest

from hcs.cpn.pairs import partings
from hcs.wide.entries import Entry, Placement, Submission

NOW, LAG = 1_000_000, 2000


def holding(id: str, upper: int, **fields: object) -> Entry:
    placement = Placement("east", "A100", NOW, upper, upper, f"cpn-{id}-0", **fields)  # type: ignore[arg-type]
    return Entry(id, {}, Submission(id), "Running", 2, NOW, NOW, 1, placement=placement)


@pytest.mark.parametrize(
    ("seen", "moved"),
    [
        pytest.param(10_000, 0, id="as planned"),
        pytest.param(11_000, 0, id="seen late"),
        pytest.param(12_000, 0, id="seen as late as an end may be"),
        pytest.param(6_000, -2_000, id="early"),
        pytest.param(14_000, 2_000, id="its interval did not hold"),
    ],
)
def test_who_stays_ends_later_only_where_the_partner_overran(seen: int, moved: int) -> None:
    host = holding("h", NOW + 60_000, beside="g", rate=500)
    guest = holding("g", NOW + 10_000, host="h", beside="h", rate=500)
    [(entry, placement)] = partings({"h": host}, {"g": guest}.get, NOW + seen, LAG)
    assert entry == host
    assert (placement.upper, placement.rate) == (NOW + 60_000 + moved, 1000)
