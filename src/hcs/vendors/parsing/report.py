"""What a tool said, in one shape for all vendors.

``devices`` are dictionaries with the keys of :data:`FIELDS`, null where the tool gave nothing, followed by what else it
said under keys of its own, the unit at the end of the name. Amounts keep the tool's precision; only units change.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

FIELDS: Final = (
    "index",
    "vendor",
    "name",
    "uuid",
    "bus_id",
    "memory_total_mib",
    "memory_used_mib",
    "utilization_pct",
    "temperature_c",
    "power_w",
    "power_cap_w",
    "health",
    "pcie_gen_current",
    "pcie_gen_max",
    "pcie_width_current",
    "pcie_width_max",
    "pcie_replay",
    "ecc_mode",
    "ecc_errors",
    "compute_mode",
    "npu_id",
    "chip_id",
)
"""Keys every device has."""

Reading = dict[str, Any]
"""One device as a tool describes it."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All a tool said.

    ``version`` is the tool's own, ``driver`` the driver's. ``gpus`` names the devices in order where the output is a
    list or a topology; ``links`` and ``numa`` are a topology's; ``facts`` is whatever else is true of the machine.
    ``errors`` are the tool's own complaints.
    """

    tool: str
    version: str | None = None
    driver: str | None = None
    devices: tuple[Reading, ...] = ()
    gpus: tuple[str, ...] | None = None
    links: Mapping[str, str] | None = None
    numa: Mapping[str, Mapping[str, Any]] | None = None
    facts: Mapping[str, Any] = {}
    events: tuple[Mapping[str, Any], ...] = ()
    errors: tuple[str, ...] = ()

    def to_object(self) -> dict[str, Any]:
        """The report as ``hcs probe parse --json`` prints it."""
        head: dict[str, Any] = {"tool": self.tool, "version": self.version, "driver": self.driver}
        body: dict[str, Any] = {
            "devices": [dict(device) for device in self.devices],
            "gpus": None if self.gpus is None else list(self.gpus),
            "links": None if self.links is None else dict(self.links),
            "numa": None if self.numa is None else {key: dict(value) for key, value in self.numa.items()},
        }
        if self.events:
            body["events"] = [dict(event) for event in self.events]
        return {**head, **body, **self.facts, "errors": list(self.errors)}

    @property
    def empty(self) -> bool:
        """Whether nothing at all was recognised."""
        return not (self.devices or self.gpus or self.links or self.events or self.errors or self.driver)


def reading(vendor: str, values: Mapping[str, Any]) -> Reading:
    """A device with every field, null where ``values`` has none, and the rest of ``values`` behind them.

    Facts that are null are left out of the rest.
    """
    fields: Reading = {field: values.get(field) for field in FIELDS}
    fields["vendor"] = vendor
    rest = {key: value for key, value in values.items() if key not in fields and value is not None}
    return {**fields, **rest}


def agreed(values: Iterable[str | None]) -> str | None:
    """The one value all agree on; null where they differ or none is known."""
    known = {value for value in values if value is not None}
    return known.pop() if len(known) == 1 else None
