"""All hardware as arrays: which devices exist, on which node, of which kind, and whether they may be used at all.

It changes only when a node or the health of a card changes, thousands of times less often than placements, so it is
built once and shared by every snapshot; a change of one node makes the next fleet from this one
(:meth:`Fleet.with_node`). Devices are sorted by node name, vendor, model, index and id: a fixed order that breaks all
ties, in which a node is one slice and a *group*, the devices of one model on one node, another. A node without devices
that offers other capacities is a group of none.

Devices that are equal in everything a request is weighed against are of one *kind*. A fleet has few kinds, so a
request is weighed once per kind and not once per device. Beside its devices a node may have *columns*: amounts of
anything else that is counted per node (CPU, memory, neuromorphic cores, slots for RTOS guests).
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from hcs.model.devices import Device, NodeInventory
from hcs.model.quantities import MAX_AMOUNT

Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

USABLE_VERDICTS: Final = ("Healthy", "SubHealthy")


class DeviceIndex(Mapping[tuple[str, str], int]):
    """(node name, device id) → position in the fleet. Kept per node, so that one node's change costs one node."""

    def __init__(self, numbers: Mapping[str, int], firsts: Integers, offsets: tuple[dict[str, int], ...]) -> None:
        self._numbers, self._firsts, self._offsets = numbers, firsts, offsets

    def __getitem__(self, key: tuple[str, str]) -> int:
        number = self._numbers[key[0]]
        return int(self._firsts[number]) + self._offsets[number][key[1]]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return ((name, device) for name, number in self._numbers.items() for device in self._offsets[number])

    def __len__(self) -> int:
        return sum(map(len, self._offsets))


class Fleet(msgspec.Struct, frozen=True, eq=False, dict=True):
    """The devices of all nodes, as parallel arrays of length D (devices), N (nodes), G (groups) and K (kinds).

    ``node``, ``group`` and ``kind`` give the index of each device's; ``vram`` is in bytes, ``milliacu`` the rate in the
    default class, 0 where it is unknown. ``usable`` devices are neither foreign, quarantined, failed nor unknown;
    ``degraded`` ones are usable and sub-healthy. ``shape`` numbers nodes with the same kinds of cards.
    """

    nodes: tuple[NodeInventory, ...]
    devices: tuple[Device, ...]
    kinds: tuple[Device, ...]
    """A device of each kind, to weigh a request against: no particular one, in an order that follows from the kinds."""
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
    columns: tuple[str, ...]
    """[X] The names of what nodes offer beside devices, sorted."""
    room: Integers
    """[N, X] How much of each a node has, in its own unit."""
    node_index: dict[str, int]
    device_index: DeviceIndex
    laid: "tuple[_Laid, ...]"
    """[N] Each node's own part of all this, from which the next fleet is made."""

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

    @cached_property
    def memory(self) -> dict[object, object]:
        """For what others find out about this hardware and do not want to find out twice."""
        return {}

    @cached_property
    def first_group(self) -> Integers:
        """[N + 1] Where each node's groups begin."""
        return _integers(np.searchsorted(self.group_node, np.arange(len(self.nodes) + 1)))

    def with_node(self, node: NodeInventory) -> "Fleet":
        """The fleet in which this node is as given: new, or in place of the one of its name."""
        known = self.node_index.get(node.name)
        names = [laid.node.name for laid in self.laid]
        place = known if known is not None else int(np.searchsorted(np.array(names, dtype=object), node.name))
        after = place if known is None else place + 1
        laid = _lay(node)
        if known is not None and _alike(laid, self.laid[known]):
            return _patched(self, known, laid)
        return _assemble((*self.laid[:place], laid, *self.laid[after:]))

    def without_node(self, name: str) -> "Fleet":
        """The fleet without this node, which it has."""
        place = self.node_index[name]
        return _assemble((*self.laid[:place], *self.laid[place + 1 :]))


class _Laid(msgspec.Struct, frozen=True, eq=False):
    """One node, laid out: its devices in order and their columns, all that a fleet strings together."""

    node: NodeInventory
    devices: tuple[Device, ...]
    kinds: tuple[bytes, ...]
    kind_set: tuple[bytes, ...]
    groups: tuple[int, ...]
    """How many devices each group has."""
    numbers: Integers
    """[2, n] Bytes of memory and milliacu of each device."""
    flags: Mask
    """[4, n] Foreign, quarantined, healthy enough, sub-healthy."""
    offsets: dict[str, int]


def build_fleet(inventories: Iterable[NodeInventory]) -> Fleet:
    """Lay out the nodes' devices.

    A node named twice counts once, the last wins; so does a device id that appears twice on a node, where the first
    wins: an agent's mistake must not stop the placement of everybody else.
    """
    nodes = sorted({node.name: node for node in inventories}.values(), key=lambda node: node.name)
    return _assemble(tuple(_lay(node) for node in nodes))


def _lay(node: NodeInventory) -> _Laid:
    devices: list[Device] = []
    offsets: dict[str, int] = {}
    groups: dict[tuple[str, str], int] = {}
    for device in sorted(node.devices, key=lambda d: (d.vendor, d.model, d.index, d.id)):
        if offsets.setdefault(device.id, len(devices)) != len(devices):
            continue
        devices.append(device)
        model = device.vendor, device.model
        groups[model] = groups.get(model, 0) + 1
    encoded = {kind: _encode(kind) for kind in map(_kind, devices)}
    kinds = tuple(encoded[_kind(device)] for device in devices)
    return _Laid(
        node=node,
        devices=tuple(devices),
        kinds=kinds,
        kind_set=tuple(dict.fromkeys(kinds)),
        groups=tuple(groups.values()) or ((0,) if node.capacities else ()),
        numbers=np.array(
            [
                [device.vram for device in devices],
                [0 if (rate := device.rate()) is None else rate.milliacu for device in devices],
            ],
            dtype=np.int64,
        ).reshape(2, -1),
        flags=np.array(
            [
                [device.foreign for device in devices],
                [node.quarantined(device.id) is not None for device in devices],
                [device.verdict in USABLE_VERDICTS for device in devices],
                [device.verdict == "SubHealthy" for device in devices],
            ],
            dtype=np.bool_,
        ).reshape(4, -1),
        offsets=offsets,
    )


def _alike(one: _Laid, other: _Laid) -> bool:
    """Whether two states of a node differ in nothing but the state of its devices and of itself."""
    return one.kinds == other.kinds and one.groups == other.groups and one.node.capacities == other.node.capacities


def _patched(fleet: Fleet, number: int, laid: _Laid) -> Fleet:
    """The fleet with another state of one node, by far the commonest change."""
    inside = fleet.slice_of(number)

    def on_devices(mask: Mask, values: Mask) -> Mask:
        changed = mask.copy()
        changed[inside] = values
        return _mask(changed)

    def on_nodes(mask: Mask, value: bool) -> Mask:
        changed = mask.copy()
        changed[number] = value
        return _mask(changed)

    foreign, quarantined, healthy_enough, sick = laid.flags
    usable = healthy_enough & ~foreign & ~quarantined
    every = (*fleet.laid[:number], laid, *fleet.laid[number + 1 :])
    return msgspec.structs.replace(
        fleet,
        nodes=(*fleet.nodes[:number], laid.node, *fleet.nodes[number + 1 :]),
        devices=(*fleet.devices[: inside.start], *laid.devices, *fleet.devices[inside.stop :]),
        foreign=on_devices(fleet.foreign, foreign),
        quarantined=on_devices(fleet.quarantined, quarantined),
        healthy_enough=on_devices(fleet.healthy_enough, healthy_enough),
        degraded=on_devices(fleet.degraded, usable & sick),
        usable=on_devices(fleet.usable, usable),
        ready=on_nodes(fleet.ready, laid.node.ready),
        replaces_args=on_nodes(fleet.replaces_args, _can(laid.node, laid.node.abilities.args)),
        fails_closed=on_nodes(fleet.fails_closed, _can(laid.node, laid.node.abilities.fail_closed)),
        device_index=DeviceIndex(fleet.node_index, fleet.first_device, tuple(one.offsets for one in every)),
        laid=every,
    )


def _assemble(laid: tuple[_Laid, ...]) -> Fleet:
    """String the nodes together. All that is done for each device was done when its node was laid out."""
    examples: dict[bytes, Device] = {}
    for one in laid:
        for kind in one.kind_set:
            if kind not in examples:
                examples[kind] = _example(one.devices[one.kinds.index(kind)])
    order = {kind: number for number, kind in enumerate(sorted(examples))}
    numbered: dict[tuple[bytes, ...], Integers] = {}
    shapes: dict[tuple[bytes, ...], int] = {}
    kind_of: list[Integers] = []
    shape_of: list[int] = []
    for one in laid:
        kinds = one.kinds
        if kinds not in numbered:
            numbered[kinds] = np.array([order[kind] for kind in kinds], dtype=np.int64)
            shapes[kinds] = len(shapes)
        kind_of.append(numbered[kinds])
        shape_of.append(shapes[kinds])
    counts = np.array([len(one.devices) for one in laid], dtype=np.int64)
    sizes = np.array([size for one in laid for size in one.groups], dtype=np.int64)
    numbers = np.concatenate([np.zeros((2, 0), np.int64), *(one.numbers for one in laid)], axis=1)
    flags = np.concatenate([np.zeros((4, 0), np.bool_), *(one.flags for one in laid)], axis=1)
    usable = flags[2] & ~flags[0] & ~flags[1]
    first_device = _integers(np.concatenate(([0], np.cumsum(counts))))
    columns = tuple(sorted({name for one in laid for name, _ in one.node.capacities}))
    room = np.zeros((len(laid), len(columns)), dtype=np.int64)
    for number, one in enumerate(laid):
        for name, amount in one.node.capacities:
            room[number, columns.index(name)] = min(amount, MAX_AMOUNT)
    index = {one.node.name: number for number, one in enumerate(laid)}
    return Fleet(
        nodes=tuple(one.node for one in laid),
        devices=tuple(device for one in laid for device in one.devices),
        kinds=tuple(examples[kind] for kind in order),
        node=_integers(np.repeat(np.arange(len(laid)), counts)),
        group=_integers(np.repeat(np.arange(len(sizes)), sizes)),
        kind=_integers(np.concatenate([np.zeros(0, np.int64), *kind_of])),
        vram=_integers(numbers[0]),
        milliacu=_integers(numbers[1]),
        foreign=_mask(flags[0]),
        quarantined=_mask(flags[1]),
        healthy_enough=_mask(flags[2]),
        degraded=_mask(usable & flags[3]),
        usable=_mask(usable),
        first_device=first_device,
        group_first=_integers(np.concatenate(([0], np.cumsum(sizes)))),
        group_node=_integers(np.repeat(np.arange(len(laid)), [len(one.groups) for one in laid])),
        ready=_mask(np.array([one.node.ready for one in laid], dtype=np.bool_)),
        replaces_args=_mask(np.array([_can(one.node, one.node.abilities.args) for one in laid], dtype=np.bool_)),
        fails_closed=_mask(np.array([_can(one.node, one.node.abilities.fail_closed) for one in laid], dtype=np.bool_)),
        shape=_integers(np.array(shape_of, dtype=np.int64)),
        columns=columns,
        room=_integers(room),
        node_index=index,
        device_index=DeviceIndex(index, first_device, tuple(one.offsets for one in laid)),
        laid=laid,
    )


def _can(node: NodeInventory, able: bool) -> bool:
    """What a runtime nobody has asked yet is taken to be able to do: the agent refuses what it cannot."""
    return able or not node.abilities.runtime


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


def _example(device: Device) -> Device:
    """A device that has nothing but its kind, so that fleets of the same kinds have the same ones."""
    return Device(
        id="",
        index=0,
        vendor=device.vendor,
        model=device.model,
        vram=device.vram,
        rates=device.rates,
        fp16_mtflops=device.fp16_mtflops,
        fp32_mtflops=device.fp32_mtflops,
        int8_mtops=device.int8_mtops,
        whole_only=device.whole_only,
        verdict="Healthy",
    )


_encode: Final = msgspec.json.Encoder().encode


def _integers(array: NDArray[np.int64]) -> Integers:
    array = np.ascontiguousarray(array, dtype=np.int64)
    array.setflags(write=False)
    return array


def _mask(array: Mask) -> Mask:
    array = np.ascontiguousarray(array)
    array.setflags(write=False)
    return array
