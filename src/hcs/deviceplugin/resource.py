"""What a device plugin hands out, as values: units, what a container gets with them, and who decides.

A unit is one id; the kubelet counts ids and gives whole ones. It knows nothing else of them, so an amount like 500
thousand spikes per second is a number of ids, and the unit must be chosen so that there are few: the kubelet reads the
complete list in one message, writes every id into a file at each change, and cuts the plugin off above 4 MiB without a
word in the plugin's log. :func:`check_list` refuses such lists beforehand.
"""

from collections.abc import Sequence
from typing import Any, Final, Protocol

import msgspec

from hcs.deviceplugin.messages import MESSAGES
from hcs.deviceplugin.podresources import Holder
from hcs.model.refusals import Refusal, RefusedError

MAX_ID: Final = 63
"""Characters of an id (device-plugin API, ``Device.ID``)."""
MAX_UNITS: Final = 100_000
MAX_LIST_BYTES: Final = 2 << 20
"""Half of gRPC's limit of 4 MiB for a received message, which the kubelet does not raise."""
MANY_UNITS: Final = 20_000
"""Above this the kubelet's checkpoint and the list cost noticeable time (50 000 ids: 1.1 MB a list)."""


class Unit(msgspec.Struct, frozen=True):
    """One id of the list. ``numa`` are the NUMA nodes it is near to; empty where that does not matter."""

    id: str
    healthy: bool = True
    numa: tuple[int, ...] = ()


class HostMount(msgspec.Struct, frozen=True):
    """``source`` of the host at ``destination`` in the container."""

    source: str
    destination: str
    read_only: bool = True


class HostDevice(msgspec.Struct, frozen=True):
    """The device node ``source`` of the host at ``path`` in the container; permissions from the letters r, w, m."""

    source: str
    path: str
    permissions: str = "rw"


class Grant(msgspec.Struct, frozen=True):
    """What a container gets together with its units. ``cdi`` are fully qualified names, ``vendor/class=device``."""

    env: dict[str, str] = {}
    mounts: tuple[HostMount, ...] = ()
    devices: tuple[HostDevice, ...] = ()
    annotations: dict[str, str] = {}
    cdi: tuple[str, ...] = ()


class Resource(Protocol):
    """The owner of one resource. Its methods are called one at a time on the event loop: answer from memory."""

    @property
    def name(self) -> str:
        """The resource's name, ``domain/word``."""

    async def prefer(self, available: tuple[str, ...], required: tuple[str, ...], size: int) -> tuple[str, ...]:
        """Choose ``size`` of the available ids, among them the required ones. Advice only: the kubelet may take others.

        An empty answer means no preference.
        """

    async def allocate(self, ids: tuple[str, ...]) -> Grant:
        """Say what a container gets with these ids. Whose container it is, nobody says here; see :meth:`start`.

        Raises:
            RefusedError: it must not start; the pod fails with the sentence.
        """

    async def start(self, ids: tuple[str, ...], holder: Holder | None) -> None:
        """A container with these ids starts, for the first time or again.

        Args:
            ids: all of the container's ids of this resource.
            holder: the container, from podresources; None where the kubelet does not say.

        Raises:
            RefusedError: it must not start.
        """


def check_list(name: str, units: Sequence[Unit]) -> Any:
    """Build the message for a list, if the kubelet can take it.

    Raises:
        RefusedError: too many ids, too many bytes, an id twice, an id no kubelet accepts.
    """
    if len(units) > MAX_UNITS:
        raise RefusedError(
            Refusal(
                "ListTooLong",
                f"{name} would have {len(units)} ids, and the most a kubelet should be given is {MAX_UNITS}; "
                "let one id stand for more",
            )
        )
    seen: set[str] = set()
    for unit in units:
        if not 0 < len(unit.id) <= MAX_ID or not unit.id.isascii() or not unit.id.isprintable():
            raise RefusedError(
                Refusal("UnusableId", f"{name}: an id has 1 to {MAX_ID} plain characters, not {unit.id[:80]!r}")
            )
        if unit.id in seen:
            raise RefusedError(Refusal("DuplicateId", f"{name}: the id {unit.id} stands twice"))
        seen.add(unit.id)
    message = MESSAGES["ListAndWatchResponse"]()
    for unit in units:
        device = message.devices.add(ID=unit.id, health="Healthy" if unit.healthy else "Unhealthy")
        for node in unit.numa:
            device.topology.nodes.add(ID=node)
    size: int = message.ByteSize()
    if size > MAX_LIST_BYTES:
        raise RefusedError(
            Refusal(
                "ListTooLarge",
                f"the list of {name} would have {size} bytes for {len(units)} ids, and a kubelet stops reading at "
                f"4 MiB without saying so (the limit here is {MAX_LIST_BYTES}); use shorter ids, or let one id stand "
                "for more",
            )
        )
    return message


def grant_message(grant: Grant) -> Any:
    """The wire form of a grant."""
    return MESSAGES["ContainerAllocateResponse"](
        envs=grant.env,
        mounts=[
            MESSAGES["Mount"](container_path=mount.destination, host_path=mount.source, read_only=mount.read_only)
            for mount in grant.mounts
        ],
        devices=[
            MESSAGES["DeviceSpec"](container_path=device.path, host_path=device.source, permissions=device.permissions)
            for device in grant.devices
        ],
        annotations=grant.annotations,
        cdi_devices=[MESSAGES["CDIDevice"](name=name) for name in grant.cdi],
    )
