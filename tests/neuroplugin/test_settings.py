"""Settings nobody could mean are refused with the fix."""

import pytest
from tests.neuro.boards import board
from tests.neuroplugin.room import node

from hcs.model.refusals import RefusedError
from hcs.neuroplugin.settings import Settings, Units


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        pytest.param(Settings(domain="Bad_Domain"), "write it like snn.vendor.com", id="no-domain"),
        pytest.param(Settings(domain="snn.kubernetes.io"), "belongs to Kubernetes", id="not-ours"),
        pytest.param(Settings(units=Units(ksps=0)), "must be 1 or more", id="no-unit"),
        pytest.param(Settings(units=Units(streams=2)), "cannot be divided", id="bundled-streams"),
        pytest.param(Settings(resources=("kspss",)), "there is no resource", id="unknown"),
    ],
)
def test_nonsense_is_refused(settings: Settings, sentence: str) -> None:
    with pytest.raises(RefusedError, match=sentence):
        settings.check()


def test_a_list_no_kubelet_can_take_is_refused_with_a_unit_that_works() -> None:
    large = board(width=24, height=24)
    with pytest.raises(RefusedError, match=r"200000 ids.*--unit ksps=40"):
        node(large, settings=Settings())
    made, _ = node(large, settings=Settings(units=Units(ksps=40)))
    assert len(made.books.units("snn.ai.compute/ksps")) == 5000
