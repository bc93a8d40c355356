"""Which devices a pod got: the JSON in ``ai.compute/allocation``, frozen in ``docs/allocation.md``.

The router writes it in the Binding, so that binding and record are one atomic write. Everyone else only reads it: the
agent gives the container these devices, the healer finds whom a sick card hurts, a restarted router rebuilds its ledger
from it. The pod's UID is inside: nobody can know it before the pod exists, so an allocation copied from another pod, or
written at creation, is recognised as not ours and has no effect.
"""

from typing import Final

import msgspec

from hcs.model import names
from hcs.model.pods import Pod
from hcs.model.quantities import MAX_AMOUNT

VERSION: Final = "v1"
MAX_ENCODED: Final = 8192
"""Bytes. The API server does not validate a Binding's annotations, and an oversized one blocks every later update."""


MAX_SIDE: Final = 1024
"""Cores along one side of a board."""


class AllocationError(ValueError):
    """An allocation that cannot be used; the message says what is wrong with it."""


class Grant(msgspec.Struct, frozen=True, rename="camel"):
    """One device, or a share of it, for one container: ``bytes`` of its memory, ``milliacu`` of its compute."""

    device: str
    bytes: int
    milliacu: int


class Exchange(msgspec.Struct, frozen=True, rename="camel"):
    """The substitution that was made: ``wanted`` could not serve, so ``got`` does.

    The two rates are those of one whole device in ``workload``, in thousandths of an ACU; ``source`` is the weaker of
    the two rates' sources.
    """

    wanted: str
    got: str
    workload: str
    wanted_milliacu: int
    got_milliacu: int
    source: str


class Peers(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The gang that the pod was placed with: how many ``members`` on how many ``nodes``, ``here`` of them on this node,
    and the RDMA network that all their nodes share (empty: none, or not known)."""

    members: int
    nodes: int
    here: int = 1
    fabric: str = ""


class CoreGrant(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A rectangle of spiking cores for one container, ``width`` x ``height`` from the cell (``x``, ``y``) of a board.

    ``cores`` of it were asked for; ``resource`` is the capacity they are counted in.
    """

    resource: str
    board: str
    cores: int
    width: int
    height: int
    x: int = 0
    y: int = 0


class Allocation(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """All grants of one pod. One node, one vendor and one model; ``containers`` maps container name to its grants.

    ``capacities`` is what the pod takes of the node beside devices, by the names of ``NodeInventory.capacities``.
    """

    version: str
    pod: str
    node: str
    vendor: str
    model: str
    containers: dict[str, tuple[Grant, ...]]
    exclusive: bool = False
    workload: str = "gemm"
    runtime: str = ""
    exchange: Exchange | None = None
    capacities: dict[str, int] = {}
    reuses: dict[str, str] = {}
    """Init container → the main container whose grants it has before that one starts; they count once."""
    peers: Peers | None = None
    group: str = ""
    """The sharing group: on its cards are shares of this group alone."""
    cores: dict[str, tuple[CoreGrant, ...]] = {}
    """Container → the rectangles the router chose for it; what is missing the board's plugin chooses."""

    def grants(self, container: str) -> tuple[Grant, ...]:
        """What a container has, an init container by way of the main one; nothing for one without cards."""
        return self.containers.get(self.reuses.get(container, container), ())

    def devices(self) -> frozenset[str]:
        """The ids of all devices in it."""
        return frozenset(grant.device for grants in self.containers.values() for grant in grants)


_ENCODER = msgspec.json.Encoder(order="deterministic")
_DECODER = msgspec.json.Decoder(Allocation)


def encode_allocation(allocation: Allocation) -> str:
    """Write an allocation as the annotation's text.

    Raises:
        AllocationError: it is larger than :data:`MAX_ENCODED` bytes or breaks a rule of the format.
    """
    _check(allocation)
    encoded = _ENCODER.encode(allocation)
    if len(encoded) > MAX_ENCODED:
        raise AllocationError(f"allocation of {len(encoded)} bytes is over the limit of {MAX_ENCODED}")
    return encoded.decode()


def decode_allocation(text: str) -> Allocation:
    """Read the annotation's text.

    Raises:
        AllocationError: not JSON, another version, missing fields, amounts no card has, a device twice in a
            container.
    """
    try:
        encoded = text.encode()
        if len(encoded) > MAX_ENCODED:
            raise AllocationError(f"allocation of {len(encoded)} bytes is over the limit of {MAX_ENCODED}")
        allocation = _DECODER.decode(encoded)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:  # forged ones nest deeply to crash a reader
        raise AllocationError(f"cannot read the allocation: {error}") from error
    _check(allocation)
    return allocation


def allocation_of(pod: Pod) -> Allocation | None:
    """The allocation we bound this pod with, or None: the one test of "bound by us", used by every program.

    Ours are those whose pod names a scheduler that asks us, is bound, and whose allocation carries the pod's own UID
    and node. An annotation that fails any of this, or cannot be read, has no effect.
    """
    text = pod.annotations.get(names.ALLOCATION)
    if text is None or not pod.spec.nodeName or pod.spec.schedulerName not in names.SCHEDULERS:
        return None
    try:
        allocation = decode_allocation(text)
    except AllocationError:
        return None
    if allocation.pod != pod.metadata.uid or allocation.node != pod.spec.nodeName:
        return None
    return allocation


def _check(allocation: Allocation) -> None:
    if allocation.version != VERSION:
        raise AllocationError(f"allocation version {allocation.version!r}, this program reads {VERSION!r}")
    if not allocation.pod or not allocation.node or not (allocation.containers or allocation.capacities):
        raise AllocationError("an allocation names its pod's UID, its node, and at least one container or capacity")
    if not all(name and 0 <= amount <= MAX_AMOUNT for name, amount in allocation.capacities.items()):
        raise AllocationError(f"a capacity has no name, a negative amount, or one above {MAX_AMOUNT}")
    for name, grants in allocation.containers.items():
        if not grants:
            raise AllocationError(f"container {name} has no grant")
        if len({grant.device for grant in grants}) != len(grants):
            raise AllocationError(f"container {name} has a device twice")
        if not all(grant.device for grant in grants):
            raise AllocationError(f"container {name} has a grant without a device")
        if not all(0 <= amount <= MAX_AMOUNT for grant in grants for amount in (grant.bytes, grant.milliacu)):
            raise AllocationError(f"container {name} has a negative amount, or one above {MAX_AMOUNT}")
    for name, host in allocation.reuses.items():
        if not name or name in allocation.containers or host not in allocation.containers:
            raise AllocationError(f"init container {name!r} reuses the grants of {host!r}, which has none to share")
    for name, rectangles in allocation.cores.items():
        if not all(_sensible(one, allocation.capacities) for one in rectangles):
            raise AllocationError(f"container {name} has a rectangle off every grid, or of a capacity it does not take")


def _sensible(one: CoreGrant, capacities: dict[str, int]) -> bool:
    return (
        bool(one.board)
        and one.resource in capacities
        and min(one.x, one.y) >= 0
        and 1 <= one.cores <= one.width * one.height
        and max(one.x + one.width, one.y + one.height) <= MAX_SIDE
        and min(one.width, one.height) >= 1
    )
