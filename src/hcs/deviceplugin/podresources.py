"""Who holds what on this node, as the kubelet tells it over its podresources socket (API v1).

It is the only place where a device plugin learns whose container it serves, and the only way to learn that ids came
free: the device-plugin protocol has no call for either. It also shows what other plugins and DRA drivers gave away.
The messages carry no pod UID, only namespace and name.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import grpc
import msgspec

from hcs.deviceplugin.messages import POD_MESSAGES, POD_RESOURCES

SOCKET: Final = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
SECONDS: Final = 2.0
"""How long the kubelet may take to answer."""
ABSENT_SECONDS: Final = 30.0
"""How long something must not be listed before it counts as free."""
_LARGE: Final = (("grpc.max_receive_message_length", 64 << 20),)  # as large as the kubelet may send; 4 MiB is too tight
_HOST: Final = ("grpc.default_authority", "localhost")  # a Unix path is no host name for Go's HTTP/2 server


class PodResourcesError(RuntimeError):
    """The kubelet cannot say who holds what; the message shows why."""


class Holder(msgspec.Struct, frozen=True, order=True):
    """One container of one pod."""

    namespace: str
    pod: str
    container: str


class Claimed(msgspec.Struct, frozen=True):
    """A device that a DRA driver prepared for a container."""

    driver: str
    pool: str
    device: str
    cdi: tuple[str, ...] = ()


class Holding(msgspec.Struct, frozen=True):
    """What one container holds: ids by resource name, and devices of claims."""

    holder: Holder
    ids: Mapping[str, frozenset[str]] = {}
    claimed: tuple[Claimed, ...] = ()


class PodResources:
    """The kubelet's podresources socket. Each question is a connection of its own: it survives kubelet restarts."""

    def __init__(self, socket: Path = SOCKET) -> None:
        """Prepare; nothing is asked.

        Args:
            socket: where the kubelet listens.
        """
        self._socket = socket

    async def list(self) -> tuple[Holding, ...]:
        """Everything that containers of this node hold, without those that hold nothing.

        Raises:
            PodResourcesError: the kubelet does not answer.
        """
        async with grpc.aio.insecure_channel(f"unix://{self._socket}", options=[*_LARGE, _HOST]) as channel:
            ask = channel.unary_unary(
                f"/{POD_RESOURCES}/List",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=POD_MESSAGES["ListPodResourcesResponse"].FromString,
            )
            try:
                answer = await ask(POD_MESSAGES["ListPodResourcesRequest"](), timeout=SECONDS)
            except grpc.aio.AioRpcError as error:
                raise PodResourcesError(
                    f"{self._socket}: {error.code().name}: {error.details()}; is the kubelet's directory mounted?"
                ) from error
        return tuple(holding for pod in answer.pod_resources for holding in _holdings(pod))


def holder_of(holdings: Iterable[Holding], resource: str, ids: Iterable[str]) -> Holder | None:
    """The container that holds exactly these ids of a resource; None where none, or more than one, does."""
    wanted = frozenset(ids)
    found = [holding.holder for holding in holdings if holding.ids.get(resource) == wanted]
    return found[0] if len(found) == 1 else None


def held(holdings: Iterable[Holding], resource: str) -> dict[str, Holder]:
    """The ids of a resource that containers hold, with their holders. What was held and is no longer has come free."""
    return {unit: holding.holder for holding in holdings for unit in holding.ids.get(resource, ())}


class Lingering:
    """What was held counts as held until it has been absent for a while.

    A kubelet that has just started lists no pods yet, though their containers run (1.36, tried): whoever believed the
    first list would give everything away a second time.
    """

    def __init__(self, seconds: float = ABSENT_SECONDS) -> None:
        """Nothing is held yet.

        Args:
            seconds: how long something must be absent.
        """
        self._seconds = seconds
        self._seen: dict[str, float] = {}

    def held(self, listed: Iterable[str], now: float) -> frozenset[str]:
        """What counts as held.

        Args:
            listed: what the kubelet lists now.
            now: the time in seconds; only differences count.
        """
        self._seen = {name: since for name, since in self._seen.items() if now - since < self._seconds}
        self._seen |= dict.fromkeys(listed, now)
        return frozenset(self._seen)


def _holdings(pod: Any) -> Iterable[Holding]:
    for container in pod.containers:
        ids: dict[str, set[str]] = {}
        for devices in container.devices:  # one entry for each NUMA node, so one resource may come several times
            ids.setdefault(devices.resource_name, set()).update(devices.device_ids)
        claimed = tuple(
            Claimed(part.driver_name, part.pool_name, part.device_name, tuple(d.name for d in part.cdi_devices))
            for claim in container.dynamic_resources
            for part in claim.claim_resources
        )
        if ids or claimed:
            yield Holding(
                Holder(pod.namespace, pod.name, container.name),
                {name: frozenset(found) for name, found in ids.items()},
                claimed,
            )
