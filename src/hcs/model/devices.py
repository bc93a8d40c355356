"""A card as the fleet sees it: identity, capacities, exchange rates, links and health.

A ``Device`` is exactly one entry of ``ComputeNode.status.devices[]`` (camelCase there), so what the agent publishes,
the router places on and the command line prints is one type. All amounts are exact integers: bytes, thousandths of an
ACU, thousandths of a TFLOPS.
"""

from typing import Final, Literal

import msgspec

DEFAULT_WORKLOAD: Final = "gemm"
WORKLOADS: Final = ("gemm", "pretrain", "finetune", "prefill", "decode")

Source = Literal["measured", "benchmark", "datasheet", "derived"]
SOURCES: Final = ("measured", "benchmark", "datasheet", "derived")
"""Where a rate comes from, best first. ``derived`` is computed from another class and never substitutes on its own."""

Verdict = Literal["Healthy", "SubHealthy", "Failed", "Unknown"]


class Rate(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What one whole device does in one workload class, in thousandths of an ACU, and how we know.

    ``as_of`` is a date like ``2026-11-20`` or a month: when it was measured, or read from the source where that does
    not say; empty when nobody knows.
    """

    workload: str
    milliacu: int
    source: Source
    note: str = ""
    as_of: str = ""


class Link(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A direct link to another device of the node; ``kind`` is the tool's own word (``NV12``, ``HCCS``, ``PHB``)."""

    peer: str
    kind: str
    mbps: int | None = None  # megabytes per second, both directions added; None when unknown


class Device(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One card, or one of the devices on a board that the driver shows separately.

    ``id`` is unique and stable on its node (a UUID where the vendor has one); ``index`` is the driver's physical
    number, from which the device node follows. ``vram`` is in bytes. ``*_mtflops`` and ``*_mtops`` are rated, dense, in
    thousandths of a TFLOPS or TOPS.
    """

    id: str
    index: int
    vendor: str
    model: str
    vram: int
    rates: tuple[Rate, ...] = ()
    fp16_mtflops: int | None = None
    fp32_mtflops: int | None = None
    int8_mtops: int | None = None
    bus_id: str | None = None
    numa: int | None = None
    links: tuple[Link, ...] = ()
    verdict: Verdict = "Unknown"
    verdict_reason: str = ""
    verdict_message: str = ""
    foreign: bool = False
    """Whether somebody outside HCS (a device plugin, a DRA driver) holds it; then nothing is placed on it."""
    emulated: bool = False
    whole_only: bool = False
    """Whether nothing on the node can hold a container to a share of it; then it is given whole or not at all."""
    measured_at: str = ""
    """The day this very card was measured, like ``2026-11-21``; empty when it was not. Rates ``as_of`` that day are
    its own, the others those of its model."""

    def rate(self, workload: str = DEFAULT_WORKLOAD) -> Rate | None:
        """The rate in a workload class, or None when nothing is known about it."""
        return next((rate for rate in self.rates if rate.workload == workload), None)


class Quarantine(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One entry of ``ComputeNode.spec.quarantine[]``: this device takes no new work. ``device`` may be ``*``.

    A ``lifted`` entry keeps nothing off the device any more; it stays only while somebody it evicted still waits for a
    place, for its notes say where the replacement resumes.
    """

    device: str
    reason: str
    message: str = ""
    by: str = ""
    since: str = ""
    evicted: tuple["EvictedOwner", ...] = ()
    lifted: bool = False


class EvictedOwner(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Who lost a pod to this quarantine, and where its replacement should resume: read by the router.

    ``vendor`` is the vendor it ran on: a replacement that is not portable stays with it. ``resume_from`` is the newest
    complete checkpoint as the container sees it, empty when the pod keeps none. ``pod_uid`` and ``since`` say which pod
    was lost, and when; ``replaced_by`` is the UID of the pod that took over, empty as long as the note waits for one.
    """

    owner_uid: str
    namespace: str
    pod: str
    vendor: str = ""
    resume_from: str = ""
    pod_uid: str = ""
    since: str = ""
    replaced_by: str = ""


class Abilities(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What the node's container runtime can do for the agent; work that needs more is not placed there."""

    runtime: str = ""
    args: bool = False
    cdi: bool = False
    fail_closed: bool = False


class Nic(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One RDMA adapter of a node: an entry of ``ComputeNode.status.nics[]``.

    ``fabric`` names the network it is plugged into; adapters reach each other if and only if they name the same one.
    ``kind`` is ``infiniband``, ``roce`` or the tool's own word; ``mbps`` megabytes per second, both directions added.
    ``near`` are the ids of the devices behind the same PCIe switch.
    """

    name: str
    fabric: str = ""
    kind: str = ""
    numa: int | None = None
    mbps: int | None = None
    near: tuple[str, ...] = ()


class Latency(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """How far a node is from a named data source: the measured median of a round trip, in microseconds."""

    source: str
    microseconds: int
    measured_at: str = ""


class Location(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Where in the network a node stands, from wide to narrow; empty where nobody said.

    ``fabric`` is the RDMA network or block, ``rack`` the rack or leaf switch, ``domain`` the set of nodes whose cards
    reach each other over the cards' own links (an NVLink domain, an HCCS super pod).
    """

    zone: str = ""
    fabric: str = ""
    rack: str = ""
    domain: str = ""


class RtosHost(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a node offers RTOS guests: ``ComputeNode.status.rtos``.

    ``pcpus`` and the memory figures (MiB) are 0 where nobody knows; ``free_capacity`` is percent of one pCPU that no
    guest's capacity claims (a guest without a bound claims one pCPU for each vCPU). ``max_guests`` 0 is no limit.
    ``ready`` is whether micad is there.
    """

    pedestal: str = "xen"
    pcpus: int = 0
    total_memory_mb: int = 0
    free_memory_mb: int = 0
    free_capacity: int = 0
    guests: int = 0
    running: int = 0
    max_guests: int = 0
    ready: bool = False


class SpikingBoard(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A board of spiking cores as its node's plugin reports it: an entry of ``ComputeNode.status.boards[]``.

    The masks are whole numbers in hexadecimal, bit ``y * width + x`` for the core (x, y); ``busy`` is whatever anybody
    holds. ``unit`` is how many cores one id of the node's ``cores`` resource stands for.
    """

    id: str
    width: int
    height: int
    module: str = ""
    unit: int = 1
    numa: int | None = None
    ksps: int = 0
    busy: str = "0"
    dead_cores: str = "0"
    dead_routers: str = "0"


class NodeInventory(msgspec.Struct, frozen=True, cache_hash=True):
    """All that placement needs to know about one node, read from its ``ComputeNode`` and its labels."""

    name: str
    devices: tuple[Device, ...] = ()
    quarantine: tuple[Quarantine, ...] = ()
    abilities: Abilities = Abilities()
    ready: bool = True
    location: Location = Location()
    nics: tuple[Nic, ...] = ()
    latencies: tuple[Latency, ...] = ()
    capacities: tuple[tuple[str, int], ...] = ()
    """What else the node offers, by name, each in its own unit: neuromorphic cores, slots for RTOS guests."""
    rtos: RtosHost | None = None
    boards: tuple[SpikingBoard, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    """The node's labels, sorted: what pods may prefer it for."""
    cost: int | None = None
    """Millionths of the site's unit; None where nobody said."""

    def quarantined(self, device_id: str) -> Quarantine | None:
        """The entry that keeps work off this device, if any."""
        return next((e for e in self.quarantine if e.device in (device_id, "*") and not e.lifted), None)

    @property
    def fabrics(self) -> frozenset[str]:
        """The RDMA networks the node is plugged into."""
        return frozenset(nic.fabric for nic in self.nics if nic.fabric)

    def latency(self, source: str) -> int | None:
        """Microseconds to a data source, or None where nobody measured it."""
        return next((entry.microseconds for entry in self.latencies if entry.source == source), None)
