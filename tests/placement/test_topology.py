"""The cards that belong together: against all subsets for node sizes, and never worse than simple beyond."""

import itertools
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.placement.wired import halves, linked, nic, wired

from hcs.model.devices import NodeInventory
from hcs.model.locality import NOWHERE, FabricRule, LinkRule, Locality
from hcs.placement.topology import (
    EXACT,
    Wiring,
    best_set,
    best_total,
    feasible,
    sets,
    total_of,
    wire,
    worst_of,
)

A100 = ("nvidia", "A100-SXM4-80GB")


def wiring(node: NodeInventory, locality: Locality = NOWHERE) -> Wiring:
    return wire(node, *A100, locality)


def every(count: int) -> int:
    return (1 << count) - 1


def test_a_pair_is_taken_from_one_half() -> None:
    graph = wiring(halves("n", cards=8))
    assert best_set(graph, 2, every(8)) == (0, 1)
    assert best_set(graph, 4, every(8)) == (0, 1, 2, 3)
    assert best_set(graph, 4, every(8) & ~0b1) == (4, 5, 6, 7), "the half that is whole"
    assert best_set(graph, 8, every(7)) is None


def test_a_measured_way_is_worth_more_than_its_word() -> None:
    """Two cards whose NVLink was measured slower than the others' PCIe."""
    node = wired("n", ["a100"] * 3, {(0, 1): "NV12:10000", (0, 2): "PIX:20000", (1, 2): "SYS"})
    assert best_set(wiring(node), 2, every(3)) == (0, 2)


def test_ends_that_disagree_are_worth_the_lesser() -> None:
    node = wired("n", ["a100"] * 3, {(0, 1): "NV12", (0, 2): "PIX", (1, 2): "SYS"})
    first = node.devices[0]
    lying = msgspec.structs.replace(first, links=tuple(msgspec.structs.replace(w, kind="NV18") for w in first.links))
    graph = wiring(msgspec.structs.replace(node, devices=(lying, *node.devices[1:])))
    assert graph.mbps[0][2] == graph.mbps[2][0] == 24_000


def test_a_single_card_is_taken_where_it_breaks_least() -> None:
    """Cards 0 and 1 are a pair, 2 is alone: the lonely one goes first, so the pair stays for who needs it."""
    node = wired("n", ["a100"] * 3, {(0, 1): "NV12", (0, 2): "SYS", (1, 2): "SYS"})
    assert best_set(wiring(node), 1, every(3)) == (2,)


def test_of_equal_sets_the_one_that_leaves_most_is_taken() -> None:
    """Three cards of four wanted from two pairs and a trio would break both pairs; the trio is whole."""
    ways = {(0, 1): "NV12", (2, 3): "NV12", (4, 5): "NV12"}
    node = wired("n", ["a100"] * 6, ways)
    graph = wiring(node)
    assert best_set(graph, 2, 0b111011) == (0, 1)
    assert best_set(graph, 1, 0b111011) == (3,), "its partner is gone"


def test_numa_and_the_adapter_decide_among_equals() -> None:
    """All ways are alike: without a wish the first two, with one those of one NUMA node, near the adapter."""
    node = halves("n", cards=4)
    flat = linked(node, {(a, b): "NV12" for a in range(4) for b in range(a + 1, 4)}, nics=(nic("mlx5_0", "ib", 1),))
    free = 0b1110
    assert best_set(wiring(flat), 2, free) == (1, 2)
    assert best_set(wiring(flat, Locality(numa="preferred")), 2, free) == (2, 3)
    near = Locality(fabric=FabricRule(required=False))
    assert best_set(wiring(flat, near), 1, every(4)) == (2,)
    assert best_set(wiring(flat, Locality(fabric=FabricRule(("other",)))), 1, every(4)) == (0,)


@pytest.mark.parametrize(
    ("rule", "count", "expected"),
    [
        pytest.param(LinkRule(("nvlink",)), 4, (0, 1, 2, 3), id="a-half"),
        pytest.param(LinkRule(("nvlink",)), 5, None, id="no-five"),
        pytest.param(LinkRule((), 400_000), 2, (0, 1), id="bandwidth"),
        pytest.param(LinkRule((), 500_000), 2, None, id="more-than-there-is"),
        pytest.param(LinkRule(("p2p",)), 4, (0, 1, 2, 3), id="peer-access"),
        pytest.param(LinkRule(("hccs",)), 2, None, id="another-vendors"),
        pytest.param(LinkRule(("hccs", "nvlink")), 2, (0, 1), id="any-of-two"),
    ],
)
def test_cards_that_may_not_go_together_never_do(rule: LinkRule, count: int, expected: tuple[int, ...] | None) -> None:
    graph = wiring(halves("n", cards=8), Locality(links=rule))
    assert best_set(graph, count, every(8)) == expected
    assert feasible(graph, count, every(8)) == (expected is not None)


def test_numa_nodes_that_nobody_knows_are_not_one() -> None:
    node = wired("n", ["a100", "a100"], {(0, 1): "NV12"})
    assert best_set(wiring(node, Locality(numa="required")), 2, every(2)) is None
    assert best_set(wiring(node, Locality(numa="required")), 1, every(2)) is not None


@st.composite
def graphs(draw: st.DrawFn, least: int, most: int) -> Wiring:
    size = draw(st.integers(least, most))
    mbps = [[0] * size for _ in range(size)]
    wishes = [[0] * size for _ in range(size)]
    apart = [0] * size
    rigid = draw(st.booleans())
    for i in range(size):
        wishes[i][i] = draw(st.integers(0, 1))
        for j in range(i):
            mbps[i][j] = mbps[j][i] = draw(st.sampled_from((0, 10, 20, 60)))
            wishes[i][j] = wishes[j][i] = draw(st.integers(0, 1))
            if rigid and draw(st.integers(0, 2)) == 0:
                apart[i] |= 1 << j
                apart[j] |= 1 << i
    return Wiring(tuple(map(tuple, mbps)), tuple(map(tuple, wishes)), tuple(apart))


def worth(graph: Wiring, chosen: Sequence[int]) -> tuple[int, int, int]:
    wishes = sum(graph.wishes[i][j] for i in chosen for j in chosen if j <= i)
    return total_of(graph, chosen), worst_of(graph, chosen), wishes


def allowed(graph: Wiring, size: int, count: int, free: int) -> list[tuple[int, ...]]:
    places = [place for place in range(size) if free >> place & 1]
    return [
        chosen
        for chosen in itertools.combinations(places, count)
        if not any(graph.apart[i] >> j & 1 for i in chosen for j in chosen)
    ]


@given(graph=graphs(1, 8), count=st.integers(1, 8), free=st.integers(0, 255))
def test_the_best_set_is_the_best_of_all(graph: Wiring, count: int, free: int) -> None:
    free &= every(graph.size)
    ways = allowed(graph, graph.size, count, free)
    found = list(sets(graph, count, free))
    assert sorted(found) == sorted(ways), "all choices come, each once"
    assert [worth(graph, one) for one in found] == sorted((worth(graph, one) for one in ways), reverse=True)
    assert feasible(graph, count, free) == bool(ways)
    if found:
        left = [free & ~sum(1 << place for place in one) for one in ways if worth(graph, one) == worth(graph, found[0])]
        rest = free & ~sum(1 << place for place in found[0])
        places = [[p for p in range(graph.size) if mask >> p & 1] for mask in (rest, *left)]
        assert total_of(graph, places[0]) == max(total_of(graph, some) for some in places[1:])


@given(graph=graphs(EXACT + 1, EXACT + 4), count=st.integers(1, 6))
def test_beyond_node_sizes_the_search_is_honest_and_not_worse_than_simple(graph: Wiring, count: int) -> None:
    """Simple: from the first card on, always the card with the widest ways to those already chosen."""
    free = every(graph.size)
    found = best_set(graph, count, free)
    simple: list[int] = [0]
    while len(simple) < count:
        others = [
            card
            for card in range(graph.size)
            if card not in simple and not any(graph.apart[card] >> one & 1 for one in simple)
        ]
        if not others:
            break
        simple.append(max(others, key=lambda card: (sum(graph.mbps[card][one] for one in simple), -card)))
    if found is None:
        assert len(simple) < count
        return
    assert len(set(found)) == count
    assert not any(graph.apart[i] >> j & 1 for i in found for j in found)
    if len(simple) == count:
        assert total_of(graph, found) >= total_of(graph, simple)
    assert best_total(graph, count, free) == total_of(graph, found)


def test_sixteen_cards_in_two_boxes_are_exact() -> None:
    graph = wiring(halves("n", cards=16))
    assert best_set(graph, 8, every(16) & ~0b1) == tuple(range(8, 16))
    assert worst_of(graph, (0, 8)) == 12_000


def test_thirty_two_cards_stay_in_their_half() -> None:
    graph = wiring(halves("n", cards=32))
    assert best_set(graph, 12, every(32) & ~0b11111) == tuple(range(16, 28))
