"""The agent's last word: no allocation passes that the node cannot bear."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.inject.node import GIB, UID, allocation, card

from hcs.inject.arbitration import Ledger, admit, allocated, restored
from hcs.model import names
from hcs.model.allocations import Allocation, Grant, encode_allocation
from hcs.model.devices import Device, NodeInventory, Quarantine
from hcs.model.pods import Container, ObjectMeta, Pod, PodSpec, Resources
from hcs.model.refusals import Refusal

GPU = card("nvidia", 0)


def share(pod: str, amount: int, *cards: Device, exclusive: bool = False) -> Allocation:
    return allocation(*(cards or (GPU,)), amount=amount, exclusive=exclusive, pod=pod)


def judge(
    ledger: Ledger, wanted: Allocation, *cards: Device, quarantine: tuple[Quarantine, ...] = ()
) -> Refusal | None:
    return admit(ledger, wanted, NodeInventory("node-1", cards or (GPU,), quarantine))


def reason(refusal: Refusal | None) -> str:
    return refusal.reason if refusal else ""


@pytest.mark.parametrize(
    ("before", "wanted", "expected"),
    [
        pytest.param([], share("a", 64 * GIB), "", id="the-whole-memory"),
        pytest.param([], share("a", 64 * GIB + 1), "OverCommitted", id="one-byte-more"),
        pytest.param([share("a", 40 * GIB)], share("b", 24 * GIB), "", id="two-that-fit-exactly"),
        pytest.param([share("a", 40 * GIB)], share("b", 24 * GIB + 1), "OverCommitted", id="two-that-do-not"),
        pytest.param([share("a", 1, exclusive=True)], share("b", 1), "DeviceTaken", id="share-of-a-whole-one"),
        pytest.param([share("a", 1)], share("b", 1, exclusive=True), "DeviceTaken", id="whole-of-a-shared-one"),
        pytest.param([share("a", 40 * GIB)], share("a", 40 * GIB), "", id="the-same-pod-again"),
        pytest.param([share("a", 40 * GIB)], share("a", 10 * GIB), "AllocationChanged", id="the-same-pod-changed"),
    ],
)
def test_the_books(before: list[Allocation], wanted: Allocation, expected: str) -> None:
    assert reason(judge(restored(before), wanted)) == expected


@pytest.mark.parametrize(
    ("device", "quarantine", "expected"),
    [
        pytest.param(GPU, (), "", id="well"),
        pytest.param(card("nvidia", 3), (), "UnknownDevice", id="not-here"),
        pytest.param(card("nvidia", 0, model="other"), (), "OtherDevice", id="another-model"),
        pytest.param(card("nvidia", 0, verdict="Failed", verdict_message="gone"), (), "FailedDevice", id="failed"),
        pytest.param(card("nvidia", 0, verdict="SubHealthy"), (), "", id="sub-healthy-is-the-routers-choice"),
        pytest.param(card("nvidia", 0, foreign=True), (), "ForeignDevice", id="held-by-others"),
        pytest.param(GPU, (Quarantine(GPU.id, "Sick"),), "QuarantinedDevice", id="quarantined"),
        pytest.param(GPU, (Quarantine("*", "Maintenance"),), "QuarantinedDevice", id="the-whole-node"),
        pytest.param(GPU, (Quarantine("other", "Sick"),), "", id="another-card-quarantined"),
    ],
)
def test_the_card(device: Device, quarantine: tuple[Quarantine, ...], expected: str) -> None:
    assert reason(judge(Ledger(), share("a", GIB), device, quarantine=quarantine)) == expected


def test_a_pod_that_runs_may_start_again_on_a_sick_card() -> None:
    """The healer decides who leaves; a crash of the program must not look like a refusal."""
    running = share("a", GIB)
    sick = card("nvidia", 0, verdict="Failed")
    assert judge(restored([running]), running, sick, quarantine=(Quarantine(GPU.id, "Sick"),)) is None


def test_two_containers_of_one_pod_share_a_card_but_never_a_whole_one() -> None:
    too_much = {name: (Grant(GPU.id, 40 * GIB, 0),) for name in "ab"}
    assert reason(judge(Ledger(), allocation(GPU, exclusive=False, containers=too_much))) == "OverCommitted"
    halves = {name: (Grant(GPU.id, 32 * GIB, 0),) for name in "ab"}
    assert judge(Ledger(), allocation(GPU, exclusive=False, containers=halves)) is None
    assert reason(judge(Ledger(), allocation(GPU, exclusive=True, containers=halves))) == "DeviceTaken"


def test_refusals_say_what_was_asked_and_what_the_card_is() -> None:
    refusal = judge(Ledger(), share("a", 65 * GIB))
    assert refusal is not None
    assert refusal.message == "65Gi more would over-commit nvidia card 0 of node node-1, which has 64Gi"


STEP = st.tuples(st.integers(0, 5), st.integers(0, 2), st.integers(1, 80), st.booleans(), st.booleans())


@given(st.lists(STEP, max_size=12))
def test_no_order_of_starts_and_ends_over_commits_a_card(steps: list[tuple[int, int, int, bool, bool]]) -> None:
    cards = tuple(card("nvidia", index) for index in range(3))
    ledger = Ledger()
    for pod, index, gib, exclusive, ends in steps:
        if ends:
            ledger = ledger.without_pod(str(pod))
            continue
        wanted = share(str(pod), gib * GIB, cards[index], exclusive=exclusive)
        if judge(ledger, wanted, *cards) is None:
            ledger = ledger.with_pod(wanted)
    for device in cards:
        assert ledger.used(device.id) <= device.vram
        assert not ledger.taken_whole(device.id) or len(ledger.holders(device.id)) == 1


class TestAllocated:
    """Only an allocation that the router wrote for this very pod, on this node, counts."""

    def pod(self, text: str | None, *, asks: bool = True, **changes: Any) -> Pod:
        facts = {"uid": UID, "node": "node-1", "scheduler": names.SCHEDULER, **changes}
        annotations = None if text is None else {names.ALLOCATION: text}
        limits: dict[str, str | int | float] = {names.VRAM: "16Gi"} if asks else {"cpu": "1"}
        return Pod(
            metadata=ObjectMeta(name="p", uid=facts["uid"], annotations=annotations),
            spec=PodSpec(
                containers=[
                    Container(name="main", resources=Resources(limits=limits)),
                    Container(name="sidecar", resources=Resources(limits={"cpu": "1"})),
                ],
                nodeName=facts["node"],
                schedulerName=facts["scheduler"],
            ),
        )

    def text(self, **changes: Any) -> str:
        return encode_allocation(msgspec.structs.replace(share(UID, GIB), **changes))

    def test_the_routers_own(self) -> None:
        assert allocated(self.pod(self.text()), "node-1") == share(UID, GIB)

    def test_none_of_ours(self) -> None:
        assert allocated(self.pod(None, asks=False), "node-1") is None

    def test_asking_without_an_allocation_is_refused(self) -> None:
        found = allocated(self.pod(None), "node-1")
        assert isinstance(found, Refusal)
        assert found.reason == "NotRouted"

    @pytest.mark.parametrize(
        ("changes", "expected"),
        [
            pytest.param({"uid": "another"}, "ForeignAllocation", id="copied-from-another-pod"),
            pytest.param({"scheduler": "default-scheduler"}, "ForeignAllocation", id="not-by-our-scheduler"),
            pytest.param({"node": "node-2"}, "ForeignAllocation", id="bound-elsewhere"),
        ],
    )
    def test_a_forged_one_is_refused(self, changes: dict[str, str], expected: str) -> None:
        found = allocated(self.pod(self.text(), **changes), "node-1")
        assert isinstance(found, Refusal)
        assert found.reason == expected

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            pytest.param("{}", "ForeignAllocation", id="unreadable"),
            pytest.param("x" * 9000, "ForeignAllocation", id="oversized"),
        ],
    )
    def test_an_unreadable_one_is_refused(self, text: str, expected: str) -> None:
        found = allocated(self.pod(text), "node-1")
        assert isinstance(found, Refusal)
        assert found.reason == expected

    def test_one_for_another_node_is_refused_here(self) -> None:
        found = allocated(self.pod(self.text(node="node-2"), node="node-2"), "node-1")
        assert isinstance(found, Refusal)
        assert found.reason == "WrongNode"

    @pytest.mark.parametrize(
        ("containers", "expected"),
        [
            pytest.param(["sidecar"], "NotInAllocation", id="the-one-that-asks-got-nothing"),
            pytest.param(["main", "ghost"], "UnknownContainer", id="one-that-is-not-there"),
        ],
    )
    def test_its_containers_are_the_pods(self, containers: list[str], expected: str) -> None:
        grants = {name: (Grant(GPU.id, 1, 0),) for name in containers}
        found = allocated(self.pod(self.text(containers=grants)), "node-1")
        assert isinstance(found, Refusal)
        assert found.reason == expected

    def test_an_init_container_that_asks_needs_cards_too(self) -> None:
        pod = self.pod(self.text())
        init = [Container(name="setup", resources=Resources(limits={names.VRAM: "1Gi"}))]
        pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, initContainers=init))
        found = allocated(pod, "node-1")
        assert isinstance(found, Refusal)
        assert found.reason == "NotInAllocation"
        annotations = {names.ALLOCATION: self.text(reuses={"setup": "main"})}
        reusing = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=annotations))
        assert isinstance(allocated(reusing, "node-1"), Allocation)


def test_a_guest_without_a_card_is_none_of_ours() -> None:
    container = Container("main", resources=Resources(limits={names.RTOS_GUESTS: "1"}))
    assert allocated(Pod(spec=PodSpec(containers=[container], nodeName="node-1")), "node-1") is None
