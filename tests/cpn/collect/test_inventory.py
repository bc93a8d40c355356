"""What must hold for any cards, pods and labels: nothing is counted twice, and nothing crashes the count."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcs.cpn.collect.inventory import Card, Holding, Machine, holding_of, take_stock
from hcs.cpn.collect.plugins import Announced, announced, count
from hcs.model.pods import Container, Pod, PodSpec, PodStatus, Resources

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


@pytest.mark.parametrize(
    ("resources", "cards"),
    [
        pytest.param(
            {
                "huawei.com/Ascend910": "8",
                "huawei.com/Ascend910-16c": "3",
                "huawei.com/Ascend310P-2c.1cpu": "4",
                "huawei.com/Ascend910B3-memory": "4000",
                "huawei.com/Ascend910B3-core": "100",
                "huawei.com/Ascend910B4-1": "8",
            },
            {"huawei.com/Ascend910": 8, "huawei.com/Ascend910B4-1": 8},
            id="ascend",
        ),
        pytest.param(
            {
                "cambricon.com/mlu370": "8",
                "cambricon.com/mlu370.smlu.vcore": "800",
                "cambricon.com/mlu590.mim-2m.8gb": "4",
            },
            {"cambricon.com/mlu370": 8},
            id="cambricon",
        ),
        pytest.param({"nvidia.com/gpu": "1", "nvidia.com/mig-1g.10gb": "7"}, {"nvidia.com/gpu": 1}, id="nvidia"),
    ],
)
def test_slices_cores_and_amounts_of_memory_are_no_cards(resources: dict[str, str], cards: dict[str, int]) -> None:
    found = announced({}, {"capacity": resources, "allocatable": resources})
    assert {entry.resource: entry.capacity for entry in found} == cards


OLD = (
    "GPU-1,10,32768,100,NVIDIA-Tesla V100-SXM2-32GB,0,true:GPU-2,10,32768,100,NVIDIA-Tesla V100-SXM2-32GB,0,true,1,mps:"
)
NEW = (
    '[{"id":"GPU-1","count":10,"devmem":32768,"devcore":100,"type":"NVIDIA-Tesla V100-SXM2-32GB","health":true},'
    '{"id":"GPU-2","count":10,"devmem":32768,"devcore":100,"type":"NVIDIA-Tesla V100-SXM2-32GB","health":true}]'
)


@pytest.mark.parametrize("text", [pytest.param(OLD, id="text"), pytest.param(NEW, id="json")])
def test_what_another_plugin_hands_out_several_times_is_counted_as_it_registered_it(text: str) -> None:
    amounts = {"capacity": {"nvidia.com/gpu": "20"}, "allocatable": {"nvidia.com/gpu": "10"}}
    (entry,) = announced({}, amounts, {"hami.io/node-nvidia-register": text})
    assert (entry.kind, entry.capacity, entry.allocatable, entry.shares) == ("V100-SXM2-32GB", 2, 1, 10)
    assert (entry.memory, entry.labelled) == (32 << 30, True)


@given(st.text(max_size=60) | st.sampled_from([OLD[:40], NEW[:-1], "[[[[" * 5000, '[{"count": -4}]', ":::", ","]))
def test_any_registration_leaves_whole_cards(text: str) -> None:
    amounts = {"capacity": {"nvidia.com/gpu": "8"}, "allocatable": {"nvidia.com/gpu": "8"}}
    (entry,) = announced({}, amounts, {"hami.io/node-nvidia-register": text})
    assert 1 <= entry.capacity <= 8
    assert entry.capacity * entry.shares <= 8


def starts(name: str, amount: int, *, sidecar: bool = False) -> Container:
    limits: dict[str, str | int | float] = {"nvidia.com/gpu": amount}
    return Container(name, resources=Resources(limits=limits), restartPolicy="Always" if sidecar else None)


@pytest.mark.parametrize(
    ("init", "main", "held"),
    [
        pytest.param([], [1, 2], 3, id="containers-together"),
        pytest.param([starts("i", 4)], [1], 4, id="the-hungriest-init-container"),
        pytest.param([starts("i", 2), starts("j", 3)], [1], 3, id="one-after-the-other"),
        pytest.param([starts("s", 1, sidecar=True)], [2], 3, id="a-sidecar-stays"),
        pytest.param([starts("s", 1, sidecar=True), starts("i", 3)], [1], 4, id="beside-a-sidecar-that-runs-already"),
        pytest.param([starts("i", 3), starts("s", 1, sidecar=True)], [1], 3, id="before-the-sidecar"),
    ],
)
def test_a_pod_holds_what_its_containers_hold_at_once(init: list[Container], main: list[int], held: int) -> None:
    containers = [starts(f"c{number}", amount) for number, amount in enumerate(main)]
    found = holding_of(Pod(spec=PodSpec(containers, init, nodeName="n1")))
    assert found is not None
    assert found.amounts == {"nvidia.com/gpu": held}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_holds_nothing_though_it_is_bound(phase: str) -> None:
    spec = PodSpec([starts("c", 1)], nodeName="n1")
    assert holding_of(Pod(spec=spec, status=PodStatus(phase=phase))) is None


@given(st.text(max_size=12) | st.integers() | st.floats() | st.none())
def test_any_amount_is_a_number_of_cards(amount: Any) -> None:
    assert 0 <= count(amount) <= 4096


@pytest.mark.parametrize("label", ["NVIDIA--SHARED", "-SHARED", "Tesla-", "tesla-tesla-", "nvidia-tesla--SHARED"])
def test_a_label_with_only_a_brand_names_no_card(label: str) -> None:
    [entry] = announced({"nvidia.com/gpu.product": label}, {"capacity": {"nvidia.com/gpu": "8"}})
    assert (entry.kind, entry.labelled, entry.capacity) == ("nvidia.com/gpu", False, 8)
