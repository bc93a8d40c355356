"""What containers hold is learnt from the kubelet; one that has just started is not believed when it says: nothing."""

import pytest
from tests.neuroplugin.room import KSPS, node

from hcs.deviceplugin.podresources import Holder, Holding
from hcs.neuroplugin.books import SILENT_LOOKS

MINE, OTHER = Holder("lab", "spiker", "main"), Holder("lab", "other", "main")


@pytest.mark.parametrize(
    ("listed", "looks"),
    [
        pytest.param([], SILENT_LOOKS, id="an-empty-list-must-last"),
        pytest.param(
            [Holding(OTHER, {"example.test/else": frozenset({"x"})}, ())], 1, id="others-are-listed-and-it-is-not"
        ),
    ],
)
def test_a_container_that_is_listed_no_more_gives_back(listed: list[Holding], looks: int) -> None:
    books = node()[0].books
    ids = tuple(unit.id for unit in books.units(KSPS)[:7])
    books.allocate(KSPS, ids)
    held = Holding(MINE, {KSPS: frozenset(ids)}, ())
    assert books.reconcile([held]) == []
    for _ in range(looks - 1):
        assert books.reconcile(listed) == []
    assert [taken.amount for taken in books.reconcile(listed)] == [7]


def test_a_kubelet_that_lists_again_in_time_has_lost_nothing() -> None:
    books = node()[0].books
    ids = tuple(unit.id for unit in books.units(KSPS)[:7])
    books.allocate(KSPS, ids)
    held = Holding(MINE, {KSPS: frozenset(ids)}, ())
    for _ in range(3):
        assert books.reconcile([held]) == []
        for _ in range(SILENT_LOOKS - 1):
            assert books.reconcile([]) == []
