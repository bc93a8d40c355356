"""The last word on the node: may this container start on these devices?

The router decides from what it has seen; the agent checks that decision against what runs here, so that no mistake
above (a race, a stale view, a forged annotation) ends in two containers on one memory. ``admit`` is pure: the ledger
comes in and a refusal, or nothing, comes out.

A pod is admitted whole, with all its containers, the first time one of them starts; after that its containers may start
again as often as they like, also on a device that has been quarantined since: the healer decides who leaves.
"""

from collections.abc import Iterable, Mapping

import msgspec

from hcs.model import names
from hcs.model.allocations import Allocation, allocation_of
from hcs.model.devices import NodeInventory
from hcs.model.pods import Container, Pod
from hcs.model.quantities import show_bytes
from hcs.model.refusals import Refusal


class Ledger(msgspec.Struct, frozen=True):
    """The allocations of the pods admitted on this node, by pod UID."""

    held: Mapping[str, Allocation] = {}

    def with_pod(self, allocation: Allocation) -> "Ledger":
        """This ledger and one pod more."""
        return Ledger({**self.held, allocation.pod: allocation})

    def without_pod(self, uid: str) -> "Ledger":
        """This ledger without a pod."""
        return Ledger({key: allocation for key, allocation in self.held.items() if key != uid})

    def used(self, device: str) -> int:
        """Bytes of a device that are granted."""
        return sum(amount for _, amount, _ in self._grants(device))

    def _grants(self, device: str) -> list[tuple[str, int, bool]]:
        return [
            (uid, grant.bytes, allocation.exclusive)
            for uid, allocation in self.held.items()
            for grants in allocation.containers.values()
            for grant in grants
            if grant.device == device
        ]

    def holders(self, device: str) -> frozenset[str]:
        """The UIDs of the pods that hold some of a device."""
        return frozenset(uid for uid, _, _ in self._grants(device))

    def taken_whole(self, device: str) -> bool:
        """Whether a pod holds the device for itself."""
        return any(exclusive for _, _, exclusive in self._grants(device))


def allocated(pod: Pod, node: str) -> Allocation | Refusal | None:
    """The allocation by which a pod runs on this node, a refusal where it has none that counts, None if not ours.

    A pod that neither asks for compute nor carries an allocation is none of ours.
    """
    text = pod.annotations.get(names.ALLOCATION)
    asks = [container.name for container in pod.spec.containers if _asks(container)]
    if text is None and not asks:
        return None
    if text is None:
        return Refusal(
            "NotRouted",
            f"container {asks[0]} asks for compute, but the pod was not placed by {names.SCHEDULER}; "
            "set spec.schedulerName and leave spec.nodeName empty",
        )
    allocation = allocation_of(pod)
    if allocation is None:
        return Refusal("ForeignAllocation", f"annotation {names.ALLOCATION} was not written by the router for this pod")
    if allocation.node != node:
        return Refusal("WrongNode", f"the allocation is for node {allocation.node}, this is {node}")
    for name in (*asks, *(container.name for container in pod.spec.initContainers or () if _asks(container))):
        if not allocation.grants(name):
            return Refusal(
                "NotInAllocation", f"container {name} asks for compute, but the allocation has no cards for it"
            )
    unknown = sorted(allocation.containers.keys() - {container.name for container in pod.spec.containers})
    if unknown:
        return Refusal("UnknownContainer", f"the allocation names container {unknown[0]}, which the pod does not have")
    return allocation


def admit(ledger: Ledger, allocation: Allocation, node: NodeInventory) -> Refusal | None:
    """Decide whether a pod may start with what it was allocated.

    Args:
        ledger: the pods admitted before.
        allocation: from :func:`allocated`.
        node: the devices that are really here, their verdicts, and what is quarantined.
    """
    if ledger.held.get(allocation.pod) == allocation:
        return None
    if allocation.pod in ledger.held:
        return Refusal(
            "AllocationChanged", "the pod started here with another allocation; it cannot change while it runs"
        )
    for device_id in sorted(allocation.devices()):
        refusal = _admit_device(ledger, allocation, node, device_id)
        if refusal is not None:
            return refusal
    return None


def _admit_device(ledger: Ledger, allocation: Allocation, node: NodeInventory, device_id: str) -> Refusal | None:
    device = next((device for device in node.devices if device.id == device_id), None)
    if device is None:
        return Refusal("UnknownDevice", f"node {node.name} has no device {device_id}")
    what = f"{device.model} {device.index} of node {node.name}"
    if (device.vendor, device.model) != (allocation.vendor, allocation.model):
        return Refusal(
            "OtherDevice",
            f"the allocation is for {allocation.vendor} {allocation.model}, but {device_id} is {what}",
        )
    if device.verdict == "Failed":
        return Refusal("FailedDevice", f"{what} has failed: {device.verdict_message or device.verdict_reason}")
    quarantine = node.quarantined(device_id)
    if quarantine is not None:
        return Refusal("QuarantinedDevice", f"{what} takes no new work: {quarantine.message or quarantine.reason}")
    if device.foreign:
        return Refusal("ForeignDevice", f"{what} is held by somebody outside HCS")
    wanted = [grant for grants in allocation.containers.values() for grant in grants if grant.device == device_id]
    if ledger.taken_whole(device_id) or (allocation.exclusive and (ledger.holders(device_id) or len(wanted) > 1)):
        return Refusal("DeviceTaken", f"{what} is held by another container, and one of them wants it whole")
    asked = sum(grant.bytes for grant in wanted)
    if ledger.used(device_id) + asked > device.vram:
        return Refusal(
            "OverCommitted",
            f"{show_bytes(asked)} more would over-commit {what}, which has {show_bytes(device.vram)}",
        )
    return None


def restored(allocations: Iterable[Allocation]) -> Ledger:
    """The ledger of an agent that starts again: the pods it had admitted and that still exist."""
    return Ledger({allocation.pod: allocation for allocation in allocations})


def _asks(container: Container) -> bool:
    amounts = {**(container.resources.requests or {}), **(container.resources.limits or {})}
    return any(key.startswith(f"{names.DOMAIN}/") and key != names.RTOS_GUESTS for key in amounts)
