"""Emulated cards as a vendor: a directory of card files stands in for the machine's slots.

Each card plays a model of some real vendor, so that everything above (the catalogue's rates, the vendor's variables and
device nodes, fault codes) is exercised unchanged. It never claims to be real: its devices say ``emulated``, and the
driver that containers get is the emulated one.
"""

import os
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from hcs.inject.adjustments import DeviceNode, Mount
from hcs.inject.injection import NodeFiles
from hcs.inject.instances import Instance
from hcs.inject.profiles import Profiles, fill_each
from hcs.model.allocations import Grant
from hcs.model.devices import Device
from hcs.ura.catalogue import Catalogue
from hcs.vendors import emulated
from hcs.vendors.base import HealthObservation, VendorError, Wanted
from hcs.vendors.hygon import VirtualDcus
from hcs.vendors.recognition import recognise

_FAULT = struct.Struct("<i56s")
_UNSIGNED = 0xFFFFFFFF
_COMPUTE_UNITS = 64  # as the emulated HIP runtime says of a whole card


class EmulatedVendor:
    """All emulated cards of one node."""

    word = "emulated"

    def __init__(
        self,
        cards: Path,
        *,
        catalogue: Catalogue,
        profiles: Profiles,
        drivers: Callable[[str], Path | None] = lambda vendor: None,
    ) -> None:
        """Prepare; the directory is read at each probe.

        Args:
            cards: the directory of card files; files that are no cards are ignored.
            catalogue: what the cards can do.
            profiles: where each vendor's device nodes and libraries belong in a container.
            drivers: the directory of a vendor's emulated driver, None where there is none.
        """
        self._cards, self._catalogue, self._profiles, self._drivers = cards, catalogue, profiles, drivers
        self._files: dict[str, Path] = {}
        self._virtual_dcus = VirtualDcus(lambda device: _COMPUTE_UNITS)

    def probe(self) -> Sequence[Device]:
        """Every card file as a device, in order of vendor and index.

        Raises:
            VendorError: the directory cannot be read, or two files play the same card.
        """
        found: dict[str, Device] = {}
        files: dict[str, Path] = {}
        try:
            paths = sorted(path for path in self._cards.iterdir() if path.is_file())
        except OSError as error:
            raise VendorError(f"cannot list emulated cards: {error}") from error
        for path in paths:
            try:
                card = emulated.read_card(path)
            except (emulated.EmulatedCardError, OSError):
                continue
            if card.uuid in files:
                raise VendorError(
                    f"emulated cards {files[card.uuid].name} and {path.name} have the same id {card.uuid}"
                )
            files[card.uuid] = path
            place = emulated.read_place(path)
            device = recognise(
                self._catalogue,
                vendor=card.vendor,
                name=card.model,
                id=card.uuid,
                index=card.index,
                vram=card.total_bytes,
                bus_id=card.bus_id or None,
                numa=place.numa,
                emulated=True,
            )
            profile = self._profiles.effective(card.vendor)
            quota = profile.quota if profile is not None else "none"
            enforced = quota == "interceptor" or (quota == "instance" and self.divisible(device))
            found[card.uuid] = msgspec.structs.replace(device, links=place.links, whole_only=not enforced)
        self._files = files
        return sorted(found.values(), key=lambda device: (device.vendor, device.index, device.id))

    def read_health(self) -> Sequence[HealthObservation]:
        """The fault injected into each card; cards whose file is gone are left out. Reads 60 bytes a card."""
        seen = []
        for device, path in self._files.items():
            try:
                with open(path, "rb", buffering=0) as file:
                    data = os.pread(file.fileno(), _FAULT.size, emulated.FAULT_CODE_OFFSET)
            except OSError:
                continue
            if len(data) == _FAULT.size:
                code, name = _FAULT.unpack(data)
                text = name.split(b"\0", 1)[0].decode("utf-8", "replace")
                seen.append(HealthObservation(device, code & _UNSIGNED, text))
        return seen

    def node_files(self, device: Device) -> NodeFiles:
        """The card file in the place of the device node, and the emulated driver in the place of the vendor's."""
        path = self._files.get(device.id)
        if path is None:
            return NodeFiles()
        profile = self._profiles.get(device.vendor)
        driver = self._drivers(device.vendor)
        libraries = profile.libraries[:1] if profile is not None and driver is not None else ()
        patterns = [host.path for host in (profile.devices if profile else ()) if "{index}" in host.path]
        pattern = next(iter(patterns), f"/dev/emulated-{device.vendor}{{index}}")
        return NodeFiles(
            devices=(DeviceNode(fill_each(pattern, (device,))[0], str(path)),),
            mounts=tuple(Mount(str(driver), library, ("rbind", "ro", "nosuid", "nodev")) for library in libraries),
        )

    def forget(self, device: str) -> None:
        """Nothing: a fault lasts as long as the card file says it."""

    def driver_versions(self) -> dict[str, str]:
        """None: there is no driver."""
        return {}

    def divisible(self, device: Device) -> bool:
        """Whether the vendor's emulated driver keeps to parts of a card: Hygon's does, by a virtual DCU's record."""
        return device.vendor == "hygon" and self._virtual_dcus.divisible(device)

    def instance(self, wanted: Wanted, device: Device, grant: Grant) -> Instance | None:
        """The record of a virtual DCU, which the emulated driver reads as Hygon's runtime would.

        Raises:
            RefusedError: the card has no part left.
            OSError: it cannot be written.
        """
        return self._virtual_dcus.instance(wanted, device, grant) if self.divisible(device) else None

    def keep(self, live: Callable[[], frozenset[str]]) -> None:
        """Nothing to take back: records go with the containers' folders."""
