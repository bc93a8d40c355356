"""Memory that is measured from outside counts for a job only when it was the job that held it."""

import pytest

from hcs.cpn.collect.cards import CardReading
from hcs.cpn.peaks import Peaks
from hcs.model import names
from hcs.model.allocations import VERSION, Allocation, Grant, encode_allocation
from hcs.model.pods import ObjectMeta, Pod, PodSpec

GIB = 1 << 30
HELD = Allocation(VERSION, "u1", "n1", "nvidia", "A100", {"c": (Grant("GPU-a", GIB, 1000),)})


def pod() -> Pod:
    meta = ObjectMeta(uid="u1", annotations={names.ALLOCATION: encode_allocation(HELD)})
    return Pod(meta, PodSpec(nodeName="n1", schedulerName=names.SCHEDULER))


@pytest.mark.parametrize(
    ("age", "lag", "ago", "ran", "seen"),
    [
        pytest.param(5, 0, 3, 20, 3 * GIB, id="while-it-ran"),
        pytest.param(25, 0, 3, 20, None, id="before-it-began"),
        pytest.param(5, 0, 16, 20, None, id="before-it-began-and-nobody-asked-since"),
        pytest.param(5, 30, 3, 20, None, id="perhaps-before-for-the-exporter-looks-seldom"),
        pytest.param(5, 30, 3, 60, 3 * GIB, id="surely-while-it-ran"),
    ],
)
def test_a_reading_counts_when_it_is_surely_of_the_job(
    age: int, lag: int, ago: int, ran: int, seen: int | None
) -> None:
    peaks = Peaks()
    reading = CardReading("x", "nvidia", "n1", "GPU-a", used=3 * GIB, age=age * 1000, lag=lag * 1000)
    peaks.see("job", [pod()], [reading], ago * 1000, ran=ran * 1000)
    assert peaks.of("job") == seen
