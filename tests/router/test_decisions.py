"""One pod, the nodes that are left, and everything promised: one node, or a no in words that do not change."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.router.scene import GIB, card, pod_manifest

from hcs.model import names
from hcs.model.devices import EvictedOwner, NodeInventory, Quarantine
from hcs.model.pods import Pod
from hcs.placement.snapshot import Snapshot
from hcs.router.decisions import Chosen, NotOurs, Refused, decide
from hcs.router.images import RuntimeImage

NODES = (
    NodeInventory("a100", (card(0), card(1))),
    NodeInventory("ascend", (card(0, "ascend"),)),
    NodeInventory("sick", (card(0),), (Quarantine("*", "Xid79"),)),
)
ALL = [node.name for node in NODES]
SNAPSHOT = Snapshot.build(NODES)


def pod(name: str = "p", **changes: Any) -> Pod:
    return msgspec.convert({**pod_manifest(name, uid=f"uid-{name}", **changes)}, Pod)


def test_a_pod_that_asks_for_nothing_is_not_ours() -> None:
    assert isinstance(decide(pod(resources={"cpu": "1"}), ALL, SNAPSHOT), NotOurs)


def test_the_choice_names_the_pods_uid_and_one_node() -> None:
    found = decide(pod(annotations={names.VENDORS: "ascend"}), ALL, SNAPSHOT)
    assert isinstance(found, Chosen)
    assert (found.node, found.allocation.pod, found.substituted) == ("ascend", "uid-p", False)


def test_a_substitution_says_so() -> None:
    wish = pod(
        resources={names.VRAM: "60Gi"},
        annotations={names.MODELS: "A100-SXM4-80GB", names.SUBSTITUTION: "auto", names.SHARING: "exclusive"},
    )
    found = decide(wish, ["ascend"], SNAPSHOT)
    assert isinstance(found, Chosen)
    assert found.substituted
    assert "A100" in found.reason


def test_what_is_promised_to_others_is_taken() -> None:
    first = decide(pod("first", resources={names.VRAM: "80Gi"}), ["a100"], SNAPSHOT)
    assert isinstance(first, Chosen)
    second = decide(pod("second", resources={names.VRAM: "80Gi"}), ["a100"], SNAPSHOT, taken=[first.allocation])
    assert isinstance(second, Chosen)
    assert first.allocation.devices() & second.allocation.devices() == set()
    third = decide(
        pod("third", resources={names.VRAM: "80Gi"}), ["a100"], SNAPSHOT, taken=[first.allocation, second.allocation]
    )
    assert isinstance(third, Refused)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"resources": {names.CARDS: "0"}}, "ZeroCards", id="nonsense"),
        pytest.param({"scheduler": "default-scheduler"}, "WrongScheduler", id="whose-allocation-would-not-count"),
        pytest.param({"annotations": {names.RUNTIME: "jax"}}, "RuntimeNotOffered", id="no-image"),
    ],
)
def test_every_node_is_told_why(changes: dict[str, Any], reason: str) -> None:
    found = decide(pod(**changes), [*ALL, "unmanaged"], SNAPSHOT)
    assert isinstance(found, Refused)
    assert set(found.nodes) == {*ALL, "unmanaged"}
    assert found.nodes["a100"].reason == reason
    assert found.summary


def test_a_runtime_and_a_checkpoint_bind_to_vendors() -> None:
    offers = [RuntimeImage("nvidia", "pytorch-2.6", "x"), RuntimeImage("ascend", "pytorch-2.6", "y")]
    note = EvictedOwner("job", "default", "lost", "ascend", "file:///ckpt/1")
    wish = pod(annotations={names.RUNTIME: "pytorch-2.6"})
    found = decide(wish, ALL, SNAPSHOT, offers=offers, note=note)
    assert isinstance(found, Chosen)
    assert found.node == "ascend"
    refused = decide(wish, ["a100"], SNAPSHOT, offers=offers, note=note)
    assert isinstance(refused, Refused)
    assert refused.nodes["a100"].reason == "CheckpointNotPortable"
    portable = pod(annotations={names.RUNTIME: "pytorch-2.6", names.PORTABLE: "true"})
    assert isinstance(decide(portable, ["a100"], SNAPSHOT, offers=offers, note=note), Chosen)
    nothing_to_resume = msgspec.structs.replace(note, resume_from="")
    assert isinstance(decide(wish, ["a100"], SNAPSHOT, offers=offers, note=nothing_to_resume), Chosen)


@given(st.lists(st.integers(1, 80), max_size=8))
def test_words_do_not_depend_on_what_is_free(sizes: list[int]) -> None:
    """Whoever else has come before: the refusals of a pod that cannot be placed even alone are the same."""
    snapshot = SNAPSHOT
    for number, size in enumerate(sizes):
        found = decide(pod(f"other-{number}", resources={names.VRAM: f"{size}Gi"}), ALL, snapshot)
        if isinstance(found, Chosen):
            snapshot = snapshot.with_allocation(found.allocation)
    wish = pod(resources={names.VRAM: str(81 * GIB)})
    assert decide(wish, ALL, snapshot) == decide(wish, ALL, SNAPSHOT)


def test_an_accepted_offer_opens_its_model_and_its_count_only() -> None:
    """Three Ascend cards were accepted; other vendors, and more cards than that, stay closed."""
    from hcs.model.offers import Offer, encode_offer

    nodes = (
        NodeInventory("ascend", tuple(card(index, "ascend") for index in range(4))),
        NodeInventory("mlu", (card(0, "cambricon", vram=80 * GIB, rates=card(0).rates),)),
    )
    offer = Offer(
        version="v1", id="0123456789ab-1", pod="uid-p", vendor="ascend", model="910B3", cards=1,
        wanted="A100-SXM4-80GB", wanted_cards=1, workload="gemm", wanted_milliacu=100_000, got_milliacu=100_320,
        source="measured", vram=64 * GIB, expires="2026-01-01T00:00:00Z", accepted=True,
    )  # fmt: skip
    reference = {"A100-SXM4-80GB": card(0).rates}

    def asked(**changes: Any) -> Any:
        text = encode_offer(msgspec.structs.replace(offer, **changes))
        wish = pod(
            resources={names.VRAM: "40Gi"},
            annotations={
                names.MODELS: "A100-SXM4-80GB",
                names.SUBSTITUTION: "ask",
                names.SHARING: "exclusive",
                names.SUBSTITUTION_OFFER: text,
            },
        )
        return decide(wish, [n.name for n in nodes], Snapshot.build(nodes), reference_rates=reference)

    taken = asked()
    assert isinstance(taken, Chosen)
    assert (taken.node, taken.substituted) == ("ascend", True)
    assert isinstance(asked(accepted=False), Refused)
    assert isinstance(asked(pod="uid-of-another"), Refused)
    assert isinstance(asked(model="910A"), Refused)
    assert isinstance(asked(cards=0), Refused)


def test_a_preferred_node_is_taken_and_pods_with_other_wishes_are_read_anew() -> None:
    """Copies in everything but what they prefer; the cheaper node where nobody prefers."""
    twins = [
        NodeInventory(name, (card(0),), labels=(("tier", name),), cost=cost) for name, cost in (("a", 20), ("b", 10))
    ]
    snapshot = Snapshot.build(twins)

    def goes_to(*tiers: str) -> str:
        wished = [
            {
                "weight": 100,
                "preference": {"matchExpressions": [{"key": "tier", "operator": "In", "values": [one]}]},
            }
            for one in tiers
        ]
        about_nodes = {"preferredDuringSchedulingIgnoredDuringExecution": wished}
        found = decide(pod(spec={"affinity": {"nodeAffinity": about_nodes}} if wished else None), ["a", "b"], snapshot)
        assert isinstance(found, Chosen)
        return found.node

    assert (goes_to(), goes_to("a"), goes_to("b"), goes_to("a", "b")) == ("b", "a", "b", "b")
