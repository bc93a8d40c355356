"""What is known of the machine a guest runs on."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hcs.model.refusals import Refusal, RefusedError
from hcs.rtos.cpusets import NONE, CpuSet, parse_cpuset
from hcs.rtos.resources import malformed

XEN: Final = "xen"
OPENAMP: Final = "openamp"
_KEYS: Final = ("pcpus", "total_memory_mb", "pedestal", "dom0_cpus")


class Host(msgspec.Struct, frozen=True):
    """``pcpus`` is the number of physical CPUs and ``total_memory_mb`` the memory in MiB; 0 where nobody knows.

    ``pedestal`` is what guests run on: ``xen``, ``jailhouse``, ``openamp`` or ``hetero``. ``dom0_cpus`` are the pCPUs
    of the control domain, which guests lose where ``exclusive_dom0_cpu`` is set.
    """

    pcpus: int = 0
    total_memory_mb: int = 0
    pedestal: str = XEN
    dom0_cpus: CpuSet = NONE

    @property
    def cpus(self) -> CpuSet:
        """The pCPUs there are; empty when their number is not known."""
        return CpuSet(((0, self.pcpus - 1),)) if self.pcpus else NONE


def read_host(raw: Mapping[str, Any]) -> Host:
    """Read the host's facts from plain data; a fact that is absent, null or 0 is not known.

    Raises:
        RefusedError: ``UnknownKey`` or ``MalformedValue``.
    """
    for key in raw:
        if key not in _KEYS:
            raise RefusedError(Refusal("UnknownKey", f"host.{key[:60]}: known keys are {', '.join(_KEYS)}"))
    pedestal, dom0 = raw.get("pedestal"), raw.get("dom0_cpus")
    if pedestal is not None and (not isinstance(pedestal, str) or not pedestal):
        raise RefusedError(malformed("host.pedestal", pedestal, "a word like xen"))
    if dom0 is not None and not isinstance(dom0, str):
        raise RefusedError(malformed("host.dom0_cpus", dom0, "a list of CPUs like 0-1"))
    return Host(
        pcpus=_count(raw, "pcpus"),
        total_memory_mb=_count(raw, "total_memory_mb"),
        pedestal=pedestal.lower() if pedestal else XEN,
        dom0_cpus=parse_cpuset(dom0 or ""),
    )


def _count(raw: Mapping[str, Any], key: str) -> int:
    value = raw.get(key)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or value != value // 1:
        raise RefusedError(malformed(f"host.{key}", value, "a whole number, 0 or more"))
    return int(value)
