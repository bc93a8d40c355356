"""Cards that somebody outside HCS holds: a vendor's device plugin, or a DRA driver.

The kubelet says which containers hold which ids of whose plugin. Plugins name cards in their own ways: by UUID, by bus
id, by number, with a suffix where they share one. What is found is marked foreign and takes no work of ours. A name
that fits no card of its vendor could be any of them, so all are marked: better no work than two on one memory.
"""

import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from hcs.deviceplugin.podresources import Holding, Lingering, PodResources, PodResourcesError
from hcs.model import names
from hcs.model.devices import Device

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 5.0

VENDORS: Final = {
    "nvidia.com": "nvidia",
    "huawei.com": "ascend",
    "cambricon.com": "cambricon",
    "hygon.com": "hygon",
    "mthreads.com": "mthreads",
    "iluvatar.com": "iluvatar",
    "iluvatar.ai": "iluvatar",
    "metax-tech.com": "metax",
    "enflame.com": "enflame",
    "kunlunxin.com": "kunlunxin",
    "amd.com": "amd",
    "habana.ai": "intel",
    "intel.com": "intel",
}
"""Whose cards a resource name, or a DRA driver's name, is about: by its domain, or the end of it.

Sources: the vendors' plugins and Project-HAMi's device packages.
"""
_COUNTERS: Final = re.compile(r"mem(ory)?|core|percent|counts?", re.IGNORECASE)
"""In names of resources whose ids are amounts and not cards, which come beside one that counts cards."""
_NUMBER: Final = re.compile(r"(?:[A-Za-z][A-Za-z0-9]*[-_])?(\d{1,3})(?:[-_:]|$)|[A-Za-z]+(\d{1,3})$")
"""``3``, ``Ascend910-3``, ``gpu-3``, ``gpu-3-mig-…``, ``davinci3``."""


def foreign(holdings: Iterable[Holding], devices: Sequence[Device]) -> frozenset[str]:
    """The ids of the devices that others hold.

    Args:
        holdings: from the kubelet.
        devices: the node's.
    """
    found: set[str] = set()
    for holding in holdings:
        for resource, ids in holding.ids.items():
            domain, _, word = resource.partition("/")
            mine = _of_vendor(domain, devices)
            if domain == names.DOMAIN or _COUNTERS.search(word):
                continue
            for unit in ids:
                found |= _named(unit, mine)
        for claim in holding.claimed:
            found |= _named(claim.device, _of_vendor(claim.driver, devices))
    return frozenset(found)


def _of_vendor(domain: str, devices: Sequence[Device]) -> list[Device]:
    vendor = next((word for end, word in VENDORS.items() if domain == end or domain.endswith(f".{end}")), None)
    return [device for device in devices if device.vendor == vendor]


def _named(unit: str, devices: list[Device]) -> set[str]:
    """The devices that a name means: by id, by bus id, by number; all of them where it fits none."""
    for fits in (
        lambda device: unit == device.id or re.match(re.escape(device.id) + r"(::|[-_@])", unit),
        lambda device: device.bus_id and device.bus_id.lower() in unit.lower(),
        lambda device: (found := _NUMBER.match(unit)) is not None and int(found[1] or found[2]) == device.index,
    ):
        hits = {device.id for device in devices if fits(device)}
        if hits:
            return hits
    return {device.id for device in devices}


class ForeignWatch:
    """Asks the kubelet now and then."""

    def __init__(
        self,
        pod_resources: PodResources,
        devices: Callable[[], Sequence[Device]],
        mark: Callable[[frozenset[str]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare.

        Args:
            pod_resources: whom to ask.
            devices: the node's cards.
            mark: told which are held by others.
            clock: seconds; only differences count.
        """
        self._lingering, self._clock = Lingering(), clock
        self._pod_resources, self._devices, self._mark = pod_resources, devices, mark
        self._silent = False

    async def look(self) -> None:
        """Ask once. A kubelet that does not answer changes nothing."""
        try:
            holdings = await self._pod_resources.list()
        except PodResourcesError as error:
            if not self._silent:
                log.warning("who holds cards beside us is unknown: error=%s", error)
            self._silent = True
            return
        self._silent = False
        self._mark(self._lingering.held(foreign(holdings, self._devices()), self._clock()))

    async def watch(self, pause: Callable[[float], Awaitable[None]]) -> None:
        """Ask every :data:`LOOK_SECONDS`, until cancelled."""
        while True:
            await self.look()
            await pause(LOOK_SECONDS)
