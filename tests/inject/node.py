"""Nodes, cards and allocations for the tests of injection."""

from collections.abc import Iterable, Mapping
from typing import Any

from hcs.inject.builtin import builtin_profiles
from hcs.inject.injection import ContainerFacts, NodeFacts, NodeFiles, candidate_paths
from hcs.inject.profiles import Profile
from hcs.model.allocations import Allocation, Grant
from hcs.model.devices import Device

GIB = 1 << 30
UID = "6f1c0a52-8d0e-4f8e-9a53-1f1e8f0c7c11"


def card(vendor: str, index: int, **changes: Any) -> Device:
    """A card whose id cannot be mistaken for its index."""
    facts: dict[str, Any] = {
        "id": f"{vendor}-uuid-{index:02}",
        "index": index,
        "vendor": vendor,
        "model": f"{vendor} card",
        "vram": 64 * GIB,
        "verdict": "Healthy",
    }
    return Device(**{**facts, **changes})


def profile(vendor: str, runtime: str = "") -> Profile:
    """The built-in profile in force."""
    found = builtin_profiles().effective(vendor, runtime)
    assert found is not None
    return found


def node(*cards: Device, missing: Iterable[str] = (), files: Mapping[str, NodeFiles] | None = None) -> NodeFacts:
    """A node with everything the profiles name, except what is missing."""
    paths = {path for device in cards for path in candidate_paths(profile(device.vendor), [device])}
    return NodeFacts(
        name="node-1",
        devices=cards,
        state="/var/lib/hcs",
        interceptor="/var/lib/hcs/interceptor/0/libhcs_interceptor.so",
        present=frozenset(paths.difference(missing)),
        files=files or {},
    )


def allocation(*cards: Device, amount: int = 16 * GIB, exclusive: bool = True, **changes: Any) -> Allocation:
    """An allocation of these cards to the container ``main``."""
    facts: dict[str, Any] = {
        "version": "v1",
        "pod": UID,
        "node": "node-1",
        "vendor": cards[0].vendor,
        "model": cards[0].model,
        "containers": {"main": tuple(Grant(device.id, amount, 1000) for device in cards)},
        "exclusive": exclusive,
    }
    return Allocation(**{**facts, **changes})


def container(**facts: Any) -> ContainerFacts:
    """The container ``main``."""
    return ContainerFacts(**{"name": "main", **facts})
