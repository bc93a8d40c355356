"""What must hold for any cards, pods and labels: nothing is counted twice, and nothing crashes the count."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcs.cpn.collect.inventory import Card, Holding, Machine, take_stock
from hcs.cpn.collect.plugins import Announced, announced, count

NODES = ["n1", "n2", "n3"]
CARDS = st.builds(
    Card,
    node=st.sampled_from(NODES[:2]),
    id=st.sampled_from(["a", "b", "c"]),
    index=st.integers(0, 3),
    vendor=st.just("nvidia"),
    kind=st.sampled_from(["A", "B"]),
    memory=st.integers(1, 1 << 40),
    usable=st.booleans(),
    foreign=st.booleans(),
)
ANNOUNCED = st.builds(
    Announced,
    resource=st.sampled_from(["nvidia.com/gpu", "amd.com/gpu"]),
    vendor=st.just("nvidia"),
    kind=st.sampled_from(["A", "C"]),
    capacity=st.integers(0, 9),
    allocatable=st.integers(0, 9),
    shares=st.integers(1, 4),
    memory=st.none() | st.integers(1, 99),
    labelled=st.booleans(),
)
MACHINES = st.builds(
    Machine,
    name=st.sampled_from(NODES),
    takes_pods=st.booleans(),
    addresses=st.just(frozenset[str]()),
    cards=st.lists(ANNOUNCED, max_size=2, unique_by=lambda entry: entry.resource).map(tuple),
)
HOLDINGS = st.builds(
    Holding,
    node=st.sampled_from(NODES),
    devices=st.frozensets(st.sampled_from(["a", "b", "c", "gone"]), max_size=3),
    amounts=st.dictionaries(st.sampled_from(["nvidia.com/gpu", "amd.com/gpu"]), st.integers(0, 12)),
    labels=st.sampled_from([{}, {"ours": "yes"}]),
    owner=st.just(""),
)


@given(
    st.lists(MACHINES, max_size=3, unique_by=lambda machine: machine.name),
    st.lists(CARDS, max_size=6, unique_by=lambda card: (card.node, card.id)),
    st.lists(HOLDINGS, max_size=8),
    st.integers(0, 12),
)
def test_what_is_taken_and_what_is_ours_never_exceed_what_is_usable(
    machines: list[Machine], cards: list[Card], holdings: list[Holding], sick: int
) -> None:
    stock = take_stock(machines, tuple(cards), holdings, lambda one: bool(one.labels), lambda node, vendor: sick)
    for pool in stock.pools:
        assert min(pool.usable, pool.taken, pool.ours) >= 0
        assert pool.taken + pool.ours <= pool.usable
        assert pool.usable == sum(many for (_, kind), many in stock.by_node.items() if kind == pool.kind)
    nobody = take_stock(machines, tuple(cards), (), lambda one: True, lambda node, vendor: sick)
    assert [pool.usable for pool in nobody.pools] == [pool.usable for pool in stock.pools]
    assert all(pool.ours == 0 for pool in nobody.pools)


AMOUNTS = st.sampled_from(["8", "0", "-1", "1e400", "8k", "", "eight", "9" * 30, "0.5", 4, 2.5])
LABELS = st.dictionaries(
    st.sampled_from(["nvidia.com/gpu.product", "nvidia.com/gpu.memory", "nvidia.com/gpu.replicas", "amd.com/gpu.vram"]),
    st.sampled_from(["4", "0", "-4", "81920", "NVIDIA-A100-SXM4-80GB", "-SHARED", "64G", "9" * 40, "", "tesla-tesla-"]),
)


@given(LABELS, st.dictionaries(st.sampled_from(["nvidia.com/gpu", "amd.com/gpu", "cpu", "huawei.com/npu"]), AMOUNTS))
def test_any_labels_and_amounts_make_whole_cards_or_none(labels: dict[str, str], amounts: dict[str, Any]) -> None:
    for entry in announced(labels, {"capacity": amounts, "allocatable": amounts}):
        assert entry.kind
        assert entry.shares >= 1
        assert 0 <= entry.allocatable == entry.capacity <= 4096
        assert entry.memory is None or 0 < entry.memory < 1 << 62
        assert entry.cards(entry.shares) == 1


@given(st.text(max_size=12) | st.integers() | st.floats() | st.none())
def test_any_amount_is_a_number_of_cards(amount: Any) -> None:
    assert 0 <= count(amount) <= 4096


@pytest.mark.parametrize("label", ["NVIDIA--SHARED", "-SHARED", "Tesla-", "tesla-tesla-", "nvidia-tesla--SHARED"])
def test_a_label_with_only_a_brand_names_no_card(label: str) -> None:
    [entry] = announced({"nvidia.com/gpu.product": label}, {"capacity": {"nvidia.com/gpu": "8"}})
    assert (entry.kind, entry.labelled, entry.capacity) == ("nvidia.com/gpu", False, 8)
