"""Hygon DCUs: the ROCm SMI library that its driver installs, else ``hy-smi``. Not verified on hardware.

A share of a card is a virtual DCU (:mod:`hcs.inject.vdcu`): a record, mounted read-only, that Hygon's runtime keeps to.
Nothing is made in the driver beforehand and nothing is left behind: the record goes with the container's files.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from hcs.inject.adjustments import Mount
from hcs.inject.instances import HUNDRED, Instance, units_of
from hcs.inject.vdcu import FILE, FOLDER, MOST_INSTANCES, MOST_UNITS, VdcuRecord, render_vdcu
from hcs.model.allocations import Grant
from hcs.model.devices import Device
from hcs.ura.catalogue import Catalogue
from hcs.vendors import commands, kfd, pci
from hcs.vendors.base import Vendor, Wanted
from hcs.vendors.libraries.rocm import RocmSource
from hcs.vendors.partitions import Partitions, write_once
from hcs.vendors.source import Query, Source, SourcedVendor, ToolSource

_SHOW = ("--showproductname", "--showuniqueid", "--showbus", "--showmeminfo", "vram", "--showuse", "--showtemp")
_MORE = ("--showpower", "--showmaxpower", "--showserial", "--json")
_LIBRARY = "/opt/hyhal/lib/librocm_smi64.so"

DRIVER_FOLDERS: Final = (("/opt/hyhal", "/opt/hyhal"), ("/opt/dtk", "/opt/hygondriver"))
"""What must be on the host, and where it belongs in a container with a virtual DCU: the runtime that keeps to the
record."""

_READ_ONLY: Final = ("rbind", "ro", "nosuid", "nodev", "rprivate")


class VirtualDcus:
    """Virtual DCUs, as records in the containers' folders."""

    def __init__(self, units: Callable[[Device], int]) -> None:
        """Prepare.

        Args:
            units: how many compute units a card has; 0 where that is not known.
        """
        self._units, self._partitions = units, Partitions()

    def divisible(self, device: Device) -> bool:
        """Whether the card's compute units and its place on the bus are known, which the record names."""
        return 0 < self._units(device) <= MOST_UNITS and pci.normal(device.bus_id or "") is not None

    def record(self, wanted: Wanted, device: Device, grant: Grant) -> tuple[VdcuRecord, Path]:
        """A container's record, and the folder in which it lies, on disk when this returns.

        Raises:
            RefusedError: the card has no part left.
            OSError: it cannot be written.
        """
        units = self._units(device)
        part = self._partitions.part(wanted, device, units, units_of(device, grant, units), MOST_INSTANCES)
        bus_id = pci.normal(device.bus_id or "") or ""
        record = VdcuRecord(bus_id, part.mask, max(1, grant.bytes >> 20), device.index, part.slot)
        text = render_vdcu(record).encode()
        path = wanted.folder / "vdcu" / FILE
        if not path.exists() or path.read_bytes() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_once(path, text)
        return record, path.parent

    def instance(self, wanted: Wanted, device: Device, grant: Grant) -> Instance:
        """What a container needs beside the card's own files: its record.

        Raises:
            RefusedError: the card has no part left.
            OSError: it cannot be written.
        """
        record, folder = self.record(wanted, device, grant)
        percent = record.mask.bit_count() * HUNDRED // self._units(device)
        return Instance("vdcu", percent, True, mounts=(Mount(str(folder), FOLDER, _READ_ONLY),))


class HygonVendor(SourcedVendor):
    """Hygon's cards; a share of one is a virtual DCU."""

    def __init__(
        self, source: Source, catalogue: Catalogue, *, sysfs: Path = pci.SYSFS, root: Path = Path("/")
    ) -> None:
        """Prepare; nothing is asked before the first probe.

        Args:
            source: who lists the cards.
            catalogue: what they can do.
            sysfs: where the kernel shows its devices.
            root: the host's files.
        """
        super().__init__("hygon", source, catalogue)
        self._root = root
        self._virtual = VirtualDcus(lambda device: kfd.compute_units(device.bus_id or "", sysfs))

    def divisible(self, device: Device) -> bool:
        """Whether the card can be split, and the runtime that would hold the parts is on the host."""
        runtime = all((self._root / host.lstrip("/")).is_dir() for host, _ in DRIVER_FOLDERS)
        return runtime and self._virtual.divisible(device)

    def instance(self, wanted: Wanted, device: Device, grant: Grant) -> Instance | None:
        """The record of the container's virtual DCU, and the runtime that keeps to it."""
        if not self.divisible(device):
            return None
        made = self._virtual.instance(wanted, device, grant)
        runtime = tuple(Mount(host, container, _READ_ONLY) for host, container in DRIVER_FOLDERS)
        return Instance(made.kind, made.percent, made.holds_memory, mounts=(*made.mounts, *runtime))

    def keep(self, live: Callable[[], frozenset[str]]) -> None:
        """Nothing to take back: the records go with the containers' folders."""


def find(catalogue: Catalogue) -> Vendor | None:
    """The vendor, or None on a machine without its library and its tool."""
    library = RocmSource.find("hygon", _LIBRARY)
    if library is not None:
        return HygonVendor(library, catalogue)
    if commands.find("hy-smi") is None:
        return None
    query = Query("hy-smi", (*_SHOW, *_MORE))
    return HygonVendor(ToolSource([query], topology=Query("hy-smi", ("--showtopo",))), catalogue)
