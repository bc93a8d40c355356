"""Cambricon MLUs: CNDEV where the driver's library is present, with ``cnmon`` for what it leaves open; else ``cnmon``.

A share of a card is an sMLU instance, made here and taken back when its pod is gone. Not verified on hardware.
"""

import hashlib
import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from hcs.inject.adjustments import DeviceNode, Variable
from hcs.inject.instances import HUNDRED, Instance, units_of
from hcs.model.allocations import Grant
from hcs.model.devices import Device
from hcs.model.refusals import Refusal, RefusedError
from hcs.ura.catalogue import Catalogue
from hcs.vendors import commands
from hcs.vendors.base import Vendor, VendorError, Wanted
from hcs.vendors.libraries.cndev import CndevSource
from hcs.vendors.libraries.smlu import Smlu, SmluLibrary
from hcs.vendors.source import FilledSource, Query, Source, SourcedVendor, ToolSource

log = logging.getLogger(__name__)

_OURS: Final = "hcs-"
"""How the names of our instances begin; the pod's UID follows, and a mark for the container."""

_MEBIBYTE: Final = 1 << 20


class CambriconVendor(SourcedVendor):
    """Cambricon's cards; a share of one is an sMLU instance, where sMLU is switched on for the card."""

    def __init__(
        self, source: Source, catalogue: Catalogue, *, smlu: SmluLibrary | None, root: Path = Path("/")
    ) -> None:
        """Prepare; nothing is asked before the first probe.

        Args:
            source: who lists the cards.
            catalogue: what they can do.
            smlu: the library's instances; None where there is only the tool.
            root: the host's files.
        """
        super().__init__("cambricon", source, catalogue)
        self._smlu, self._root = smlu, root
        self._cards: dict[str, int] = {}
        self._changing = threading.Lock()

    def probe(self) -> Sequence[Device]:
        """Every device, and which of them can be split.

        Raises:
            VendorError: the source cannot answer.
        """
        devices = super().probe()
        if self._smlu is not None:
            self._cards = {device.id: device.index for device in devices if self._smlu.enabled(device.index)}
        return devices

    def divisible(self, device: Device) -> bool:
        """Whether sMLU is switched on for the card."""
        return device.id in self._cards

    def instance(self, wanted: Wanted, device: Device, grant: Grant) -> Instance | None:
        """The container's sMLU instance: made the first time, found again later.

        Raises:
            RefusedError: others have so much of the card's cores that the share does not fit.
            VendorError: the driver refuses.
        """
        if self._smlu is None or not self.divisible(device):
            return None
        name, percent = _name(wanted), units_of(device, grant, HUNDRED)
        memory = -(-grant.bytes // _MEBIBYTE) * _MEBIBYTE
        with self._changing:
            held = {one.name: one for one in self._living(device, wanted.live)}
            mine = held.pop(name, None)
            if mine is not None and (mine.percent, mine.memory) != (percent, memory):
                self._smlu.destroy(device.index, mine)
                mine = None
            if mine is None:
                left = HUNDRED - sum(one.percent for one in held.values())
                if percent > left:
                    raise RefusedError(
                        Refusal(
                            "NoComputeLeft",
                            f"the share is {percent} % of the cores of {device.model} {device.index}, and {left} % are "
                            "free: containers that stated no ACU hold as large a part of them as of the memory",
                        )
                    )
                mine = self._smlu.make(device.index, name, percent, memory)
                log.info("sMLU made: card=%d name=%s percent=%d bytes=%d", device.index, name, percent, memory)
        return self._container(device, mine)

    def keep(self, live: Callable[[], frozenset[str]]) -> None:
        """Take back the instances of pods that hold nothing any more; those that others made stay.

        Raises:
            VendorError: the driver refuses; the rest is taken back the next time.
        """
        if self._smlu is None:
            return
        failed: VendorError | None = None
        with self._changing:
            pods = live()
            for card in self._cards.values():
                for instance in self._smlu.instances(card):
                    if _pod(instance.name) not in {None, *pods}:
                        try:
                            self._smlu.destroy(card, instance)
                            log.info("sMLU taken back: card=%d name=%s", card, instance.name)
                        except VendorError as error:
                            failed = error
        if failed is not None:
            raise failed

    def _living(self, device: Device, live: Callable[[], frozenset[str]]) -> list[Smlu]:
        """The instances on a card, without those of pods that are gone, whose room may be needed now."""
        assert self._smlu is not None
        pods, found = live(), []
        for instance in self._smlu.instances(device.index):
            if _pod(instance.name) in {None, *pods}:
                found.append(instance)
            else:
                self._smlu.destroy(device.index, instance)
        return found

    def _container(self, device: Device, instance: Smlu) -> Instance:
        """The nodes that cambricon-k8s-device-plugin gives for an instance, and the variable its runtime reads."""
        card, link = f"/dev/cambricon_dev{device.index}", f"/dev/cambricon_ipcm{device.index}"
        optional = ("/dev/cambricon_ctl", "/dev/cambricon_gdr", link)
        present = [path for path in optional if (self._root / path.lstrip("/")).exists()]
        return Instance(
            "smlu",
            instance.percent,
            True,
            env=(
                Variable("CAMBRICON_VISIBLE_DEVICES", None),
                Variable("VIRTUAL_DEVICES", f"{card},{link},{instance.node}"),
            ),
            devices=tuple(DeviceNode(path, path) for path in (card, *present, instance.node)),
        )


def _name(wanted: Wanted) -> str:
    return f"{_OURS}{wanted.pod}-{hashlib.sha256(wanted.container.encode()).hexdigest()[:8]}"


def _pod(name: str) -> str | None:
    """The UID of the pod that an instance was made for; None where it is none of ours."""
    return name.removeprefix(_OURS).rpartition("-")[0] if name.startswith(_OURS) else None


def find(catalogue: Catalogue) -> Vendor | None:
    """The vendor, or None on a machine without its library and its tool."""
    library = CndevSource.find("libcndev.so", "/usr/local/neuware/lib64/libcndev.so")
    smlu = SmluLibrary(library.library) if library is not None else None
    if commands.find("cnmon") is None:
        return CambriconVendor(library, catalogue, smlu=smlu) if library is not None else None
    tool = ToolSource([Query("cnmon")], topology=Query("cnmon", ("topo", "-m")))
    source = FilledSource(library, tool) if library is not None else tool
    return CambriconVendor(source, catalogue, smlu=smlu)
