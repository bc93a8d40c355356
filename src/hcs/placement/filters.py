"""The reasons a device is no choice, each a small class with one promise, listed once in the order they are asked.

A filter keeps or drops devices; a node is refused by the first filter after which too few of its devices are left, and
that filter says why. The order decides what people read: what the hardware can never do comes first, then what its
state forbids for now, then what others hold.

Filters are pure functions of a snapshot and an appraisal. Their sentences follow from the hardware, its state and the
request, never from what is free, so that a pod waiting on a full fleet reads the same words at every attempt.
"""

from collections.abc import Callable
from typing import Final, Literal, Protocol

import numpy as np

from hcs.model.devices import Device
from hcs.model.quantities import show_acu, show_bytes
from hcs.model.refusals import Refusal
from hcs.model.requests import ContainerRequest
from hcs.placement.appraisals import Appraisal
from hcs.placement.fleet import Mask
from hcs.placement.nearness import NEARNESS, keeping_rules
from hcs.placement.snapshot import Snapshot, key_of
from hcs.placement.supply import cards_needed, nodes_of
from hcs.ura.demand import Demand, label

Stage = Literal["hardware", "state", "occupancy"]
"""Why it is so, hence what would change it: other hardware; a recovery; other pods ending."""


class Filter(Protocol):
    """Drops devices for one reason. Pure: no I/O, no clock."""

    @property
    def stage(self) -> Stage:
        """Which refusals come first, and whether they are ever resolved."""

    def keep(self, snapshot: Snapshot, appraisal: Appraisal) -> Mask:
        """[D] The devices that this filter has nothing against."""

    def refuse(self, snapshot: Snapshot, appraisal: Appraisal, node: int, left: Mask) -> Refusal:
        """Say why the node is refused; ``left`` [D] are the devices that came through the filters before."""


class HasCards:
    """The node has a card at all."""

    stage: Final = "hardware"

    def keep(self, snapshot: Snapshot, appraisal: Appraisal) -> Mask:
        return np.ones(len(snapshot.fleet.devices), dtype=np.bool_)

    def refuse(self, snapshot: Snapshot, appraisal: Appraisal, node: int, left: Mask) -> Refusal:
        return Refusal("NoCards", "this node has no card")


class VendorAble:
    """The card's vendor is one that can run the pod: there is an image for it, and it can read the checkpoint."""

    stage: Final = "hardware"

    def keep(self, snapshot: Snapshot, appraisal: Appraisal) -> Mask:
        return _by_kind(snapshot, appraisal.vendor_able)

    def refuse(self, snapshot: Snapshot, appraisal: Appraisal, node: int, left: Mask) -> Refusal:
        assert appraisal.bound is not None  # else nothing is dropped
        return appraisal.bound.refusal


class VendorAllowed:
    """The card's vendor is one the pod names, or substitution is automatic."""

    stage: Final = "hardware"

    def keep(self, snapshot: Snapshot, appraisal: Appraisal) -> Mask:
        return _by_kind(snapshot, appraisal.vendor_allowed)

    def refuse(self, snapshot: Snapshot, appraisal: Appraisal, node: int, left: Mask) -> Refusal:
        here = _kinds(snapshot, node, left)
        return Refusal(
            "VendorNotAllowed",
            f"asks for {_any_of(appraisal.request.vendors)}; the cards here are {_labels(snapshot, here)}"
            + _could_stand_in(snapshot, appraisal, here),
        )


class ModelAllowed:
    """The card's model is one the pod names, or substitution is automatic."""

    stage: Final = "hardware"

    def keep(self, snapshot: Snapshot, appraisal: Appraisal) -> Mask:
        return _by_kind(snapshot, appraisal.model_allowed)

    def refuse(self, snapshot: Snapshot, appraisal: Appraisal, node: int, left: Mask) -> Refusal:
        here = _kinds(snapshot, node, left)
        return Refusal(
            "ModelNotAllowed",
            f"asks for {_any_of(appraisal.request.models)}; the cards here are {_labels(snapshot, here)}"
            + _could_stand_in(snapshot, appraisal, here),
        )


class VramFits:
    """The card, empty, has the memory asked for on one card."""

    stage: Final = "hardware"

    def keep(self, snapshot: Snapshot, appraisal: Appraisal) -> Mask:
        return snapshot.fleet.vram >= appraisal.container.vram

    def refuse(self, snapshot: Snapshot, appraisal: Appraisal, node: int, left: Mask) -> Refusal:
        largest = max(snapshot.fleet.kinds[kind].vram for kind in _kinds(snapshot, node, left))
        return Refusal(
            "VramTooSmall",
            f"needs {show_bytes(appraisal.container.vram)} on one card; "
            f"the largest card here has {show_bytes(largest)}",
        )


class AcuFits:
    """The card, empty, does the compute asked for, by a rate that is known and fit for this use."""

    stage: Final = "hardware"

    def keep(self, snapshot: Snapshot, appraisal: Appraisal) -> Mask:
        return _by_kind(snapshot, appraisal.serves)

    def refuse(self, snapshot: Snapshot, appraisal: Appraisal, node: int, left: Mask) -> Refusal:
        kinds = _kinds(snapshot, node, left)
        nearest = max(kinds, key=lambda kind: (_speed(snapshot.fleet.kinds[kind], appraisal), -kind))
        found = appraisal.demands[nearest]
        assert isinstance(found, Refusal)  # all kinds left are allowed and do not serve
        return found


class EnoughCards:
    """The node has as many cards of one model as the container needs, whoever holds them."""

    stage: Final = "hardware"

    def keep(self, snapshot: Snapshot, appraisal: Appraisal) -> Mask:
        return np.ones(len(snapshot.fleet.devices), dtype=np.bool_)

    def refuse(self, snapshot: Snapshot, appraisal: Appraisal, node: int, left: Mask) -> Refusal:
        fleet = snapshot.fleet
        here = np.flatnonzero(left & (fleet.node == node))
        by_group = [here[fleet.group[here] == group] for group in np.unique(fleet.group[here])]
        options = [(int(appraisal.cards[fleet.kind[cards]].min()), cards) for cards in by_group]
        needed, cards = min(options, key=lambda option: option[0] - len(option[1]))
        return Refusal(
            "TooFewCards",
            f"needs {describe(appraisal.container)}, which is {needed} whole {label(fleet.devices[cards[0]])}; "
            f"this node has {len(cards)}",
        )


class NodeReady:
    """The node's agent is alive and the node takes pods."""

    stage: Final = "state"

    def keep(self, snapshot: Snapshot, appraisal: Appraisal) -> Mask:
        kept: Mask = snapshot.fleet.ready[snapshot.fleet.node]
        return kept

    def refuse(self, snapshot: Snapshot, appraisal: Appraisal, node: int, left: Mask) -> Refusal:
        return Refusal(
            "NodeNotReady", "the node or its HCS agent is not ready; see the node's conditions and its Lease"
        )


class RuntimeAble:
    """The node's container runtime can do what the pod needs: another command line, a share that is held to it."""

    stage: Final = "state"

    def keep(self, snapshot: Snapshot, appraisal: Appraisal) -> Mask:
        fleet = snapshot.fleet
        kept: Mask = fleet.fails_closed[fleet.node] | _by_kind(snapshot, appraisal.whole)
        if appraisal.request.entrypoints:
            kept &= fleet.replaces_args[fleet.node] | ~_by_kind(snapshot, self._with_entry_point(snapshot, appraisal))
        return kept

    def refuse(self, snapshot: Snapshot, appraisal: Appraisal, node: int, left: Mask) -> Refusal:
        fleet = snapshot.fleet
        runtime = fleet.nodes[node].abilities.runtime
        here = _kinds(snapshot, node, left)
        if not fleet.replaces_args[node] and self._with_entry_point(snapshot, appraisal)[here].any():
            return Refusal(
                "RuntimeTooOld",
                f"{runtime} cannot change a container's command line, which the pod's entry point for this vendor "
                "needs; containerd can from 2.2 on, CRI-O from 1.34 on",
            )
        return Refusal(
            "RuntimeFailsOpen",
            f"{runtime} may start a container without the agent's answer, so that nothing would hold a share to its "
            "memory; turn on its default validator, or run hcs guard beside it, or ask for whole cards",
        )

    def _with_entry_point(self, snapshot: Snapshot, appraisal: Appraisal) -> Mask:
        vendors = {vendor for vendor, _ in appraisal.request.entrypoints}
        return np.array([device.vendor in vendors for device in snapshot.fleet.kinds], dtype=np.bool_)


class NotForeign:
    """Nobody outside HCS holds the card."""

    stage: Final = "state"

    def keep(self, snapshot: Snapshot, appraisal: Appraisal) -> Mask:
        return ~snapshot.fleet.foreign

    def refuse(self, snapshot: Snapshot, appraisal: Appraisal, node: int, left: Mask) -> Refusal:
        return Refusal(
            "DeviceForeign",
            f"needs {describe(appraisal.container)}; too many cards here are held outside HCS, "
            "by a device plugin or a DRA driver: "
            + _each(snapshot, node, left & snapshot.fleet.foreign, lambda device: f"card {device.index}"),
        )


class NotQuarantined:
    """Neither the healer nor a person has quarantined the card."""

    stage: Final = "state"

    def keep(self, snapshot: Snapshot, appraisal: Appraisal) -> Mask:
        return ~snapshot.fleet.quarantined

    def refuse(self, snapshot: Snapshot, appraisal: Appraisal, node: int, left: Mask) -> Refusal:
        inventory = snapshot.fleet.nodes[node]

        def why(device: Device) -> str:
            entry = inventory.quarantined(device.id)
            return f"card {device.index} ({entry.reason if entry is not None else ''})"

        return Refusal(
            "DeviceQuarantined",
            f"needs {describe(appraisal.container)}; too many cards here are quarantined: "
            + _each(snapshot, node, left & snapshot.fleet.quarantined, why),
        )


class DeviceUsable:
    """The card is healthy, or sub-healthy where it works alone: one slow card would hold up all of a job's others."""

    stage: Final = "state"

    def keep(self, snapshot: Snapshot, appraisal: Appraisal) -> Mask:
        several = _by_kind(snapshot, appraisal.cards > 1)
        kept: Mask = snapshot.fleet.healthy_enough & ~(several & snapshot.fleet.degraded)
        return kept

    def refuse(self, snapshot: Snapshot, appraisal: Appraisal, node: int, left: Mask) -> Refusal:
        def why(device: Device) -> str:
            reason = f", {device.verdict_reason}" if device.verdict_reason else ""
            return f"card {device.index} ({device.verdict}{reason})"

        return Refusal(
            "DeviceUnhealthy",
            f"needs {describe(appraisal.container)}; too many cards here are not healthy: "
            + _each(snapshot, node, left & ~self.keep(snapshot, appraisal), why),
        )


class WholeCardsFree:
    """A card that is given whole has no tenant."""

    stage: Final = "occupancy"

    def keep(self, snapshot: Snapshot, appraisal: Appraisal) -> Mask:
        kept: Mask = (snapshot.tenants == 0) | ~_by_kind(snapshot, appraisal.whole)
        return kept

    def refuse(self, snapshot: Snapshot, appraisal: Appraisal, node: int, left: Mask) -> Refusal:
        return cards_taken(appraisal)


class ShareFits:
    """A card that is shared has the memory and the compute left, no owner, and no tenants of another sharing group."""

    stage: Final = "occupancy"

    def keep(self, snapshot: Snapshot, appraisal: Appraisal) -> Mask:
        kind = snapshot.fleet.kind
        fits = (
            (snapshot.free_bytes >= appraisal.bytes[kind])
            & (snapshot.free_milliacu >= appraisal.milliacu[kind])
            & (snapshot.whole == 0)
            & snapshot.open_to(key_of(appraisal.request.group))
        )
        kept: Mask = fits | _by_kind(snapshot, appraisal.whole)
        return kept

    def refuse(self, snapshot: Snapshot, appraisal: Appraisal, node: int, left: Mask) -> Refusal:
        return cards_taken(appraisal)


FILTERS: Final[tuple[Filter, ...]] = (
    HasCards(),
    VendorAllowed(),
    ModelAllowed(),
    VendorAble(),
    VramFits(),
    AcuFits(),
    EnoughCards(),
    NodeReady(),
    RuntimeAble(),
    NotForeign(),
    NotQuarantined(),
    DeviceUsable(),
    WholeCardsFree(),
    ShareFits(),
)
"""All filters, in the order they are asked. Stages never go back: hardware, then state, then occupancy."""


class FreeTogether:
    """Some choice of the cards that are free keeps the rules about links and NUMA nodes."""

    stage: Final = "occupancy"

    def keep(self, snapshot: Snapshot, appraisal: Appraisal) -> Mask:
        return keeping_rules(snapshot, appraisal, _kept_by(FILTERS, snapshot, appraisal))

    def refuse(self, snapshot: Snapshot, appraisal: Appraisal, node: int, left: Mask) -> Refusal:
        return cards_taken(appraisal)


_HARDWARE: Final = next(place for place, check in enumerate(FILTERS) if check.stage != "hardware")
_WITH_NEARNESS: Final[tuple[Filter, ...]] = (*FILTERS[:_HARDWARE], *NEARNESS, *FILTERS[_HARDWARE:], FreeTogether())


def filters_for(appraisal: Appraisal) -> tuple[Filter, ...]:
    """The filters that have a say about a request, in the order they are asked."""
    return _WITH_NEARNESS if appraisal.request.locality.binding else FILTERS


def eligible(snapshot: Snapshot, appraisal: Appraisal) -> Mask:
    """[D] The devices that no filter drops: each could be one of those the container gets."""
    return _kept_by(filters_for(appraisal), snapshot, appraisal)


def lasting(snapshot: Snapshot, appraisal: Appraisal) -> Mask:
    """[D] The devices that no filter drops for their hardware or their state, whoever holds them."""
    checks = tuple(check for check in filters_for(appraisal) if check.stage != "occupancy")
    return _kept_by(checks, snapshot, appraisal)


def _kept_by(checks: tuple[Filter, ...], snapshot: Snapshot, appraisal: Appraisal) -> Mask:
    keep = checks[0].keep(snapshot, appraisal)
    for check in checks[1:]:
        keep = keep & check.keep(snapshot, appraisal)
    return keep


def enough(snapshot: Snapshot, appraisal: Appraisal, check: Filter, keep: Mask) -> Mask:
    """[N] Whether what a filter left on each node is enough.

    Before :class:`EnoughCards` one device is: how many are needed is known only of kinds that serve.
    """
    fleet = snapshot.fleet
    if isinstance(check, HasCards | VendorAble | VendorAllowed | ModelAllowed | VramFits | AcuFits):
        return fleet.any_on_node(keep)
    return nodes_of(fleet, cards_needed(fleet, appraisal, keep) > 0)


def cards_taken(appraisal: Appraisal) -> Refusal:
    """The one refusal of a node that is merely full; which filter found it must not show, it changes too often."""
    return Refusal(
        "CardsTaken", f"needs {describe(appraisal.container)}; the cards here that could serve are taken by other pods"
    )


def describe(container: ContainerRequest) -> str:
    """What a container asks for, in the words it was asked in.

    >>> describe(ContainerRequest("main", cards=1, vram=16 << 30, milliacu=40000))
    '16Gi and 40 ACU on one card'
    """
    each = [show_bytes(container.vram)] if container.vram else []
    if container.milliacu:
        each.append(f"{show_acu(container.milliacu)} ACU")
    amounts = " and ".join(each)
    if container.total is not None:
        total = f"{container.total.amount} {container.total.resource.partition('/')[2]}"
        return f"{total} in total, with {amounts} on each card" if amounts else f"{total} in total"
    if container.cards > 1:
        return f"{container.cards} cards with {amounts} each" if amounts else f"{container.cards} cards"
    return f"{amounts} on one card" if amounts else "one card"


def _by_kind(snapshot: Snapshot, kinds: Mask) -> Mask:
    spread: Mask = kinds[snapshot.fleet.kind]
    return spread


def _kinds(snapshot: Snapshot, node: int, left: Mask) -> list[int]:
    """The kinds among the node's devices that are left, each once, in the order of the devices."""
    inside = snapshot.fleet.slice_of(node)
    return list(dict.fromkeys(int(kind) for kind in snapshot.fleet.kind[inside][left[inside]]))


def _labels(snapshot: Snapshot, kinds: list[int]) -> str:
    return ", ".join(dict.fromkeys(label(snapshot.fleet.kinds[kind]) for kind in kinds))


def _any_of(words: tuple[str, ...]) -> str:
    return " or ".join(words)


def _could_stand_in(snapshot: Snapshot, appraisal: Appraisal, kinds: list[int]) -> str:
    """The half-sentence that tells the owner of an ``ask`` pod about a substitute."""
    if appraisal.request.substitution != "ask":
        return ""
    able = [kind for kind in kinds if isinstance(appraisal.demands[kind], Demand)]
    return f"; an offer exists: {_labels(snapshot, able)} could stand in, if you accept it" if able else ""


def _speed(device: Device, appraisal: Appraisal) -> int:
    rate = device.rate(appraisal.request.workload)
    return 0 if rate is None else rate.milliacu


def _each(snapshot: Snapshot, node: int, dropped: Mask, name: Callable[[Device], str]) -> str:
    """Name the dropped devices of the node, by index; the first three where there are many."""
    inside = snapshot.fleet.slice_of(node)
    devices = sorted(
        (snapshot.fleet.devices[inside.start + int(offset)] for offset in np.flatnonzero(dropped[inside])),
        key=lambda device: (device.index, device.id),
    )
    shown = ", ".join(name(device) for device in devices[:3])
    return f"{shown} and {len(devices) - 3} more" if len(devices) > 3 else shown
