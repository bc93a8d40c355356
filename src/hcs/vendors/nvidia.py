"""NVIDIA cards through NVML, where the driver's library is present.

First version: identity, memory, PCI place and critical Xid events. Not verified on hardware: written from the library's
documentation. A critical Xid is an event, not a state, so the worst one of each card is remembered until the agent
starts again, which it does after a card was reset.
"""

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from hcs.health.faults import classify
from hcs.inject.injection import NodeFiles
from hcs.model.devices import Device, Verdict
from hcs.ura.catalogue import Catalogue
from hcs.vendors.base import HealthObservation, VendorError
from hcs.vendors.recognition import recognise

try:
    import pynvml
except ImportError:  # the base install has no vendor libraries
    pynvml = None

_SEVERITY: Final[dict[Verdict, int]] = {"Healthy": 0, "Unknown": 1, "SubHealthy": 2, "Failed": 3}
_NO_WAIT: Final = 1
"""Milliseconds to wait for an event; NVML takes 0 for a long time in some releases."""


class NvidiaVendor:
    """All NVIDIA cards of the node."""

    word = "nvidia"

    def __init__(self, catalogue: Catalogue) -> None:
        """Prepare; the library is loaded by :func:`find`."""
        self._catalogue = catalogue
        self._events: Any = None
        self._worst: dict[str, HealthObservation] = {}
        self._handles: dict[str, Any] = {}
        self._lock = threading.Lock()

    @classmethod
    def find(cls, catalogue: Catalogue) -> "NvidiaVendor | None":
        """The vendor, or None on a machine without NVML or without its driver."""
        if pynvml is None:
            return None
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:
            return None
        return cls(catalogue)

    def probe(self) -> Sequence[Device]:
        """Every card NVML lists.

        Raises:
            VendorError: NVML cannot answer.
        """
        with self._lock, _as_vendor_error():
            handles = {}
            devices = []
            for position in range(pynvml.nvmlDeviceGetCount()):
                handle = pynvml.nvmlDeviceGetHandleByIndex(position)
                device = self._describe(handle, position)
                handles[device.id] = handle
                devices.append(device)
            if handles.keys() != self._handles.keys():
                self._handles = handles
                self._listen()
            return devices

    def read_health(self) -> Sequence[HealthObservation]:
        """The worst critical Xid of each card so far; cards that no longer answer are left out."""
        with self._lock, _as_vendor_error():
            self._drain()
            return [self.worst(uuid) for uuid, handle in self._handles.items() if self._answers(handle)]

    def node_files(self, device: Device) -> NodeFiles:
        """Nothing beyond the profile: NVIDIA's nodes are numbered like the cards."""
        return NodeFiles()

    def driver_versions(self) -> dict[str, str]:
        """The driver's version."""
        with self._lock, _as_vendor_error():
            return {"nvidia": _text(pynvml.nvmlSystemGetDriverVersion())}

    def _describe(self, handle: Any, position: int) -> Device:
        place = pynvml.nvmlDeviceGetPciInfo(handle)
        return recognise(
            self._catalogue,
            vendor="nvidia",
            name=_text(pynvml.nvmlDeviceGetName(handle)),
            id=_text(pynvml.nvmlDeviceGetUUID(handle)),
            # The device node carries the minor number, which may differ from the library's position.
            index=_optional(pynvml.nvmlDeviceGetMinorNumber, handle, position),
            vram=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
            bus_id=_text(place.busId),
            numa=_optional(pynvml.nvmlDeviceGetNumaNodeId, handle, None),
        )

    def _listen(self) -> None:
        if self._events is not None:
            pynvml.nvmlEventSetFree(self._events)
        self._events = pynvml.nvmlEventSetCreate()
        for handle in self._handles.values():
            with contextlib.suppress(pynvml.NVMLError_NotSupported):
                pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, self._events)

    def _drain(self) -> None:
        while self._events is not None:
            try:
                event = pynvml.nvmlEventSetWait_v2(self._events, _NO_WAIT)
            except (pynvml.NVMLError_Timeout, pynvml.NVMLError_GpuIsLost):  # a lost card is noticed by _answers
                return
            self.remember(_text(pynvml.nvmlDeviceGetUUID(event.device)), int(event.eventData))

    def remember(self, uuid: str, code: int) -> None:
        """Note a critical Xid of a card; a milder one than is known changes nothing."""
        before = self.worst(uuid)
        if _SEVERITY[classify("nvidia", code).verdict] > _SEVERITY[classify("nvidia", before.code).verdict]:
            self._worst[uuid] = msgspec.structs.replace(before, code=code, name=f"Xid {code}")

    def worst(self, uuid: str) -> HealthObservation:
        """The worst Xid of a card so far."""
        return self._worst.get(uuid, HealthObservation(uuid))

    def _answers(self, handle: Any) -> bool:
        try:
            pynvml.nvmlDeviceGetMemoryInfo(handle)
        except (pynvml.NVMLError_GpuIsLost, pynvml.NVMLError_NotFound):
            return False
        return True


def _optional(question: Callable[[Any], Any], handle: Any, default: Any) -> Any:
    try:
        return question(handle)
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
        return default


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


@contextlib.contextmanager
def _as_vendor_error() -> Any:
    try:
        yield
    except pynvml.NVMLError as error:
        raise VendorError(f"NVML: {error}") from error
