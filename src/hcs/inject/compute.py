"""The compute share of a container with a share of a card: what holds it, and what only says it.

Memory is held by the quota; compute can be held only where the vendor has a mechanism of its own. Then it is set from
what the allocation grants, as a percentage of the whole card, rounded up: 40 of 100 ACU are 40 %. Where the vendor
gives whole parts of a card to one container each, the parts were chosen before (:mod:`hcs.inject.instances`).
Everywhere else the figure is handed to the program under a name that says ``advisory``, with the reason, and nothing
pretends to hold it.

Sources: CUDA's Multi-Process Service (active-thread percentage) and how NVIDIA's k8s-device-plugin connects containers
to its daemon (``internal/plugin/mps.go``: the pipes and the daemon's shared memory are mounted); MIG user guide (an
instance is its own device); HAMi's table of vNPU templates, and MindCluster's guide of ``ASCEND_VNPU_SPECS``.
"""

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from hcs.inject.adjustments import Mount, Variable
from hcs.inject.instances import Instance, InstanceKind
from hcs.model.allocations import Grant
from hcs.model.devices import Device

MPS_PIPES: Final = "/tmp/nvidia-mps"
"""Where the MPS control daemon of a node listens (its default); present where it runs."""

MPS_MEMORY: Final = "/run/nvidia/mps/shm"
"""What the daemon has as its ``/dev/shm``: its clients must have the same. NVIDIA's device plugin keeps it there."""

ASCEND_RUNTIME: Final = "/usr/local/Ascend/Ascend-Docker-Runtime"
"""Where Huawei's container runtime lies, which makes a virtual NPU of a template when a container starts."""

_WRITABLE: Final = ("rbind", "rw", "nosuid", "nodev", "rprivate")

Mechanism = Literal["mps", "mig", "vnpu", "advisory"] | InstanceKind
"""``mps``: active-thread percentage, by a variable. ``mig``: the device is a partition, held by hardware. ``vnpu``: a
virtual NPU of a template, made by the vendor's runtime. ``advisory``: nothing holds it. The others: a part of the card
that nobody else has."""

_NO_TEMPLATE: Final = (
    "NoTemplate: no virtual NPU of this chip has exactly the memory that is granted, and the AI cores; templates have"
)
_SEVERAL: Final = "SeveralCards: a virtual NPU is made of one card, and the container has a share of several"
_UNHELD: Final = {
    "nvidia": f"NoMpsDaemon: no MPS control daemon keeps its pipes in {MPS_PIPES}, and its shared memory in "
    f"{MPS_MEMORY}, on the node; start one there",
    "ascend": f"NoVendorRuntime: the node has no {ASCEND_RUNTIME}, which makes virtual NPUs; install it there",
    "amd": "ComputeUnitsUnknown: the kernel's KFD topology does not say how many compute units the card has",
    "hygon": "NoInstance: a virtual DCU would hold it; the profile says that our interceptor holds the share",
    "cambricon": "NoInstance: an sMLU instance would hold it; the profile says that our interceptor holds the share",
}
"""By vendor: why nothing holds the share."""


class Template(msgspec.Struct, frozen=True):
    """A virtual NPU: memory in bytes, AI cores of all the chip has."""

    name: str
    memory: int
    cores: int
    of_cores: int


def _templates(of_cores: int, *sizes: tuple[str, int, int]) -> tuple[Template, ...]:
    return tuple(Template(name, mebibytes << 20, cores, of_cores) for name, mebibytes, cores in sizes)


# By chip, smallest first. Source: HAMi, charts/hami/templates/scheduler/device-configmap.yaml.
_TEMPLATES: Final = {
    "910A": _templates(30, ("vir02", 2184, 2), ("vir04", 4369, 4), ("vir08", 8738, 8), ("vir16", 17476, 16)),
    "910B2": _templates(24, ("vir03_1c_8g", 8192, 3), ("vir06_1c_16g", 16384, 6), ("vir12_3c_32g", 32768, 12)),
    "910B3": _templates(20, ("vir05_1c_16g", 16384, 5), ("vir10_3c_32g", 32768, 10)),
    "910B4-1": _templates(20, ("vir05_1c_16g", 16384, 5), ("vir10_3c_32g", 32768, 10)),
    "910B4": _templates(20, ("vir05_1c_8g", 8192, 5), ("vir10_3c_16g", 16384, 10)),
    "310P3": _templates(8, ("vir01", 3072, 1), ("vir02", 6144, 2), ("vir04", 12288, 4)),
}

SHARE_VARIABLE: Final = "HCS_COMPUTE_SHARE"
"""``<mechanism>:<percent>`` of one card; for several cards the least."""

REASON_VARIABLE: Final = "HCS_COMPUTE_SHARE_REASON"
"""Beside an advisory share: why nothing holds it."""


class ComputeShare(msgspec.Struct, frozen=True):
    """What to add to a container, and by which mechanism its share of compute is held.

    ``holds_memory`` tells whether that mechanism holds the memory too, to the byte.
    """

    mechanism: Mechanism
    percent: int
    env: tuple[Variable, ...] = ()
    mounts: tuple[Mount, ...] = ()
    holds_memory: bool = False


def compute_paths(vendor: str) -> tuple[str, ...]:
    """Host paths whose presence decides about the mechanism."""
    return {"nvidia": (MPS_PIPES, MPS_MEMORY), "ascend": (ASCEND_RUNTIME,)}.get(vendor, ())


def vnpu_template(model: str, memory: int, percent: int) -> Template | None:
    """The template with exactly this memory (bytes) and at least this part of the cores; None where the chip has none.

    One with more memory would be more than was granted: cards that are full by the allocations would be over-committed,
    and the last container on one would not start.
    """
    fitting = (t for t in _templates_of(model) if t.memory == memory and t.cores * 100 >= percent * t.of_cores)
    return next(fitting, None)


def _templates_of(model: str) -> tuple[Template, ...]:
    return _TEMPLATES.get(model.removeprefix("Ascend").removeprefix(" "), ())


def instance_share(instance: Instance) -> ComputeShare:
    """The share that an instance holds."""
    said = Variable(SHARE_VARIABLE, f"{instance.kind}:{instance.percent}")
    return ComputeShare(instance.kind, instance.percent, (said, *instance.env), instance.mounts, instance.holds_memory)


def compute_share(granted: Iterable[tuple[Device, Grant]], present: frozenset[str]) -> ComputeShare | None:
    """How the granted compute is held; None where a card's whole compute is granted or its rate is not known.

    Args:
        granted: the container's devices with their grants, all of one vendor, in the order in which programs number
            them.
        present: paths that exist on the host.
    """
    pairs = [(device, grant, percent_of(device, grant)) for device, grant in granted]
    shares = [percent for _, _, percent in pairs if percent is not None]
    if not shares or min(shares) >= 100:
        return None
    percent = min(shares)
    devices = [device for device, _, _ in pairs]
    mechanism = _mechanism(devices, present)
    reason = _unheld(devices) if mechanism == "advisory" else ""
    template = None
    if mechanism == "vnpu":
        device, grant, _ = pairs[0]
        template = vnpu_template(device.model, grant.bytes, percent) if len(pairs) == 1 else None
        if template is None:
            mechanism, reason = "advisory", _SEVERAL if len(pairs) > 1 else f"{_NO_TEMPLATE} {_listed(device.model)}"
    env = [Variable(SHARE_VARIABLE, f"{mechanism}:{percent}")]
    mounts: list[Mount] = []
    if reason:
        env.append(Variable(REASON_VARIABLE, reason))
    if mechanism == "mps":
        env += [
            Variable("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", str(percent)),
            Variable("CUDA_MPS_PIPE_DIRECTORY", MPS_PIPES),
        ]
        mounts += [Mount(MPS_PIPES, MPS_PIPES, _WRITABLE), Mount(MPS_MEMORY, "/dev/shm", _WRITABLE)]
    if template is not None:
        env.append(Variable("ASCEND_VNPU_SPECS", template.name))
    return ComputeShare(mechanism, percent, tuple(env), tuple(mounts), holds_memory=template is not None)


def percent_of(device: Device, grant: Grant) -> int | None:
    """The grant's compute in percent of the whole card, at least 1, rounded up; None where the card's rate is unknown,
    or no compute was asked for."""
    rate = device.rate()
    if rate is None or rate.milliacu <= 0 or grant.milliacu <= 0:
        return None
    return min(100, max(1, -(-grant.milliacu * 100 // rate.milliacu)))


def _mechanism(devices: list[Device], present: frozenset[str]) -> Mechanism:
    vendor = devices[0].vendor
    if all(device.id.startswith("MIG-") for device in devices):
        return "mig"
    if any(device.emulated for device in devices):
        return "advisory"
    if vendor == "nvidia" and {MPS_PIPES, MPS_MEMORY} <= present:
        return "mps"
    return "vnpu" if vendor == "ascend" and ASCEND_RUNTIME in present else "advisory"


def _listed(model: str) -> str:
    sizes = [f"{t.memory >> 20}Mi with {t.cores} of {t.of_cores} cores" for t in _templates_of(model)]
    return ", ".join(sizes) or "no size that is known for it"


def _unheld(devices: list[Device]) -> str:
    vendor = devices[0].vendor
    if any(device.emulated for device in devices):
        return "EmulatedCard: the card is emulated and computes nothing"
    return _UNHELD.get(vendor, f"NoMechanism: nothing is known that holds a share of a {vendor} card's compute")
