"""A memory that never changes an answer: whatever happens, the placer says what the snapshot it stands for says."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.placement.fleets import REFERENCE_RATES, Nodes, inventories, node, rates, requests, share, whole

from hcs.model.allocations import Allocation
from hcs.model.devices import NodeInventory
from hcs.model.quantities import GIB
from hcs.model.requests import ComputeRequest
from hcs.placement.engine import place
from hcs.placement.placer import Placer
from hcs.placement.plans import Placement, Unplaceable
from hcs.placement.snapshot import Snapshot

STEADY = ("hcs", "fgd", "gpuclustering")
"""Those that look at most: at the mix by use, at the mix by fragments, and at who is hosted where."""


def rebuilt(nodes: dict[str, NodeInventory], held: dict[str, Allocation]) -> Snapshot:
    return Snapshot.build(nodes.values(), held.values())


@pytest.mark.parametrize("policy", STEADY)
@given(nodes=inventories(), spare=inventories(), wishes=st.lists(requests(), min_size=1, max_size=4), data=st.data())
def test_memory_and_a_fresh_look_agree_after_any_events(
    policy: str, nodes: Nodes, spare: Nodes, wishes: list[ComputeRequest], data: st.DataObject
) -> None:
    """Pods come and go, nodes change, appear and vanish; each request is asked again and again in between."""
    there = {inventory.name: inventory for inventory in nodes}
    placer, held = Placer(nodes, policy=policy), dict[str, Allocation]()
    for number in range(data.draw(st.integers(1, 8), label="steps")):
        event = data.draw(st.sampled_from(("pod", "pod", "pod", "end", "node", "gone")), label="event")
        request = data.draw(st.sampled_from(wishes), label="request")
        if event == "pod":
            answer = placer.place(request, reference_rates=REFERENCE_RATES)
            assert answer == place(rebuilt(there, held), request, reference_rates=REFERENCE_RATES, policy=policy)
            if isinstance(answer, Placement):
                uid = f"pod-{number}"
                held[uid] = answer.allocation(uid)
                placer.promise(uid, held[uid])
        elif event == "end" and held:
            uid = data.draw(st.sampled_from(sorted(held)), label="who")
            del held[uid]
            placer.promise(uid, None)
        elif event == "node":
            changed = data.draw(st.sampled_from(spare), label="changed")
            there[changed.name] = changed
            placer.put_node(changed)
        elif event == "gone" and there:
            name = data.draw(st.sampled_from(sorted(there)), label="gone")
            del there[name]
            placer.drop_node(name)
        assert placer.snapshot.same_as(rebuilt(there, held))
        left = data.draw(st.sets(st.sampled_from([*there, "unknown"])), label="left")
        asked = tuple(sorted(left))
        again = placer.place(request, nodes=asked, reference_rates=REFERENCE_RATES)
        fresh = rebuilt(there, held)
        assert again == place(fresh, request, nodes=asked, reference_rates=REFERENCE_RATES, policy=policy)


def test_what_a_pod_is_bound_with_counts_before_what_it_was_promised() -> None:
    placer = Placer([node("a", "t4"), node("b", "t4")])
    request = ComputeRequest((share(10),))
    first = placer.place(request)
    assert isinstance(first, Placement)
    placer.promise("p", first.allocation("p"))
    elsewhere = msgspec.structs.replace(first, node="b").allocation("p")
    placer.bind("p", msgspec.structs.replace(elsewhere, containers=_renamed(elsewhere)))
    assert placer.snapshot.free_bytes.tolist() == [16 * GIB, 6 * GIB]
    placer.promise("p", None)
    assert placer.snapshot.free_bytes.tolist() == [16 * GIB, 6 * GIB]
    placer.bind("p", None)
    assert placer.snapshot.same_as(Snapshot.build([node("a", "t4"), node("b", "t4")]))


def test_a_card_that_fell_ill_changes_the_reason_that_was_remembered() -> None:
    """The cards stay the same, so the scores are kept; what is said about the node must not be."""
    placer = Placer([node("a", "t4", "t4")])
    greedy = ComputeRequest((whole(2),), sharing="exclusive")
    owner = placer.place(greedy)
    assert isinstance(owner, Placement)
    placer.promise("owner", owner.allocation("owner"))
    for cards, reason in (
        (("t4", "t4"), "CardsTaken"),
        (("t4", "t4:Failed"), "DeviceUnhealthy"),
        (("t4", "t4"), "CardsTaken"),
    ):
        placer.put_node(node("a", *cards))
        refused = placer.place(greedy)
        assert isinstance(refused, Unplaceable)
        assert [one.refusal.reason for one in refused.refusals] == [reason]


def _renamed(allocation: Allocation) -> dict[str, tuple[object, ...]]:
    return {
        name: tuple(msgspec.structs.replace(grant, device="b/t4-0") for grant in grants)
        for name, grants in allocation.containers.items()
    }


def test_a_supposition_leaves_no_trace() -> None:
    placer = Placer([node("a", "t4")])
    request = ComputeRequest((whole(),), sharing="exclusive")
    held = placer.place(request)
    assert isinstance(held, Placement)
    placer.promise("p", held.allocation("p"))
    before = placer.snapshot
    assert isinstance(placer.place(request), Unplaceable)
    with placer.supposing(without={"p"}):
        assert isinstance(placer.place(request), Placement)
        with placer.supposing(also=[held.allocation("q")]):
            assert isinstance(placer.place(request), Unplaceable)
    assert isinstance(placer.place(request), Unplaceable)
    assert placer.snapshot.same_as(before)


def test_a_change_of_health_is_seen_at_once() -> None:
    placer = Placer([node("a", "t4"), node("b", "t4")])
    request = ComputeRequest((share(4),))
    assert placer.place(request).node == "a"  # type: ignore[union-attr]
    placer.put_node(node("a", "t4:Failed"))
    assert placer.place(request).node == "b"  # type: ignore[union-attr]
    placer.put_node(node("b", "t4:Failed"))
    answer = placer.place(request)
    assert isinstance(answer, Unplaceable)
    assert [refusal.refusal.reason for refusal in answer.refusals] == ["DeviceUnhealthy", "DeviceUnhealthy"]
    placer.put_node(node("b", "t4"))
    assert placer.place(request).node == "b"  # type: ignore[union-attr]


@pytest.mark.parametrize("policy", ["hcs-learned", "fgd-learned"])
def test_what_is_learned_changes_choices_and_never_what_fits(policy: str) -> None:
    nodes = [node("a", "a100", "a100", "a100", "a100"), node("b", "a100")]
    placer = Placer(nodes, policy=policy)
    four = ComputeRequest((whole(4),), sharing="exclusive")
    for _ in range(30):
        assert isinstance(placer.place(four), Placement)
    single = placer.place(ComputeRequest((whole(),), sharing="exclusive"))
    assert isinstance(single, Placement)
    assert single.node == "b"  # it leaves alone the four that everybody asks for


def test_chance_gives_every_node_its_turn_and_the_same_one_for_the_same_seed() -> None:
    nodes = [node(name, "t4", "t4") for name in "abcd"]
    request = ComputeRequest((share(4),))
    runs = [[Placer(nodes, policy="random", seed=seed) for _ in range(2)] for seed in range(20)]
    answers = [[placer.place(request) for placer in same] for same in runs]
    assert all(one == other for one, other in answers)
    assert {one.node for one, _ in answers if isinstance(one, Placement)} == {"a", "b", "c", "d"}
    assert len({device for one, _ in answers if isinstance(one, Placement) for device in one.devices}) == 8


def test_rates_that_take_the_place_of_others_in_memory_are_not_taken_for_them() -> None:
    """A site's rates change: the old table is dropped, and the new one may well lie where that was."""
    nodes = [node("a", "a100")]
    placer, snapshot = Placer(nodes), Snapshot.build(nodes)
    asked = ComputeRequest(
        (whole(),), models=("H100-SXM5",), workload="finetune", substitution="auto", sharing="exclusive"
    )
    for milliacu in range(10, 100, 10):
        table = {"H100-SXM5": rates(finetune=milliacu)}
        assert placer.place(asked, reference_rates=table) == place(snapshot, asked, reference_rates=table)
        del table
