"""All hardware as arrays: which devices exist, on which node, of which kind, and whether they may be used at all.

It changes only when a node or the health of a card changes, thousands of times less often than placements, so it is
built once and shared by every snapshot. Devices are sorted by node name, vendor, model, index and id: a fixed order
that breaks all ties, in which a node is one slice and a *group*, the devices of one model on one node, another.

Devices that are equal in everything a request is weighed against are of one *kind*. A fleet has few kinds, so a
request is weighed once per kind and not once per device.
"""

from collections.abc import Iterable
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from hcs.model.devices import Device, NodeInventory

Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

USABLE_VERDICTS: Final = ("Healthy", "SubHealthy")


class Fleet(msgspec.Struct, frozen=True, eq=False):
    """The devices of all nodes, as parallel arrays of length D (devices), N (nodes), G (groups) and K (kinds).

    ``node``, ``group`` and ``kind`` give the index of each device's; ``vram`` is in bytes, ``milliacu`` the rate in the
    default class, 0 where it is unknown. ``usable`` devices are neither foreign, quarantined, failed nor unknown;
    ``degraded`` ones are usable and sub-healthy. ``shape`` numbers nodes with the same kinds of cards.
    """

    nodes: tuple[NodeInventory, ...]
    devices: tuple[Device, ...]
    kinds: tuple[Device, ...]
    """One device of each kind, to weigh a request against."""
    node: Integers
    group: Integers
    kind: Integers
    vram: Integers
    milliacu: Integers
    foreign: Mask
    quarantined: Mask
    healthy_enough: Mask
    degraded: Mask
    usable: Mask
    first_device: Integers
    """[N + 1] Where each node's devices begin; the last entry is D."""
    group_first: Integers
    """[G + 1] Where each group's devices begin; the last entry is D."""
    group_node: Integers
    ready: Mask
    replaces_args: Mask
    """[N] Whether the node's container runtime can change a command line, as far as it is known."""
    fails_closed: Mask
    """[N] Whether no container starts there without the agent's answer, as far as it is known."""
    shape: Integers
    node_index: dict[str, int]
    device_index: dict[tuple[str, str], int]

    def slice_of(self, node: int) -> slice:
        """The devices of a node."""
        return slice(int(self.first_device[node]), int(self.first_device[node + 1]))

    def group_slice(self, group: int) -> slice:
        """The devices of a group."""
        return slice(int(self.group_first[group]), int(self.group_first[group + 1]))

    def any_on_node(self, mask: Mask) -> Mask:
        """[N] Whether any device of each node is in the mask [D]."""
        before = np.concatenate(([0], np.cumsum(mask)))
        kept: Mask = before[self.first_device[1:]] > before[self.first_device[:-1]]
        return kept


def build_fleet(inventories: Iterable[NodeInventory]) -> Fleet:
    """Lay out the nodes' devices.

    A node named twice counts once, the last wins; so does a device id that appears twice on a node, where the first
    wins: an agent's mistake must not stop the placement of everybody else.
    """
    nodes = tuple(sorted({node.name: node for node in inventories}.values(), key=lambda node: node.name))
    devices: list[Device] = []
    node_of: list[int] = []
    quarantined: list[bool] = []
    kinds: dict[tuple[object, ...], int] = {}
    kind_of: list[int] = []
    examples: list[Device] = []
    groups: dict[tuple[int, str, str], int] = {}
    group_of: list[int] = []
    shapes: dict[tuple[int, ...], int] = {}
    shape_of: list[int] = []
    device_index: dict[tuple[str, str], int] = {}
    first_device: list[int] = [0]
    group_first: list[int] = []
    for number, node in enumerate(nodes):
        for device in sorted(node.devices, key=lambda d: (d.vendor, d.model, d.index, d.id)):
            if device_index.setdefault((node.name, device.id), len(devices)) != len(devices):
                continue
            kind = kinds.setdefault(_kind(device), len(kinds))
            if kind == len(examples):
                examples.append(device)
            group = groups.setdefault((number, device.vendor, device.model), len(groups))
            if group == len(group_first):
                group_first.append(len(devices))
            devices.append(device)
            node_of.append(number)
            kind_of.append(kind)
            group_of.append(group)
            quarantined.append(node.quarantined(device.id) is not None)
        first_device.append(len(devices))
        shape_of.append(shapes.setdefault(tuple(kind_of[first_device[-2] :]), len(shapes)))
    healthy_enough = _mask([device.verdict in USABLE_VERDICTS for device in devices])
    foreign, held = _mask([device.foreign for device in devices]), _mask(quarantined)
    usable = healthy_enough & ~foreign & ~held
    return Fleet(
        nodes=nodes,
        devices=tuple(devices),
        kinds=tuple(examples),
        node=_integers(node_of),
        group=_integers(group_of),
        kind=_integers(kind_of),
        vram=_integers([device.vram for device in devices]),
        milliacu=_integers([0 if (rate := device.rate()) is None else rate.milliacu for device in devices]),
        foreign=foreign,
        quarantined=held,
        healthy_enough=healthy_enough,
        degraded=usable & _mask([device.verdict == "SubHealthy" for device in devices]),
        usable=usable,
        first_device=_integers(first_device),
        group_first=_integers([*group_first, len(devices)]),
        group_node=_integers([node for node, _, _ in groups]),
        ready=_mask([node.ready for node in nodes]),
        replaces_args=_mask([node.abilities.args or not node.abilities.runtime for node in nodes]),
        fails_closed=_mask([node.abilities.fail_closed or not node.abilities.runtime for node in nodes]),
        shape=_integers(shape_of),
        node_index={node.name: number for number, node in enumerate(nodes)},
        device_index=device_index,
    )


def _kind(device: Device) -> tuple[object, ...]:
    return (
        device.vendor,
        device.model,
        device.vram,
        device.rates,
        device.fp16_mtflops,
        device.fp32_mtflops,
        device.int8_mtops,
        device.whole_only,
    )


def _integers(values: list[int]) -> Integers:
    return _frozen(np.array(values, dtype=np.int64))


def _mask(values: list[bool]) -> Mask:
    mask = np.array(values, dtype=np.bool_)
    mask.setflags(write=False)
    return mask


def _frozen(array: Integers) -> Integers:
    array.setflags(write=False)
    return array
