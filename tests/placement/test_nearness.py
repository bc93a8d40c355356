"""Rules about links, NUMA nodes, networks and data: kept, explained in words that stay, or only wished for."""

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.placement.fleets import node, placed, share, whole
from tests.placement.wired import halves, nic, wired

from hcs.model.devices import Latency, NodeInventory
from hcs.model.locality import DataSourceRule, FabricRule, LinkRule, Locality
from hcs.model.requests import ComputeRequest, ContainerRequest
from hcs.placement.engine import explain, place
from hcs.placement.nearness import relaxations
from hcs.placement.plans import Placement, Unplaceable
from hcs.placement.snapshot import Snapshot

NVLINK = Locality(links=LinkRule(("nvlink",)))


def owner(cards: int = 1, locality: Locality | None = None, **fields: object) -> ComputeRequest:
    rules = locality or Locality()
    return ComputeRequest((whole(cards),), sharing="exclusive", locality=rules, **fields)  # type: ignore[arg-type]


def where(snapshot: Snapshot, request: ComputeRequest) -> tuple[str, list[int]]:
    """The node and the numbers of the cards."""
    answer = place(snapshot, request)
    assert isinstance(answer, Placement), answer
    return answer.node, sorted(int(device.rpartition("-")[2]) for device in answer.devices)


def refused(snapshot: Snapshot, request: ComputeRequest) -> dict[str, tuple[str, str, bool]]:
    answer = place(snapshot, request)
    assert isinstance(answer, Unplaceable), answer
    assert explain(snapshot, request).serving == ()
    return {r.node: (r.refusal.reason, r.refusal.message, r.resolvable) for r in answer.refusals}


def near(name: str, microseconds: int | None) -> NodeInventory:
    measured = () if microseconds is None else (Latency("lake", microseconds),)
    return msgspec.structs.replace(node(name, "a100"), latencies=measured)


def test_several_cards_are_those_with_the_widest_ways() -> None:
    """Card 0 is taken: the pair is then 2 and 3, not 1 and 2 across the CPUs."""
    snapshot = Snapshot.build([halves("a")])
    snapshot = snapshot.with_allocation(placed(snapshot, owner(), "first"))
    assert where(snapshot, owner(2))[1] in ([2, 3], [0, 1])
    first = next(iter(placed(Snapshot.build([halves("a")]), owner(), "first").devices()))
    assert first == "a/a100-0"
    assert where(snapshot, owner(2)) == ("a", [2, 3])


def test_each_container_has_its_own_well_linked_set() -> None:
    both = ComputeRequest((whole(2, name="one"), whole(2, name="two")), sharing="exclusive")
    answer = place(Snapshot.build([halves("a")]), both)
    assert isinstance(answer, Placement)
    sets = {name: [grant.device[-1] for grant in grants] for name, grants in answer.containers.items()}
    assert sets == {"one": ["0", "1"], "two": ["2", "3"]}


def test_required_links_choose_the_node_and_say_why_not() -> None:
    plain = wired("b", ["a100"] * 4, dict.fromkeys(itertools.combinations(range(4), 2), "PHB"))
    snapshot = Snapshot.build([plain, halves("c")])
    assert where(snapshot, owner(2, NVLINK)) == ("c", [0, 1])
    refusals = refused(snapshot, owner(3, NVLINK))
    assert refusals["b"] == (
        "CardsApart",
        "needs 3 cards linked by nvlink, each pair; no 3 of the cards here are, their links are PHB",
        False,
    )
    assert refusals["c"][1].endswith("their links are NV12, SYS")


def test_links_that_exist_and_are_taken_are_worth_waiting_for() -> None:
    snapshot = Snapshot.build([halves("a")])
    for index, uid in ((1, "x"), (3, "y")):
        chosen = placed(snapshot, owner(), uid)
        grant = msgspec.structs.replace(chosen.containers["main"][0], device=f"a/a100-{index}")
        snapshot = snapshot.with_allocation(msgspec.structs.replace(chosen, containers={"main": (grant,)}))
    assert refused(snapshot, owner(2, NVLINK))["a"][0] == "CardsTaken"
    assert refused(snapshot, owner(2, NVLINK))["a"][2]
    assert where(snapshot, owner(2)) == ("a", [0, 2]), "without the rule any two will do"


def test_numa_nodes_are_kept_or_refused() -> None:
    snapshot = Snapshot.build([halves("a")])
    assert where(snapshot, owner(2, Locality(numa="required")))[1] in ([0, 1], [2, 3])
    assert refused(snapshot, owner(3, Locality(numa="required")))["a"][1].startswith(
        "needs 3 cards all on one NUMA node; no 3 of the cards here are"
    )
    assert where(snapshot, owner(3, Locality(numa="preferred")))[0] == "a"


def test_a_network_is_required_by_name_or_at_all() -> None:
    fleet = [node("a", "a100"), msgspec.structs.replace(node("b", "a100"), nics=(nic("mlx5_0", "ib-b"),))]
    snapshot = Snapshot.build(fleet)
    assert where(snapshot, owner(locality=Locality(fabric=FabricRule())))[0] == "b"
    assert where(snapshot, owner(locality=Locality(fabric=FabricRule(("ib-a", "ib-b")))))[0] == "b"
    told = refused(snapshot, owner(locality=Locality(fabric=FabricRule(("ib-a",)))))
    assert told["a"][:2] == ("FabricMissing", "needs an adapter in RDMA network ib-a; this node is in none")
    assert told["b"][1].endswith("this node is in ib-b")
    wished = Locality(fabric=FabricRule(("ib-a",), required=False))
    assert where(snapshot, owner(locality=wished))[0] in ("a", "b")


def test_shares_follow_rules_about_nodes_too() -> None:
    snapshot = Snapshot.build([node("a", "a100"), near("b", 900)])
    asked = ComputeRequest((share(10),), locality=Locality(data_source=DataSourceRule("lake", 1000)))
    assert where(snapshot, asked)[0] == "b"


def test_data_within_a_bound_or_as_near_as_can_be() -> None:
    snapshot = Snapshot.build([near("a", None), near("b", 5200), near("c", 400), near("d", 700)])
    within = owner(locality=Locality(data_source=DataSourceRule("lake", 300)))
    told = refused(snapshot, within)
    assert told["a"][:2] == ("LatencyUnknown", "needs data source lake within 300 us; nobody measured it here")
    assert told["b"][:2] == ("DataSourceFar", "needs data source lake within 300 us; it is 5.2 ms away")
    wish = owner(locality=Locality(data_source=DataSourceRule("lake")))
    order = []
    for number in range(4):
        found = placed(snapshot, wish, f"p{number}")
        snapshot = snapshot.with_allocation(found)
        order.append(found.node)
    assert order == ["c", "d", "b", "a"], "c and d are about as near, then b, and last where nobody measured"


def test_cards_that_are_named_come_before_wishes_about_places() -> None:
    fleet = [near("a", 5000), msgspec.structs.replace(node("b", "910b"), latencies=(Latency("lake", 10),))]
    wish = owner(locality=Locality(data_source=DataSourceRule("lake")), models=("A100-SXM4-80GB",), substitution="auto")
    assert where(Snapshot.build(fleet), wish)[0] == "a"


def test_wishes_are_given_up_one_by_one() -> None:
    fleet = Snapshot.build([near("a", 100), near("b", 900)]).fleet
    asked = owner(
        2,
        Locality("preferred", LinkRule(("nvlink",), required=False), None, DataSourceRule("lake")),
    )
    steps = relaxations(fleet, asked)
    assert steps[0].locality == Locality("required", LinkRule(("nvlink",)), None, DataSourceRule("lake", 200))
    assert steps[-1].locality == asked.locality
    assert len(set(steps)) == len(steps) == 3 * 2 * 2
    assert relaxations(fleet, owner()) == (owner(),)


@pytest.mark.parametrize("policy", ["hcs", "firstfit"])
@given(
    words=st.lists(st.sampled_from(("NV12", "PIX", "SYS", "")), min_size=10, max_size=10),
    numas=st.lists(st.sampled_from((0, 1, None)), min_size=5, max_size=5),
    taken=st.sets(st.integers(0, 4)),
    first=st.integers(1, 3),
    second=st.integers(0, 2),
    rules=st.sampled_from(
        (
            NVLINK,
            Locality(numa="required"),
            Locality("required", LinkRule(("p2p",))),
            Locality(links=LinkRule((), 23_500)),
        )
    ),
)
def test_rules_about_pairs_are_kept_exactly_where_they_can_be(
    policy: str,
    words: list[str],
    numas: list[int | None],
    taken: set[int],
    first: int,
    second: int,
    rules: Locality,
) -> None:
    """Against all ways to give two containers cards of one node."""
    pairs = list(itertools.combinations(range(5), 2))
    way = dict(zip(pairs, words, strict=True))
    plain = wired("a", ["a100"] * 5, {pair: word for pair, word in way.items() if word})
    devices = tuple(msgspec.structs.replace(d, numa=n) for d, n in zip(plain.devices, numas, strict=True))
    snapshot = Snapshot.build([msgspec.structs.replace(plain, devices=devices)])
    snapshot = snapshot.with_owned(snapshot.fleet.vram < 0)
    for card in sorted(taken):
        one = placed(Snapshot.build([plain]), owner(), f"old-{card}")
        grant = msgspec.structs.replace(one.containers["main"][0], device=devices[card].id)
        snapshot = snapshot.with_allocation(msgspec.structs.replace(one, containers={"main": (grant,)}))
    containers = [ContainerRequest("one", cards=first)] + ([ContainerRequest("two", cards=second)] if second else [])
    request = ComputeRequest(tuple(containers), sharing="exclusive", locality=rules)

    def together(cards: tuple[int, ...]) -> bool:
        for pair in itertools.combinations(sorted(cards), 2):
            if rules.numa == "required" and (numas[pair[0]] is None or numas[pair[0]] != numas[pair[1]]):
                return False
            if rules.links is not None:
                if "nvlink" in rules.links.kinds and way[pair] != "NV12":
                    return False
                if "p2p" in rules.links.kinds and way[pair] not in ("NV12", "PIX"):
                    return False
                if rules.links.mbps and way[pair] not in ("NV12", "PIX"):
                    return False
        return True

    free = [card for card in range(5) if card not in taken]
    ways = [
        (one, two)
        for one in itertools.combinations(free, first)
        for two in itertools.combinations([card for card in free if card not in one], second)
        if together(one) and together(two)
    ]
    answer = place(snapshot, request, policy=policy)
    assert isinstance(answer, Placement) == bool(ways)
    assert (explain(snapshot, request, policy=policy).serving == ("a",)) == bool(ways)
    if isinstance(answer, Placement):
        for grants in answer.containers.values():
            assert together(tuple(int(grant.device[-1]) for grant in grants))
