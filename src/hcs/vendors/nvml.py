"""A few questions to NVML that need no fleet: which cards there are, and what single processes hold on one."""

from collections.abc import Iterable
from typing import Any

try:
    import pynvml
except ImportError:  # the base install has no vendor libraries
    pynvml = None


def list_cards() -> list[tuple[str, str]] | None:
    """UUID and PCI address of each card; None where there is no NVML to ask."""
    if not _ready():
        return None
    found = []
    for position in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(position)
        found.append((_text(pynvml.nvmlDeviceGetUUID(handle)), _text(pynvml.nvmlDeviceGetPciInfo(handle).busId)))
    return found


def used_by(uuid: str, pids: Iterable[int]) -> int | None:
    """Bytes that these processes hold on the card by the driver's account; None where it cannot say."""
    wanted = set(pids)
    if not _ready():
        return None
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except pynvml.NVMLError:
        return None
    held = [process.usedGpuMemory for process in processes if process.pid in wanted]
    return None if None in held or not held else sum(held)


def describe(uuid: str) -> tuple[str, int, str] | None:
    """A card's model, its bytes, and the driver's version; None where they cannot be asked."""
    if not _ready():
        return None
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        total = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
        return _text(pynvml.nvmlDeviceGetName(handle)), total, _text(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        return None


def used_on(uuid: str) -> int | None:
    """Bytes in use on the card by anybody; None where the driver does not tell."""
    if not _ready():
        return None
    try:
        return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByUUID(uuid)).used)
    except pynvml.NVMLError:
        return None


def _ready() -> bool:
    if pynvml is None:
        return False
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return False
    return True


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
