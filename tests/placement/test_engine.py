"""Where pods go: the stories of ``scenarios.yaml``, and what every answer promises."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from tests.placement.fleets import REFERENCE_RATES, node, placed, rates, share, whole

from hcs.model import names
from hcs.model.allocations import Allocation, Grant, decode_allocation, encode_allocation
from hcs.model.devices import NodeInventory, Quarantine
from hcs.model.pods import Container, ObjectMeta, Pod, PodSpec, Resources
from hcs.model.quantities import GIB
from hcs.model.refusals import Refusal
from hcs.model.requests import ComputeRequest, read_request
from hcs.placement.appraisals import VendorBound
from hcs.placement.engine import explain, offer, place
from hcs.placement.plans import Placement, Unplaceable
from hcs.placement.snapshot import Snapshot


class Running(msgspec.Struct, forbid_unknown_fields=True):
    """A pod in the way."""

    node: str
    cards: list[int]
    gi: int
    acu: int = 0
    exclusive: bool = False


class Scenario(msgspec.Struct, forbid_unknown_fields=True):
    """One story; the fields are explained in the file."""

    name: str
    nodes: dict[str, list[str]]
    containers: dict[str, dict[str, str | int]]
    quarantine: dict[str, dict[int | str, str]] = {}
    not_ready: list[str] = []
    running: list[Running] = []
    pod: dict[str, str] = {}
    nodes_left: list[str] | None = None
    place: dict[str, str | list[int]] | None = None
    refused: dict[str, str] | None = None
    hopeless: list[str] | None = None
    offer: str | None = None
    says: list[str] = []

    def inventories(self) -> dict[str, NodeInventory]:
        """The nodes."""
        found = {}
        for name, kinds in self.nodes.items():
            bare = node(name, *kinds, ready=name not in self.not_ready)
            ids: dict[int | str, str] = {device.index: device.id for device in bare.devices}
            entries = self.quarantine.get(name, {}).items()
            held = tuple(Quarantine(ids.get(index, "*"), reason) for index, reason in entries)
            found[name] = msgspec.structs.replace(bare, quarantine=held)
        return found

    def snapshot(self) -> Snapshot:
        """The fleet with what runs on it."""
        nodes = self.inventories()
        running = [
            Allocation(
                version="v1",
                pod=f"running-{number}",
                node=pod.node,
                vendor="",
                model="",
                containers={
                    "main": tuple(
                        Grant(nodes[pod.node].devices[index].id, pod.gi * GIB, pod.acu * 1000) for index in pod.cards
                    )
                },
                exclusive=pod.exclusive,
            )
            for number, pod in enumerate(self.running)
        ]
        return Snapshot.build(nodes.values(), running)

    def request(self) -> ComputeRequest:
        """What the pod asks for, read as everywhere else."""
        pod = Pod(
            metadata=ObjectMeta(annotations={f"{names.DOMAIN}/{key}": value for key, value in self.pod.items()}),
            spec=PodSpec(
                containers=[
                    Container(
                        name, resources=Resources(limits={f"{names.DOMAIN}/{key}": v for key, v in asked.items()})
                    )
                    for name, asked in self.containers.items()
                ]
            ),
        )
        request = read_request(pod)
        assert request is not None
        return request


def load() -> list[Any]:
    data = yaml.safe_load((Path(__file__).parent / "scenarios.yaml").read_text())
    scenarios = msgspec.convert(data, list[Scenario], strict=False)
    return [pytest.param(scenario, id=scenario.name.replace(" ", "-")) for scenario in scenarios]


@pytest.mark.parametrize("scenario", load())
def test_scenario(scenario: Scenario) -> None:
    snapshot, request = scenario.snapshot(), scenario.request()
    answer = place(snapshot, request, nodes=scenario.nodes_left, reference_rates=catalogue(scenario))
    if scenario.place is not None:
        assert isinstance(answer, Placement), answer
        index_of = {device.id: device.index for device in snapshot.fleet.devices}
        got = {name: [index_of[grant.device] for grant in grants] for name, grants in answer.containers.items()}
        assert {"node": answer.node, **got} == scenario.place
        text = answer.reason
    else:
        assert isinstance(answer, Unplaceable), answer
        assert {refusal.node: refusal.refusal.reason for refusal in answer.refusals} == scenario.refused
        if scenario.hopeless is not None:
            assert [refusal.node for refusal in answer.refusals if not refusal.resolvable] == scenario.hopeless
        text = answer.summary
    for words in scenario.says:
        assert words in text
    if scenario.offer is not None:
        offered = offer(snapshot, request, nodes=scenario.nodes_left, reference_rates=catalogue(scenario))
        assert isinstance(offered, Placement)
        assert offered.node == scenario.offer


def catalogue(scenario: Scenario) -> Any:
    """The catalogue here knows one model more than the fleets: the H100."""
    return REFERENCE_RATES if "H100" in scenario.pod.get("models", "") else None


def test_an_allocation_carries_all_of_the_plan() -> None:
    snapshot = Snapshot.build([node("a", "910b", "910b", "910b")])
    request = ComputeRequest(
        (whole(),), models=("H100-SXM5",), sharing="exclusive", substitution="auto", workload="finetune", runtime="py"
    )
    answer = place(snapshot, request, reference_rates={"H100-SXM5": rates(finetune=90)})
    assert isinstance(answer, Placement)
    allocation = answer.allocation("uid-1")
    assert decode_allocation(encode_allocation(allocation)) == allocation
    assert (allocation.pod, allocation.node, allocation.vendor, allocation.model) == ("uid-1", "a", "ascend", "910B2")
    assert allocation.exclusive
    assert (allocation.workload, allocation.runtime) == ("finetune", "py")
    assert allocation.containers == {"main": tuple(Grant(f"a/910b-{n}", 64 * GIB, 120_000) for n in range(3))}
    exchange = allocation.exchange
    assert exchange is not None
    assert (exchange.wanted, exchange.got, exchange.workload) == ("H100-SXM5", "910B2", "finetune")
    assert (exchange.wanted_milliacu, exchange.got_milliacu, exchange.source) == (90_000, 40_000, "benchmark")


def test_the_vendors_that_can_run_a_pod_bind_it_on_a_mixed_node() -> None:
    snapshot = Snapshot.build([node("a", "t4", "910b"), node("b", "t4")])
    bound = VendorBound(frozenset({"ascend"}), Refusal("RuntimeNotOffered", "no image for cards of this vendor"))
    request = ComputeRequest((share(8),))
    assert placed(snapshot, request).devices() == {"a/t4-0"}
    answer = place(snapshot, request, bound=bound)
    assert isinstance(answer, Placement)
    assert answer.devices == {"a/910b-1"}
    assert [refusal.refusal.reason for refusal in explain(snapshot, request, bound=bound).refusals] == [
        "RuntimeNotOffered"
    ]


def test_an_explanation_covers_every_node_and_shows_what_substitution_would_give() -> None:
    snapshot = Snapshot.build([node("a", "a100"), node("b", "910b"), node("c", "a100")])
    request = ComputeRequest((share(40),), models=("A100-SXM4-80GB",))
    free = explain(snapshot, request, nodes=["a", "b", "c", "d"])
    assert free.placement is not None
    assert free.placement.node == "a"
    assert free.serving == ("a", "c")
    assert [(r.node, r.refusal.reason) for r in free.refusals] == [("b", "ModelNotAllowed"), ("d", "NotManaged")]
    assert free.summary.startswith("2 of 4 nodes can serve: 1 ModelNotAllowed (")
    assert free.offer is None
    for uid in ("1", "2", "3", "4"):
        snapshot = snapshot.with_allocation(placed(snapshot, request, uid))
        if uid == "2":  # the second share fits the card of the first: together they are all its memory
            assert explain(snapshot, request).serving == ("c",)
    full = explain(snapshot, request)
    assert full.placement is None
    assert full.serving == ()
    assert full.offer is not None
    assert full.offer.model == "910B2"


def test_the_same_question_has_the_same_answer_whatever_the_order_of_nodes_and_cards() -> None:
    nodes = [node(name, "a100", "910b", "t4", "a100") for name in "dbca"]
    turned = [msgspec.structs.replace(n, devices=n.devices[::-1]) for n in reversed(nodes)]
    request = ComputeRequest((whole(2),), sharing="exclusive")
    assert place(Snapshot.build(nodes), request) == place(Snapshot.build(turned), request)


def test_an_unknown_policy_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(KeyError):
        place(Snapshot.build([]), ComputeRequest((share(1),)), policy="best-of-all")
