"""Flags of collective communication: written where a fact calls for one, and never against anybody's word."""

import itertools

import pytest

from hcs.inject.collectives import TOGETHER, Wires, collective_variables, undisputed
from hcs.model import names
from hcs.model.allocations import Peers
from hcs.model.devices import Device, Link, Nic


def cards(vendor: str, *indexes: int, **ways: str) -> tuple[Device, ...]:
    """Cards with these numbers; ``way_0_8="PHB"`` is what both ends say of their way, ``way`` that of all others."""
    words = {}
    for one, other in itertools.combinations(indexes, 2):
        word = ways.get(f"way_{one}_{other}", ways.get("way"))
        if word:
            words[one, other] = words[other, one] = word
    return tuple(
        Device(
            id=f"card-{index}",
            index=index,
            vendor=vendor,
            model="x",
            vram=1,
            links=tuple(Link(f"card-{b}", word) for (a, b), word in sorted(words.items()) if a == index),
        )
        for index in indexes
    )


IB = (Nic("mlx5_1", "ib-a"), Nic("mlx5_0", "ib-a"), Nic("mlx5_9", "ib-b"))
FAR = Peers(members=4, nodes=2, here=2, fabric="ib-a")
APART = Peers(members=4, nodes=2, here=2)
HERE = Peers(members=2, nodes=1, here=2)


@pytest.mark.parametrize(
    ("vendor", "wires", "expected"),
    [
        pytest.param("nvidia", Wires(cards("nvidia", 0)), {}, id="one-card-alone"),
        pytest.param("nvidia", Wires(cards("nvidia", 0, 1, way="NV12")), {}, id="nvlink-needs-no-word"),
        pytest.param("nvidia", Wires(cards("nvidia", 0, 1, way="SYS")), {}, id="nccl-knows-how-far-peers-are"),
        pytest.param("nvidia", Wires(cards("nvidia", 0, 1)), {}, id="nothing-known-nothing-written"),
        pytest.param(
            "nvidia",
            Wires(cards("nvidia", 0, 1, 2, way="PIX", way_0_2="CNS")),
            {"NCCL_P2P_DISABLE": "1"},
            id="no-peers",
        ),
        pytest.param(
            "nvidia", Wires(cards("nvidia", 0, 1), shared=True), {"NCCL_P2P_DISABLE": "1"}, id="shares-of-cards"
        ),
        pytest.param(
            "nvidia",
            Wires(cards("nvidia", 0), peers=HERE),
            {"NCCL_P2P_DISABLE": "1"},
            id="ranks-in-containers-side-by-side",
        ),
        pytest.param(
            "nvidia", Wires(cards("nvidia", 0, 1, way="NV12"), peers=HERE), {}, id="several-keep-their-nvlink"
        ),
        pytest.param(
            "nvidia",
            Wires(cards("nvidia", 0, 1, way="NV12"), IB, FAR),
            {"NCCL_IB_HCA": "=mlx5_0,mlx5_1"},
            id="the-adapters-of-the-shared-network",
        ),
        pytest.param(
            "nvidia", Wires(cards("nvidia", 0, 1, way="NV12"), IB, APART), {"NCCL_IB_DISABLE": "1"}, id="no-network"
        ),
        pytest.param("nvidia", Wires(cards("nvidia", 0, 1, way="NV12"), (), APART), {}, id="adapters-not-known"),
        pytest.param("amd", Wires(cards("amd", 0, 1, way="XGMI")), {}, id="xgmi"),
        pytest.param("amd", Wires(cards("amd", 0, 1, way="PCIE")), {"HSA_FORCE_FINE_GRAIN_PCIE": "1"}, id="amd-pcie"),
        pytest.param(
            "hygon", Wires(cards("hygon", 0, 1, way="XGMI"), IB, FAR), {"NCCL_IB_HCA": "=mlx5_0,mlx5_1"}, id="hygon"
        ),
        pytest.param("ascend", Wires(cards("ascend", 0, 1, way="HCCS"), IB, FAR), {}, id="hccl-is-left-alone"),
        pytest.param(
            "ascend",
            Wires(cards("ascend", 0, 1, 8, way="HCCS", way_0_8="PHB", way_1_8="PHB")),
            {"HCCL_INTRA_PCIE_ENABLE": "0", "HCCL_INTRA_ROCE_ENABLE": "1"},
            id="halves-that-do-not-match",
        ),
        pytest.param(
            "ascend",
            Wires(cards("ascend", 0, 8, way="PHB")),
            {},
            id="halves-that-match",
        ),
        pytest.param("cambricon", Wires(cards("cambricon", 0, 1, way="MLULINK")), {}, id="mlu-link"),
        pytest.param(
            "cambricon", Wires(cards("cambricon", 0, 1, way="PIX")), {"CNCL_MLULINK_DISABLE": "1"}, id="no-mlu-link"
        ),
        pytest.param("cambricon", Wires(cards("cambricon", 0, 1)), {}, id="mlu-links-not-known"),
        pytest.param(
            "cambricon",
            Wires(cards("cambricon", 0, 1, way="MLULINK"), IB, APART),
            {"CNCL_IB_DISABLE": "1"},
            id="cncl-no-network",
        ),
        pytest.param(
            "metax",
            Wires(cards("metax", 0, 1), IB, FAR),
            {"MCCL_CROSS_NIC": "1", "MCCL_IB_HCA": "mlx5_0,mlx5_1", "MCCL_NET_GDR_LEVEL": "SYS"},
            id="metax-across-nodes",
        ),
        pytest.param("metax", Wires(cards("metax", 0, 1)), {}, id="metax-on-one-node"),
        pytest.param("mthreads", Wires(cards("mthreads", 0, 1, way="NS"), IB, APART), {}, id="no-fact-no-flag"),
    ],
)
def test_flags_follow_from_the_place(vendor: str, wires: Wires, expected: dict[str, str]) -> None:
    assert collective_variables(vendor, wires) == expected


@pytest.mark.parametrize("vendor", names.VENDOR_WORDS)
def test_no_incompatible_pair_is_ever_written(vendor: str) -> None:
    """Both links at once are not supported, and newer releases refuse one variable without the other."""
    for picked in (*itertools.combinations(range(16), 2), *itertools.combinations(range(0, 16, 3), 3)):
        for way in ("HCCS", "PHB", "NS", ""):
            found = collective_variables(vendor, Wires(cards(vendor, *picked, way=way), IB, FAR))
            for pair in TOGETHER:
                assert not pair & found.keys() or pair <= found.keys()
            assert found.get("HCCL_INTRA_PCIE_ENABLE") != "1" or found.get("HCCL_INTRA_ROCE_ENABLE") != "1"


def test_what_somebody_stated_stays_and_pairs_stay_together() -> None:
    derived = {"HCCL_INTRA_PCIE_ENABLE": "0", "HCCL_INTRA_ROCE_ENABLE": "1", "NCCL_IB_DISABLE": "1"}
    assert undisputed(derived, {}) == derived
    assert undisputed(derived, {"NCCL_IB_DISABLE": "0"}).keys() == set(derived) - {"NCCL_IB_DISABLE"}
    assert undisputed(derived, ["HCCL_INTRA_ROCE_ENABLE"]) == {"NCCL_IB_DISABLE": "1"}
