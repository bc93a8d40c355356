"""Copies timed between cards become the bandwidths that placement goes by, and noise becomes nothing."""

from hypothesis import given
from hypothesis import strategies as st

from hcs.measure.results import Result
from hcs.measure.suite import Failure, Figure
from hcs.measure.ways import measured_ways, tried, with_ways
from hcs.model.devices import Device, Link


def copies(device: str, *ways: tuple[str, float, float], steady: bool = True, day: str = "2026-11-21") -> Result:
    """A result with copies to and from other cards, in GB/s."""
    figures = []
    for number, (peer, there, back) in enumerate(ways):
        figures.append(Figure(f"p2p_to_{number}", there, "GB/s", 0.01, steady, 11, peer=peer))
        figures.append(Figure(f"p2p_from_{number}", back, "GB/s", 0.01, steady, 11, peer=peer))
    return Result(device, "nvidia", "A100", day, 1, "bench", "", {}, tuple(figures))


def test_both_directions_are_added() -> None:
    assert measured_ways([copies("a", ("b", 200.0, 190.0))]) == {frozenset("ab"): 390_000}


def test_one_direction_alone_is_no_way() -> None:
    one = copies("a", ("b", 200.0, 190.0))
    half = Result("a", "nvidia", "A100", "2026-11-21", 1, "bench", "", {}, one.figures[:1])
    assert measured_ways([half]) == {}


def test_what_does_not_hold_still_is_not_used() -> None:
    result = copies("a", ("b", 200.0, 190.0), steady=False)
    assert measured_ways([result]) == {}
    assert tried([result]) == {frozenset("ab")}


def test_a_copy_that_cannot_be_is_tried_once() -> None:
    failure = Failure("p2p_to_1", "card 0 cannot copy to card 1 directly", "b")
    result = Result("a", "nvidia", "A100", "2026-11-21", 1, "bench", "", {}, (), (failure,))
    assert tried([result]) == {frozenset("ab")}
    assert measured_ways([result]) == {}


def test_the_later_measurement_counts() -> None:
    old, new = copies("a", ("b", 10.0, 10.0), day="2026-10-01"), copies("b", ("a", 20.0, 20.0))
    assert measured_ways([new, old]) == measured_ways([old, new]) == {frozenset("ab"): 40_000}


def test_noise_is_no_difference_and_a_difference_is_kept() -> None:
    """204 and 206 GB/s would be 200 and 210 with two digits."""
    found = measured_ways([copies("a", ("b", 102.0, 102.0), ("c", 103.0, 103.0), ("d", 12.1, 12.2))])
    assert found[frozenset("ab")] == found[frozenset("ac")]
    assert found[frozenset("ad")] == 24_000


@given(st.lists(st.floats(0.5, 900), min_size=1, max_size=12))
def test_no_figure_is_moved_far_and_order_is_kept(speeds: list[float]) -> None:
    found = measured_ways([copies("x", *((f"p{n}", speed, speed) for n, speed in enumerate(speeds)))])
    pairs = [(2000 * speed, found[frozenset(("x", f"p{n}"))]) for n, speed in enumerate(speeds)]
    assert all(abs(given - true) <= 0.11 * true for true, given in pairs)
    published = [given for _, given in sorted(pairs)]
    assert published == sorted(published)


def test_what_was_measured_stands_beside_the_tools_word() -> None:
    card = Device("a", 0, "nvidia", "A100", 1, links=(Link("b", "NV12"), Link("c", "SYS")))
    ways = {frozenset("ab"): 400_000, frozenset("ad"): 20_000, frozenset("bc"): 1}
    assert with_ways(card, ways).links == (Link("b", "NV12", 400_000), Link("c", "SYS"), Link("d", "", 20_000))
