"""What a container needs to run on the cards it was given: one pure function.

``inject`` turns an allocation into changes of the container: variables, library directories before the image's own,
device nodes, driver mounts, the entry point for this vendor, where to resume; for a share of a card also the quota file
and the preloaded interceptor that holds it to its memory. A container with whole cards gets no interceptor: there is
nobody to protect from it. NRI on a real node and the process kubelet of the sandbox deliver the same result.

Promises: equal inputs give equal results; no device outside the allocation is named; every file has a mount.
"""

import shlex
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from hcs.inject.adjustments import Adjustment, DeviceNode, HostFile, Mount, Variable
from hcs.inject.cdi import card_name
from hcs.inject.collectives import Wires, collective_variables, undisputed
from hcs.inject.compute import ComputeShare, compute_paths, compute_share, instance_share
from hcs.inject.instances import Instance
from hcs.inject.profiles import HostPath, Profile, Profiles, fill, fill_each
from hcs.inject.shares import share_files, share_mounts
from hcs.model import names
from hcs.model.allocations import Allocation, Grant
from hcs.model.devices import Device, Nic
from hcs.model.refusals import Refusal, RefusedError

__all__ = [
    "Adjustment",
    "ContainerFacts",
    "DeviceNode",
    "HostFile",
    "Mount",
    "NodeFacts",
    "NodeFiles",
    "Variable",
    "conceal",
    "inject",
]

MARK: Final = f"{names.DOMAIN}/adjusted"
"""Annotation of the *container*: it went through us. Seen again when the runtime lists its containers."""

_READ_ONLY: Final = ("rbind", "ro", "nosuid", "nodev", "rprivate")
_SHARED_MEMORY: Final = Mount("tmpfs", "/dev/shm", ("nosuid", "nodev", "noexec", "mode=1777"), "tmpfs")


class ContainerFacts(msgspec.Struct, frozen=True):
    """The container as it would start without us.

    ``environment`` and ``args`` hold the image's as well as the pod's; ``annotations`` are the pod's; ``mounted`` are
    the paths where the pod mounts volumes of its own.
    """

    name: str
    environment: Mapping[str, str] = {}
    args: tuple[str, ...] = ()
    annotations: Mapping[str, str] = {}
    mounted: frozenset[str] = frozenset()


class NodeFiles(msgspec.Struct, frozen=True):
    """What one device needs from the host beyond its profile, found by its vendor's adapter.

    ``context_bytes`` is the memory that the first context of a program takes on it, ``compute_units`` how many compute
    units it has; 0 where that is not known.
    """

    devices: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    context_bytes: int = 0
    compute_units: int = 0


class NodeFacts(msgspec.Struct, frozen=True):
    """The node as the agent knows it.

    ``present`` are the paths named by profiles that exist on the host, ``cdi`` the CDI names that resolve there,
    ``files`` what single devices need, by device id. ``instances`` are the parts of cards that their vendors hold, by
    the container they were made for. ``nics`` are the RDMA adapters, as far as they are known.
    ``state`` is the agent's directory on the host and ``interceptor`` the host path of the library, empty where there
    is none.
    """

    name: str
    devices: tuple[Device, ...]
    state: str
    interceptor: str
    present: frozenset[str] = frozenset()
    cdi: frozenset[str] = frozenset()
    files: Mapping[str, NodeFiles] = {}
    nics: tuple[Nic, ...] = ()
    instances: Mapping[str, Instance] = {}

    def device(self, device_id: str) -> Device | None:
        """The device with this id."""
        return next((device for device in self.devices if device.id == device_id), None)


def inject(allocation: Allocation, profile: Profile, container: ContainerFacts, node: NodeFacts) -> Adjustment:
    """Say what has to change in a container.

    Args:
        allocation: the pod's, already admitted on this node.
        profile: the effective one of the allocation's vendor and runtime (:meth:`Profiles.effective`).
        container: one that the allocation names.
        node: the node's devices and files.

    Raises:
        RefusedError: the container cannot run as it must: a device or a required file is not there, its share of this
            vendor's card cannot be held to its quota, or its entry point cannot be read.
    """
    granted = _granted(allocation, container.name, node)
    devices = [device for device, _ in granted]
    instance = None
    if not allocation.exclusive:
        instance = node.instances.get(allocation.reuses.get(container.name, container.name))
        _check_held(profile, instance, devices, node)
    nodes, mounts = _host_files(profile, devices, node, instance)
    compute: ComputeShare | None = None
    files: tuple[HostFile, ...] = ()
    if not allocation.exclusive:
        compute = instance_share(instance) if instance is not None else compute_share(granted, node.present)
        if compute is None or not compute.holds_memory:
            files = share_files(allocation.pod, container.name, granted, node.state, _context_bytes(node, devices))
            mounts.extend(share_mounts(files, node.interceptor))
        if compute is not None:
            mounts.extend(compute.mounts)
    shared = {*container.mounted, *(mount.destination for mount in mounts)}
    if len(devices) > 1 and _SHARED_MEMORY.destination not in shared:
        mounts.append(_SHARED_MEMORY)
    return Adjustment(
        env=_overlaid(
            _environment(allocation, profile, container, node, devices), compute.env if compute is not None else ()
        ),
        mounts=tuple({mount.destination: mount for mount in mounts}.values()),
        devices=tuple({node.path: node for node in nodes}.values()),
        args=_entry_point(container, allocation.vendor),
        cdi=_cdi(profile, devices, node, instance),
        annotations={MARK: allocation.vendor},
        files=files,
    )


def conceal(container: ContainerFacts, profiles: Profiles) -> Adjustment:
    """The adjustment for a container without cards beside one that has some: it must not see any through its image.

    Base images of some vendors choose all cards by a variable; where the vendor's runtime is the node's default, that
    would show every card to the container.
    """
    return Adjustment(
        env=tuple(Variable(name, None) for name in profiles.selectors() if name in container.environment),
        annotations={MARK: "none"},
    )


def candidate_paths(profile: Profile, devices: Iterable[Device]) -> tuple[str, ...]:
    """The host paths whose presence ``inject`` will want to know, for these devices of the profile's vendor."""
    ordered = tuple(devices)
    paths = (host.path for host in (*profile.devices, *profile.mounts))
    named = [path for pattern in paths for path in fill_each(pattern, ordered)]
    return tuple(dict.fromkeys((*named, *compute_paths(profile.vendor))))


def card_files(profile: Profile, device: Device, node: NodeFacts) -> tuple[list[DeviceNode], list[Mount]]:
    """Everything of the host that a container needs for one card: what its CDI name stands for.

    Raises:
        RefusedError: a required file is not there.
    """
    return _host_files(profile, [device], msgspec.structs.replace(node, cdi=frozenset()))


def _granted(allocation: Allocation, container: str, node: NodeFacts) -> list[tuple[Device, Grant]]:
    """The container's devices with their grants, in ascending order of index."""
    grants = allocation.grants(container)
    if not grants:
        raise RefusedError(Refusal("NotInAllocation", f"the allocation has no cards for container {container}"))
    found = []
    for grant in grants:
        device = node.device(grant.device)
        if device is None:
            raise RefusedError(Refusal("UnknownDevice", f"node {node.name} has no device {grant.device}"))
        found.append((device, grant))
    return sorted(found, key=lambda pair: (pair[0].index, pair[0].id))


def _check_held(profile: Profile, instance: Instance | None, devices: list[Device], node: NodeFacts) -> None:
    """Raises RefusedError where nothing would hold a share to its memory."""
    if instance is not None and instance.holds_memory:
        return
    if profile.quota == "instance" and len(devices) > 1:
        raise RefusedError(
            Refusal("SeveralCards", "an instance is of one card, and the container has shares of several; ask for one")
        )
    if profile.quota != "interceptor":
        raise RefusedError(
            Refusal(
                "ShareNotEnforceable",
                f"nothing here holds a share of a {profile.vendor} card to its memory; ask for a whole card with "
                f"annotation {names.SHARING}: exclusive",
            )
        )
    if not node.interceptor:
        raise RefusedError(
            Refusal("InterceptorMissing", f"node {node.name} has no interceptor library to hold a share to its memory")
        )


def _host_files(
    profile: Profile, devices: list[Device], node: NodeFacts, instance: Instance | None = None
) -> tuple[list[DeviceNode], list[Mount]]:
    nodes: list[DeviceNode] = []
    mounts: list[Mount] = []
    named = _cdi(profile, devices, node, instance)
    if named and named == tuple(card_name(device) for device in devices):
        return nodes, mounts  # our own names bring everything
    if not named:  # a vendor's name brings nodes and driver files of its own
        own = instance.devices if instance is not None else ()
        nodes += own or [DeviceNode(path, path) for path in _existing(profile.devices, devices, node)]
        mounts += [Mount(path, path, _READ_ONLY) for path in _existing(profile.mounts, devices, node)]
    for device in devices:
        found = node.files.get(device.id, NodeFiles())
        nodes.extend(found.devices)
        mounts.extend(found.mounts)
    return nodes, mounts


def _existing(paths: Iterable[HostPath], devices: list[Device], node: NodeFacts) -> list[str]:
    emulated = all(device.emulated for device in devices)  # then the adapter brings all there is
    found = []
    for host in paths:
        for path in fill_each(host.path, devices):
            if path in node.present:
                found.append(path)
            elif not host.optional and not emulated:
                raise RefusedError(
                    Refusal(
                        "HostFileMissing",
                        f"node {node.name} has no {path}; is the driver of {devices[0].model} loaded?",
                    )
                )
    return found


def _cdi(profile: Profile, devices: list[Device], node: NodeFacts, instance: Instance | None = None) -> tuple[str, ...]:
    """The devices' CDI names where all of them resolve on this node, else none; the vendor's before our own. None where
    an instance has nodes of its own: the names bring the card's."""
    if instance is not None and instance.devices:
        return ()
    wanted = fill_each(profile.cdi, devices) if profile.cdi else ()
    if wanted and node.cdi.issuperset(wanted):
        return wanted
    own = tuple(card_name(device) for device in devices)
    return own if node.cdi.issuperset(own) else ()


def _environment(
    allocation: Allocation, profile: Profile, container: ContainerFacts, node: NodeFacts, devices: list[Device]
) -> tuple[Variable, ...]:
    together = len(devices) > 1 or allocation.peers is not None
    patterns = {**profile.selection, **profile.environment, **(profile.collective if together else {})}
    variables: dict[str, str | None] = {name: None for name in profile.clear if name in container.environment}
    variables |= {name: fill(pattern, devices) for name, pattern in patterns.items()}
    wires = Wires(tuple(devices), node.nics, allocation.peers, shared=not allocation.exclusive)
    derived = collective_variables(allocation.vendor, wires)
    variables |= undisputed(derived, [*patterns, *container.environment])
    if profile.libraries:
        own = [part for part in container.environment.get("LD_LIBRARY_PATH", "").split(":") if part]
        variables["LD_LIBRARY_PATH"] = ":".join(dict.fromkeys((*profile.libraries, *own)))
    variables["HCS_NODE"] = node.name
    variables["HCS_VENDOR"] = allocation.vendor
    variables["HCS_DEVICES"] = ",".join(device.id for device in devices)
    resume = container.annotations.get(names.RESUME)
    if resume:
        variables["HCS_RESUME_FROM"] = resume
    return tuple(Variable(name, value) for name, value in sorted(variables.items()))


def _overlaid(base: tuple[Variable, ...], more: tuple[Variable, ...]) -> tuple[Variable, ...]:
    """Both, the second winning, in order of name."""
    merged = {variable.name: variable for variable in (*base, *more)}
    return tuple(merged[name] for name in sorted(merged))


def _entry_point(container: ContainerFacts, vendor: str) -> tuple[str, ...] | None:
    text = container.annotations.get(f"{names.ENTRYPOINT_PREFIX}{vendor}")
    if text is None:
        return None
    try:
        return read_entry_point(text)
    except ValueError as error:
        raise RefusedError(
            Refusal("MalformedEntrypoint", f"annotation {names.ENTRYPOINT_PREFIX}{vendor}: {error}")
        ) from error


def read_entry_point(text: str) -> tuple[str, ...]:
    """Read a whole command line: a JSON list of strings, or words with shell quoting (no shell runs).

    >>> read_entry_point("python train.py --name 'a b'")
    ('python', 'train.py', '--name', 'a b')

    Raises:
        ValueError: neither, or empty.
    """
    if text.lstrip().startswith("["):
        try:
            words = msgspec.json.decode(text, type=tuple[str, ...])
        except msgspec.DecodeError as error:
            raise ValueError(f"not a JSON list of strings: {error}") from error
    else:
        words = tuple(shlex.split(text))
    if not words or not words[0]:
        raise ValueError("names no program; write it like python train.py")
    return words


def _context_bytes(node: NodeFacts, devices: list[Device]) -> dict[str, int]:
    return {device.id: node.files.get(device.id, NodeFiles()).context_bytes for device in devices}
