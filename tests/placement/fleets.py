"""Small fleets for the tests: a few kinds of cards with round figures, nodes made of words, and random ones."""

from typing import Final

import msgspec
from hypothesis import strategies as st

from hcs.model.allocations import Allocation
from hcs.model.devices import Device, NodeInventory, Quarantine, Rate, Source, Verdict
from hcs.model.preferences import NodePreference, Requirement
from hcs.model.quantities import GIB
from hcs.model.requests import ComputeRequest, ContainerRequest, Total
from hcs.placement.engine import place
from hcs.placement.plans import Placement
from hcs.placement.snapshot import Snapshot

Nodes = tuple[NodeInventory, ...]

VERDICTS: Final[tuple[Verdict, ...]] = ("Healthy", "Healthy", "Healthy", "SubHealthy", "Failed", "Unknown")


def rates(source: Source = "measured", **acu: int) -> tuple[Rate, ...]:
    """Rates in whole ACU by workload class."""
    return tuple(Rate(workload, amount * 1000, source) for workload, amount in acu.items())


CARDS: Final[dict[str, Device]] = {
    "a100": Device(
        id="",
        index=0,
        vendor="nvidia",
        model="A100-SXM4-80GB",
        vram=80 * GIB,
        rates=rates(gemm=100, finetune=100, decode=100),
        fp16_mtflops=312_000,
        verdict="Healthy",
    ),
    "t4": Device(
        id="",
        index=0,
        vendor="nvidia",
        model="T4",
        vram=16 * GIB,
        rates=rates("datasheet", gemm=20),
        fp16_mtflops=65_000,
        verdict="Healthy",
    ),
    "910b": Device(
        id="",
        index=0,
        vendor="ascend",
        model="910B2",
        vram=64 * GIB,
        rates=rates(gemm=120) + rates("benchmark", finetune=40) + rates("derived", decode=80),
        fp16_mtflops=376_000,
        verdict="Healthy",
    ),
    "mlu": Device(id="", index=0, vendor="cambricon", model="MLU370-X8", vram=48 * GIB, verdict="Healthy"),
}
"""T4 has no decode rate, 910B2 a derived one, MLU370-X8 none at all: it is only ever asked for memory and cards."""


def card(kind: str, index: int, node: str = "", **changes: object) -> Device:
    """A device of one of :data:`CARDS`; its id says node, kind and index."""
    return msgspec.structs.replace(CARDS[kind], id=f"{node}/{kind}-{index}", index=index, **changes)


def node(name: str, *kinds: str, quarantine: tuple[Quarantine, ...] = (), ready: bool = True) -> NodeInventory:
    """A node with a card of each kind named; a kind may carry a state: ``a100:Failed``, ``t4:foreign``."""
    devices = []
    for index, words in enumerate(kinds):
        kind, _, state = words.partition(":")
        changes: dict[str, object] = {}
        if state == "foreign":
            changes["foreign"] = True
        elif state:
            changes["verdict"] = state
        devices.append(card(kind, index, name, **changes))
    return NodeInventory(name=name, devices=tuple(devices), quarantine=quarantine, ready=ready)


def share(vram: int, acu: int = 0, name: str = "main") -> ContainerRequest:
    """A share of one card: memory in Gi, compute in ACU."""
    return ContainerRequest(name, vram=vram * GIB, milliacu=acu * 1000)


def whole(cards: int = 1, vram: int = 0, name: str = "main") -> ContainerRequest:
    """Whole cards with at least ``vram`` Gi each; give the request ``sharing="exclusive"``."""
    return ContainerRequest(name, cards=cards, vram=vram * GIB)


def placed(snapshot: Snapshot, request: ComputeRequest, uid: str = "pod", **arguments: str) -> Allocation:
    """The allocation of a request that must have a place."""
    answer = place(snapshot, request, **arguments)  # type: ignore[arg-type]
    assert isinstance(answer, Placement), answer
    return answer.allocation(uid)


TIER_B: Final = NodePreference(10, (Requirement("tier", "In", ("b",)),))


@st.composite
def inventories(draw: st.DrawFn) -> Nodes:
    """Up to five nodes of up to six cards each, with everything that can be wrong with them."""
    nodes = []
    for number in range(draw(st.integers(1, 5))):
        name = f"node-{number}"
        devices = [
            card(
                draw(st.sampled_from(sorted(CARDS))),
                index,
                name,
                verdict=draw(st.sampled_from(VERDICTS)),
                foreign=draw(st.integers(0, 9)) == 0,
            )
            for index in range(draw(st.integers(0, 6)))
        ]
        held = draw(st.sampled_from([device.id for device in devices] or ["*"]))
        quarantine = (Quarantine(held, "Drill"),) if draw(st.integers(0, 3)) == 0 else ()
        ready, tier, cost = draw(st.integers(0, 7)) > 0, draw(st.sampled_from(("", "", "a", "b"))), None
        if draw(st.integers(0, 2)) == 0:
            cost = draw(st.sampled_from((0, 1, 2_500_000)))
        labels = (("tier", tier),) if tier else ()
        nodes.append(NodeInventory(name, tuple(devices), quarantine, ready=ready, labels=labels, cost=cost))
    return tuple(nodes)


@st.composite
def requests(draw: st.DrawFn) -> ComputeRequest:
    """Requests as :func:`hcs.model.requests.read_request` makes them, up to three containers."""
    exclusive = draw(st.booleans())
    containers = []
    for number in range(draw(st.sampled_from((1, 1, 1, 2, 3)))):
        name = f"c{number}"
        vram = draw(st.sampled_from((0, 4, 10, 16, 40, 64, 90) if exclusive else (4, 10, 16, 40, 64, 90))) * GIB
        if draw(st.integers(0, 4)) == 0:
            resource, amount = draw(
                st.sampled_from(
                    [("ai.compute/fp16-tflops", n) for n in (60, 300, 700)]
                    + [("ai.compute/total-acu", n) for n in (10, 90, 250)]
                )
            )
            containers.append(ContainerRequest(name, vram=vram, total=Total(resource, amount)))
        elif exclusive:
            containers.append(ContainerRequest(name, cards=draw(st.integers(1, 4)), vram=vram))
        else:
            containers.append(ContainerRequest(name, vram=vram, milliacu=draw(st.sampled_from((0, 5, 15, 60))) * 1000))
    named = draw(
        st.sampled_from(((), ("nvidia",), ("ascend", "cambricon"), "A100-SXM4-80GB", "T4", "910B2", "H100-SXM5"))
    )
    return ComputeRequest(
        containers=tuple(containers),
        vendors=named if isinstance(named, tuple) else (),
        models=(named,) if isinstance(named, str) else (),
        workload=draw(st.sampled_from(("gemm", "finetune", "decode"))),
        sharing="exclusive" if exclusive else "shared",
        group="" if exclusive else draw(st.sampled_from(("", "", "", "team/one", "team/two"))),
        substitution=draw(st.sampled_from(("never", "ask", "auto"))),
        preferences=draw(st.sampled_from(((), (), (TIER_B,)))),
    )


class Story(msgspec.Struct, frozen=True):
    """A fleet and the pods that come one after another; after those marked True, the oldest that runs ends."""

    nodes: Nodes
    pods: list[tuple[ComputeRequest, bool]]


@st.composite
def crowds(draw: st.DrawFn) -> Story:
    """A few healthy cards and so many small pods that they run into each other."""
    kinds = draw(st.lists(st.sampled_from(("t4", "t4", "910b", "a100")), min_size=1, max_size=4))
    nodes = tuple(node(f"node-{number}", *kinds) for number in range(draw(st.integers(1, 2))))
    shares = st.builds(share, st.sampled_from((4, 4, 10, 16)), st.sampled_from((0, 12, 15)))
    single = shares.map(lambda container: ComputeRequest((container,)))
    double = st.tuples(shares, shares).map(
        lambda pair: ComputeRequest((pair[0], msgspec.structs.replace(pair[1], name="second")))
    )
    owner = st.integers(1, 2).map(lambda cards: ComputeRequest((whole(cards),), sharing="exclusive"))
    picky = st.sampled_from(("T4", "910B2", "A100-SXM4-80GB")).map(
        lambda model: ComputeRequest((whole(),), models=(model,), sharing="exclusive", substitution="auto")
    )
    pod = st.one_of(single, single, double, owner, picky)
    return Story(nodes, draw(st.lists(st.tuples(pod, st.sampled_from((False, False, True))), min_size=6, max_size=20)))


def stories() -> st.SearchStrategy[Story]:
    """Crowds on a few good cards, and anything at all on anything."""
    anything = st.builds(Story, inventories(), st.lists(st.tuples(requests(), st.booleans()), max_size=12))
    return st.one_of(crowds(), anything)


REFERENCE_RATES: Final = {"H100-SXM5": rates(gemm=240, finetune=220, decode=180)}
