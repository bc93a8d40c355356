"""NVIDIA cards through NVML, where the driver's library is present, else through ``nvidia-smi``.

Not verified on hardware: written from the library's documentation. A critical Xid is an event, not a state, so the
worst one of each card is remembered until the agent starts again, which it does after a card was reset. Events and
presence are read at every call; the figures, which cost more, every :data:`FIGURES_SECONDS`.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from hcs.health.faults import SEVERITY, Fault, classify
from hcs.health.signals import assess, counted
from hcs.inject.injection import NodeFiles
from hcs.model.devices import Device, Link
from hcs.ura.catalogue import Catalogue
from hcs.vendors import commands, pci
from hcs.vendors.base import HealthObservation, Vendor, VendorError
from hcs.vendors.recognition import recognise
from hcs.vendors.source import Query, SourcedVendor, ToolSource

try:
    import pynvml
except ImportError:  # the base install has no vendor libraries
    pynvml = None

FIGURES_SECONDS: Final = 10.0
_REASONS: Final = {
    0x1: "idle",
    0x2: "application_clocks",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "hw_power_brake",
    0x100: "display_clocks",
}
"""NVML's clock event bits."""
_ANCESTORS: Final = {0: "INTERNAL", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_P2P_READ: Final = 0
"""NVML_P2P_CAPS_INDEX_READ, which the binding has as a tuple."""
_NO_P2P: Final = {1: "CNS", 2: "GNS", 3: "TNS", 4: "DR", 5: "NS"}
"""Why two cards cannot reach each other's memory, in the words of ``nvidia-smi topo -p2p``."""
_MOST_NVLINKS: Final = 18
_NO_WAIT: Final = 1
"""Milliseconds to wait for an event; NVML takes 0 for a long time in some releases."""


def find(catalogue: Catalogue) -> Vendor | None:
    """The vendor, or None on a machine without NVML and without the tool."""
    library = NvidiaVendor.find(catalogue)
    if library is not None or commands.find("nvidia-smi") is None:
        return library
    source = ToolSource([Query("nvidia-smi", ("-q", "-x"))], topology=Query("nvidia-smi", ("topo", "-m")))
    return SourcedVendor("nvidia", source, catalogue)


class NvidiaVendor:
    """All NVIDIA cards of the node."""

    word = "nvidia"

    def __init__(self, catalogue: Catalogue, clock: Callable[[], float] = time.monotonic) -> None:
        """Prepare; the library is loaded by :func:`find`."""
        self._catalogue, self._clock = catalogue, clock
        self._figures: dict[str, dict[str, Any]] = {}
        self._faults: dict[str, tuple[Fault, ...]] = {}
        self._read_at: float | None = None
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
            links = self._links(handles)
            return pci.with_places([msgspec.structs.replace(d, links=links[d.id]) for d in devices])

    def read_health(self) -> Sequence[HealthObservation]:
        """The worst critical Xid of each card so far; cards that no longer answer are left out."""
        with self._lock, _as_vendor_error():
            self._drain()
            answering = {uuid: handle for uuid, handle in self._handles.items() if self._answers(handle)}
            now = self._clock()
            if self._read_at is None or now - self._read_at >= FIGURES_SECONDS:
                self._read_at = now
                self._assess(answering)
            return [
                msgspec.structs.replace(
                    self.worst(uuid), faults=self._faults.get(uuid, ()), figures=self._figures.get(uuid, {})
                )
                for uuid in answering
            ]

    def node_files(self, device: Device) -> NodeFiles:
        """Nothing beyond the profile: NVIDIA's nodes are numbered like the cards."""
        return NodeFiles()

    def forget(self, device: str) -> None:
        """Forget the card's Xids; without the lock, which a hanging call may hold."""
        self._worst.pop(device, None)

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
        )

    def _assess(self, handles: dict[str, Any]) -> None:
        for uuid, handle in handles.items():
            before = self._figures.get(uuid)
            self._figures[uuid] = counted(figures(handle), before)
            self._faults[uuid] = assess("nvidia", self._figures[uuid], before)

    def _links(self, handles: dict[str, Any]) -> dict[str, tuple[Link, ...]]:
        """NVLinks counted towards each peer as ``NV4``; else why there is no direct access, or the common ancestor."""
        found: dict[str, list[Link]] = {uuid: [] for uuid in handles}
        places = {_bus(handle): uuid for uuid, handle in handles.items()}
        for uuid, handle in handles.items():
            direct, switched = _nvlinks(handle, places)
            for other, peer in handles.items():
                if other == uuid:
                    continue
                count = direct.get(other, 0) or switched
                kind = f"NV{count}" if count else _way(handle, peer)
                if kind:
                    found[uuid].append(Link(other, kind))
        return {uuid: tuple(links) for uuid, links in found.items()}

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
        if SEVERITY[classify("nvidia", code).verdict] > SEVERITY[classify("nvidia", before.code).verdict]:
            self._worst[uuid] = msgspec.structs.replace(before, code=code, name=f"Xid {code}")

    def worst(self, uuid: str) -> HealthObservation:
        """The worst Xid of a card so far."""
        return self._worst.get(uuid, HealthObservation(uuid, told=True))

    def _answers(self, handle: Any) -> bool:
        try:
            pynvml.nvmlDeviceGetMemoryInfo(handle)
        except (pynvml.NVMLError_GpuIsLost, pynvml.NVMLError_NotFound):
            return False
        return True


def figures(handle: Any) -> dict[str, Any]:
    """A card's figures, with the keys of ``docs/probes.md``; what the card cannot say is None."""
    remapped = _quiet(pynvml.nvmlDeviceGetRemappedRows, handle)
    _, _, pending, failed = remapped if remapped is not None and len(remapped) == 4 else (None, None, None, None)
    rates = _quiet(pynvml.nvmlDeviceGetUtilizationRates, handle)
    memory = _quiet(pynvml.nvmlDeviceGetMemoryInfo, handle)
    reasons = _quiet(pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
    if reasons is None:  # drivers before 535
        reasons = _quiet(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
    power, cap = _quiet(pynvml.nvmlDeviceGetPowerUsage, handle), _quiet(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    return {
        "utilization_pct": rates.gpu if rates is not None else None,
        "memory_used_mib": memory.used >> 20 if memory is not None else None,
        "memory_total_mib": memory.total >> 20 if memory is not None else None,
        "temperature_c": _quiet(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
        "power_w": power / 1000 if power is not None else None,
        "power_cap_w": cap / 1000 if cap else None,
        "throttle_reasons": None if reasons is None else [name for bit, name in _REASONS.items() if reasons & bit],
        "ecc_errors": _quiet(
            pynvml.nvmlDeviceGetTotalEccErrors,
            handle,
            pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            pynvml.NVML_VOLATILE_ECC,
        ),
        "row_remap_pending": bool(pending) if pending is not None else None,
        "row_remap_failed": bool(failed) if failed is not None else None,
        "pcie_gen_current": _quiet(pynvml.nvmlDeviceGetCurrPcieLinkGeneration, handle),
        "pcie_gen_max": _quiet(pynvml.nvmlDeviceGetMaxPcieLinkGeneration, handle),
        "pcie_width_current": _quiet(pynvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
        "pcie_width_max": _quiet(pynvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
        "pcie_replay": _quiet(pynvml.nvmlDeviceGetPcieReplayCounter, handle),
        "pcie_tx_kbps": _quiet(pynvml.nvmlDeviceGetPcieThroughput, handle, pynvml.NVML_PCIE_UTIL_TX_BYTES),
        "pcie_rx_kbps": _quiet(pynvml.nvmlDeviceGetPcieThroughput, handle, pynvml.NVML_PCIE_UTIL_RX_BYTES),
    }


def _nvlinks(handle: Any, places: dict[str, str]) -> tuple[dict[str, int], int]:
    """Active NVLinks to each peer, and those to something that is no peer: a switch, which reaches them all."""
    direct: dict[str, int] = {}
    switched = 0
    for link in range(_MOST_NVLINKS):
        if not _quiet(pynvml.nvmlDeviceGetNvLinkState, handle, link):
            continue
        remote = _quiet(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
        peer = places.get(_text(remote.busId).lower()) if remote is not None else None
        if peer is None:
            switched += 1
        else:
            direct[peer] = direct.get(peer, 0) + 1
    return direct, switched


def _way(handle: Any, peer: Any) -> str:
    status = _quiet(pynvml.nvmlDeviceGetP2PStatus, handle, peer, _P2P_READ)
    if status in _NO_P2P:
        return _NO_P2P[status]
    level = _quiet(pynvml.nvmlDeviceGetTopologyCommonAncestor, handle, peer)
    return _ANCESTORS.get(level, "") if isinstance(level, int) else ""


def _bus(handle: Any) -> str:
    return _text(pynvml.nvmlDeviceGetPciInfo(handle).busId).lower()


def _quiet(question: Callable[..., Any], *arguments: Any) -> Any:
    """An answer, or None where the card has none; a lost card is noticed elsewhere."""
    try:
        return question(*arguments)
    except pynvml.NVMLError:
        return None


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
