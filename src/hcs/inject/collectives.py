"""Which variables of the collective communication libraries follow from where a pod's cards are.

The libraries find most things out by themselves, and a flag too many costs bandwidth. So only that is written which the
library cannot see from inside a container, or would find out by hanging: ways that are known not to carry peer traffic,
and which RDMA network all members of a gang share. Unknown facts write nothing. What a site's profile or the user's own
environment says about a variable wins.

Sources: NCCL user guide ("Environment Variables"), RCCL usage tips, CANN manual (HCCL_INTRA_*), CNCL user guide as
cited in third-party guides, MetaX MCCL guide. Nothing here was run on the vendors' devices.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Final

import msgspec

from hcs.model.allocations import Peers
from hcs.model.devices import Device, Nic
from hcs.ura.links import UNKNOWN, LinkFacts, read_word

TOGETHER: Final = (frozenset({"HCCL_INTRA_PCIE_ENABLE", "HCCL_INTRA_ROCE_ENABLE"}),)
"""Variables of which one without the other is not supported: both are ours, or none is."""

_BOX: Final = 8  # cards in each half of an Atlas 200T A2 Box16


class Wires(msgspec.Struct, frozen=True):
    """What is known about a container's place: its devices, its pod's share of a gang, the adapters of the node.

    ``shared``: its cards are shared with other containers.
    """

    devices: tuple[Device, ...]
    nics: tuple[Nic, ...] = ()
    peers: Peers | None = None
    shared: bool = False

    def ways(self) -> list[LinkFacts]:
        """What is known about the way between each pair of the devices."""
        words = {(device.id, link.peer): link.kind for device in self.devices for link in device.links}
        found = []
        for one, other in combinations(self.devices, 2):
            ends = [read_word(words[pair]) for pair in ((one.id, other.id), (other.id, one.id)) if pair in words]
            found.append(min(ends, key=lambda facts: facts.p2p is not False) if ends else UNKNOWN)
        return found

    @property
    def remote(self) -> bool:
        """Whether some members of the gang are on other nodes."""
        return self.peers is not None and self.peers.nodes > 1

    @property
    def shared_network(self) -> tuple[str, ...]:
        """The adapters in the network that all members share; empty where there is none."""
        if self.peers is None or not self.peers.fabric:
            return ()
        return tuple(sorted(nic.name for nic in self.nics if nic.fabric == self.peers.fabric))

    @property
    def no_network(self) -> bool:
        """Whether it is *known* that the members share no RDMA network: the node's adapters are known, none will do."""
        return self.remote and bool(self.nics) and not self.shared_network


def collective_variables(vendor: str, wires: Wires) -> dict[str, str]:
    """The variables for one container on this vendor's cards; empty where nothing needs to be said.

    Args:
        vendor: the vendor word; never the library's acronym, which several vendors share.
        wires: where its cards are.
    """
    if len(wires.devices) < 2 and wires.peers is None:
        return {}
    rule = _RULES.get(vendor)
    return dict(sorted(rule(wires).items())) if rule is not None else {}


def undisputed(derived: Mapping[str, str], stated: Mapping[str, str] | Sequence[str]) -> dict[str, str]:
    """The derived variables that nobody else has stated, pairs taken together."""
    taken = set(stated)
    for pair in TOGETHER:
        if pair & taken:
            taken |= pair
    return {name: value for name, value in derived.items() if name not in taken}


def _nccl(wires: Wires) -> dict[str, str]:
    """NCCL and the libraries that kept its names."""
    found = {}
    broken = any(facts.p2p is False for facts in wires.ways())
    beside = wires.peers is not None and wires.peers.here > 1 and len(wires.devices) == 1
    if broken or wires.shared or beside:
        # Broken ways; two ranks on one card; ranks on one node in containers that share no process namespace.
        found["NCCL_P2P_DISABLE"] = "1"
    if wires.remote and wires.shared_network:
        found["NCCL_IB_HCA"] = "=" + ",".join(wires.shared_network)
    elif wires.no_network:
        found["NCCL_IB_DISABLE"] = "1"
    return found


def _rccl(wires: Wires) -> dict[str, str]:
    found = _nccl(wires)
    if any(facts.family in ("pcie", "host") for facts in wires.ways()):
        found["HSA_FORCE_FINE_GRAIN_PCIE"] = "1"  # peer access over PCIe (RCCL usage tips)
    return found


def _hccl(wires: Wires) -> dict[str, str]:
    """Only a chassis of two halves needs a word: over PCIe both must have the same number on matching places."""
    halves: dict[int, set[int]] = {}
    for device in wires.devices:
        halves.setdefault(device.index // _BOX, set()).add(device.index % _BOX)
    across = any(facts.family == "host" for facts in wires.ways())
    if len(halves) != 2 or not across or len({frozenset(places) for places in halves.values()}) == 1:
        return {}
    return {"HCCL_INTRA_PCIE_ENABLE": "0", "HCCL_INTRA_ROCE_ENABLE": "1"}


def _cncl(wires: Wires) -> dict[str, str]:
    found = {}
    ways = wires.ways()
    if ways and UNKNOWN not in ways and not any(facts.family == "mlulink" for facts in ways):
        found["CNCL_MLULINK_DISABLE"] = "1"
    if wires.no_network:
        found["CNCL_IB_DISABLE"] = "1"
    return found


def _mccl_of_metax(wires: Wires) -> dict[str, str]:
    if not (wires.remote and wires.shared_network):
        return {}
    return {
        "MCCL_IB_HCA": ",".join(wires.shared_network),
        "MCCL_NET_GDR_LEVEL": "SYS",
        "MCCL_CROSS_NIC": "1",
    }


_RULES: Final[dict[str, Callable[[Wires], dict[str, str]]]] = {
    "nvidia": _nccl,
    "amd": _rccl,
    "hygon": _nccl,
    "ascend": _hccl,
    "cambricon": _cncl,
    "metax": _mccl_of_metax,
}
"""By vendor. For the others no flag was read from a source that would justify writing it unasked."""
