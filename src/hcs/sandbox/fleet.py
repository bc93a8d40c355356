"""Which emulated nodes and cards a sandbox has: a small YAML file, checked when read."""

from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from hcs.model import names

DEMO: Final = Path(__file__).parent / "fleets" / "demo.yaml"


class FleetError(ValueError):
    """A fleet file that cannot be used; the message says where and how to mend it."""


class Cards(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Equal cards: ``model`` is a name or alias of the catalogue.

    ``link`` is the tool's word for the way between each two of them (``NV12``, ``HCCS``, ``PIX``), ``numa`` the NUMA
    node all of them are on; without these, nothing is known about either.
    """

    vendor: str
    model: str
    count: int = 1
    link: str = ""
    numa: int | None = None


class FleetNode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One emulated node; CPU in cores, memory as a Kubernetes quantity."""

    name: str
    cards: tuple[Cards, ...] = ()
    cpu: int = 64
    memory: str = "512Gi"
    labels: dict[str, str] = {}


class Fleet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All nodes of a sandbox.

    ``hidden_speeds`` is a seed: then every card has a true speed of its own, near its rating, that only timed work
    finds, and the agents measure their cards. Without it no card has one, and none is measured.
    """

    nodes: tuple[FleetNode, ...]
    hidden_speeds: int | None = None


def load_fleet(path: Path) -> Fleet:
    """Read a fleet file.

    Raises:
        FleetError: unreadable, unknown fields, a name twice, an unknown vendor, or a count below one.
    """
    try:
        raw: Any = yaml.safe_load(path.read_text())
        fleet = msgspec.convert(raw, Fleet)
    except (OSError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise FleetError(f"cannot use fleet file {path}: {error}") from error
    seen: set[str] = set()
    for node in fleet.nodes:
        if node.name in seen:
            raise FleetError(f"fleet file {path}: node {node.name} is listed twice")
        seen.add(node.name)
        for cards in node.cards:
            if cards.vendor not in names.VENDOR_WORDS or cards.count < 1:
                raise FleetError(
                    f"fleet file {path}: node {node.name} wants {cards.count} cards of vendor {cards.vendor!r}; "
                    f"known vendors are {', '.join(names.VENDOR_WORDS)}"
                )
    return fleet
