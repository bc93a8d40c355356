"""The Container Device Interface (CDI): a card's device nodes and driver files under one name.

A runtime that resolves CDI names looks up a device node's numbers itself, and has one list for whoever else needs the
card (a debugging container, another tool). Each card has a name, ``ai.compute/VENDOR=ID``; a vendor's own specification
comes first where a profile names it and it is there. Pure: reading and writing the files is the agent's part.

Source: the CDI specification 0.6.0 (cncf-tags/container-device-interface, Apache-2.0).
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from hcs.inject.adjustments import DeviceNode, Mount
from hcs.model import names
from hcs.model.devices import Device

VERSION: Final = "0.6.0"
CardFiles = tuple[Iterable[DeviceNode], Iterable[Mount]]

_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")
_IN_PLACE: Final = ("bind", "rw", "nosuid", "nodev", "noexec", "rprivate")


def card_name(device: Device) -> str:
    """The name of a card."""
    return f"{names.DOMAIN}/{device.vendor}={device.id}"


def specification(
    vendor: str, cards: Iterable[tuple[Device, CardFiles]], is_node: Callable[[str], bool]
) -> dict[str, Any] | None:
    """What a specification file says about one vendor's cards.

    Args:
        vendor: the vendor word.
        cards: each card with its device nodes and mounts.
        is_node: whether a path of the host is a device node; what is none, like an emulated card, is mounted.

    Returns:
        The file's content as plain data; None where there is nothing to name.
    """
    devices = []
    for device, (nodes, mounts) in cards:
        if not _NAME.fullmatch(device.id):
            continue
        entries = [_mount(mount) for mount in mounts]
        entries += [_mount(Mount(n.source, n.path, _IN_PLACE)) for n in nodes if not is_node(n.source)]
        edits: dict[str, Any] = {
            "deviceNodes": [{"path": n.path, "hostPath": n.source} for n in nodes if is_node(n.source)],
            "mounts": entries,
        }
        edits = {key: found for key, found in edits.items() if found}
        if edits:  # a device that changes nothing is not valid
            devices.append({"name": device.id, "containerEdits": edits})
    if not devices:
        return None
    return {"cdiVersion": VERSION, "kind": f"{names.DOMAIN}/{vendor}", "devices": devices}


def resolvable(specification: object) -> frozenset[str]:
    """The names that a specification file of anybody defines; none where it is not one."""
    if not isinstance(specification, Mapping):
        return frozenset()
    kind, devices = specification.get("kind"), specification.get("devices")
    if not isinstance(kind, str) or not isinstance(devices, list):
        return frozenset()
    return frozenset(f"{kind}={device['name']}" for device in devices if isinstance(device, dict) and "name" in device)


def _mount(mount: Mount) -> dict[str, Any]:
    return {
        "hostPath": mount.source,
        "containerPath": mount.destination,
        "type": mount.type,
        "options": list(mount.options),
    }
