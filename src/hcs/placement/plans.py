"""What placement answers: a plan that somebody else carries out, or why there is none.

Every sentence here may reach kube-scheduler, where a text that changes between calls makes it retry without a pause. So
they name what was asked and what the hardware is, never a free amount, a count of pods or a time.
"""

from collections import Counter

import msgspec

from hcs.model.allocations import VERSION, Allocation, Exchange, Grant, Peers
from hcs.model.refusals import Refusal


class Placement(msgspec.Struct, frozen=True):
    """Where a pod goes and what each of its containers gets there.

    ``exclusive``: all its cards are given whole. ``exchange`` is set where the cards stand in for others. ``reason`` is
    one sentence for the pod's ``route-reason``. ``score`` compares places of one call only. ``group``, ``reuses`` and
    ``peers`` are those of the allocation.
    """

    node: str
    vendor: str
    model: str
    containers: dict[str, tuple[Grant, ...]]
    exclusive: bool
    workload: str
    runtime: str = ""
    exchange: Exchange | None = None
    score: int = 0
    reason: str = ""
    reuses: dict[str, str] = {}
    peers: Peers | None = None
    capacities: dict[str, int] = {}
    group: str = ""

    @property
    def devices(self) -> frozenset[str]:
        """The ids of all devices in it."""
        return frozenset(grant.device for grants in self.containers.values() for grant in grants)

    def allocation(self, pod_uid: str) -> Allocation:
        """The record of this placement for a pod, as the Binding carries it."""
        return Allocation(
            version=VERSION,
            pod=pod_uid,
            node=self.node,
            vendor=self.vendor,
            model=self.model,
            containers=self.containers,
            exclusive=self.exclusive,
            workload=self.workload,
            runtime=self.runtime,
            exchange=self.exchange,
            reuses=self.reuses,
            peers=self.peers,
            capacities=self.capacities,
            group=self.group,
        )


class NodeRefusal(msgspec.Struct, frozen=True, order=True):
    """Why one node cannot serve. ``resolvable``: it could, once pods end or a card recovers; else never."""

    node: str
    refusal: Refusal
    resolvable: bool


class Unplaceable(msgspec.Struct, frozen=True):
    """No node can serve: one refusal per node asked for, sorted by node name, and all of them in one sentence."""

    refusals: tuple[NodeRefusal, ...]
    summary: str

    @property
    def resolvable(self) -> bool:
        """Whether waiting, or evicting somebody, can help on any node."""
        return any(refusal.resolvable for refusal in self.refusals)


class Explanation(msgspec.Struct, frozen=True):
    """The answer to "why": where the pod would go now, which nodes could serve it, and why each other could not.

    ``offer`` is what substitution would give to a pod that has no place and did not allow it.
    """

    placement: Placement | None
    serving: tuple[str, ...]
    refusals: tuple[NodeRefusal, ...]
    summary: str
    offer: Placement | None = None


def summarise(refusals: tuple[NodeRefusal, ...], serving: int = 0) -> str:
    """Group refusals by reason, with the commonest sentence of each; the same refusals give the same text."""
    total = len(refusals) + serving
    head = f"{serving} of {total} nodes can serve" if total else "there is no node to choose from"
    reasons = Counter(refusal.refusal.reason for refusal in refusals)
    parts = []
    for reason in sorted(reasons):
        sentences = Counter(r.refusal.message for r in refusals if r.refusal.reason == reason)
        sentence = min(sentences, key=lambda message: (-sentences[message], message))
        parts.append(f"{reasons[reason]} {reason} ({sentence})")
    return f"{head}: {', '.join(parts)}" if parts else head
