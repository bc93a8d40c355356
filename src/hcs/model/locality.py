"""What a pod asks of the ways between its cards, to the network and to its data: four annotations, one small grammar.

Each is a *rule*: ``required`` (nothing else will do), or ``preferred`` (nearer is better). The words::

    ai.compute/numa:         required | preferred
    ai.compute/interconnect: [required: | preferred:] KIND[,KIND…] [>= 200GB/s]   or   [required:|preferred:] >= 200GB/s
    ai.compute/fabric:       required | preferred | [required:|preferred:] NAME[,NAME…]
    ai.compute/data-source:  NAME   or   NAME <= 5ms

``KIND`` is a family of links (``nvlink``, ``hccs``, ``xgmi``, ``mlulink``, …), ``pcie``, or ``p2p`` for any way on
which cards reach each other's memory. A rule about links holds for *every pair* of one container's cards.
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

import msgspec

from hcs.model import names
from hcs.model.refusals import Refusal

LINK_KINDS: Final = ("p2p", "nvlink", "hccs", "xgmi", "mlulink", "mtlink", "metaxlink", "lare", "xpulink", "pcie")
"""Families of links people may name; :mod:`hcs.ura.links` says which of the tools' words belong to which."""

_STRENGTH: Final = re.compile(r"\s*(required|preferred)\s*(?::\s*(.*))?", re.DOTALL)
_BANDWIDTH: Final = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)\s*(GB/s|MB/s|GBps|MBps)", re.IGNORECASE)
_LATENCY: Final = re.compile(r"([0-9]{1,7}(?:\.[0-9]{1,3})?)\s*(us|µs|ms|s)")
_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_MICROSECONDS: Final = {"us": 1, "µs": 1, "ms": 1000, "s": 1_000_000}


class LinkRule(msgspec.Struct, frozen=True):
    """Which links each pair of a container's cards should have: of one of ``kinds`` (empty: any), at least ``mbps``
    megabytes per second, both directions added (0: any)."""

    kinds: tuple[str, ...] = ()
    mbps: int = 0
    required: bool = True


class FabricRule(msgspec.Struct, frozen=True):
    """Which RDMA network the node should be plugged into: one of ``names``, or any where none is named."""

    names: tuple[str, ...] = ()
    required: bool = True


class DataSourceRule(msgspec.Struct, frozen=True):
    """Nearness to a data source: nodes with a lower measured latency are better; above ``microseconds``, where it is
    given, or where nobody measured, they will not do."""

    name: str
    microseconds: int | None = None


class Locality(msgspec.Struct, frozen=True):
    """All of a pod's rules; None where it has none.

    ``numa``: the cards of each container on one NUMA node, ``required`` or ``preferred``; empty: anywhere.
    """

    numa: str = ""
    links: LinkRule | None = None
    fabric: FabricRule | None = None
    data_source: DataSourceRule | None = None

    def __bool__(self) -> bool:
        return self != NOWHERE

    @property
    def binding(self) -> bool:
        """Whether some rule can refuse a device or a node that would serve otherwise."""
        return (
            self.numa == "required"
            or (self.links is not None and self.links.required)
            or (self.fabric is not None and self.fabric.required)
            or (self.data_source is not None and self.data_source.microseconds is not None)
        )

    @property
    def wishes(self) -> bool:
        """Whether some rule is only preferred, so that a place that keeps it is looked for first."""
        return (
            self.numa == "preferred"
            or (self.links is not None and not self.links.required)
            or (self.fabric is not None and not self.fabric.required)
            or (self.data_source is not None and self.data_source.microseconds is None)
        )

    @property
    def pairing(self) -> bool:
        """Whether some rule binds which cards of a node may go together."""
        return self.numa == "required" or (self.links is not None and self.links.required)


NOWHERE: Final = Locality()
"""No rule at all."""


def read_locality(annotations: Mapping[str, str], refusals: list[Refusal]) -> Locality:
    """Read the four annotations; what cannot be read is added to ``refusals``."""
    return Locality(
        numa=_numa(annotations, refusals),
        links=_links(annotations, refusals),
        fabric=_fabric(annotations, refusals),
        data_source=_data_source(annotations, refusals),
    )


def _numa(annotations: Mapping[str, str], refusals: list[Refusal]) -> str:
    text = annotations.get(names.NUMA)
    if text is None or text.strip() in ("required", "preferred"):
        return "" if text is None else text.strip()
    refusals.append(
        Refusal("UnknownValue", f"annotation {names.NUMA}: {text[:60]!r} is not one of required, preferred")
    )
    return ""


def _links(annotations: Mapping[str, str], refusals: list[Refusal]) -> LinkRule | None:
    text = annotations.get(names.INTERCONNECT)
    if text is None:
        return None
    required, rest = _strength(text)
    head, sign, bound = rest.partition(">=")
    kinds = _words(head)
    mbps = 0
    if sign:
        match = _BANDWIDTH.fullmatch(bound.strip())
        if match is None:
            _refuse(refusals, names.INTERCONNECT, text, "a bandwidth is written like >= 200GB/s")
            return None
        scale = 1000 if match[2].lower().startswith("g") else 1
        mbps = int(Decimal(match[1]) * scale)
    unknown = [kind for kind in kinds if kind not in LINK_KINDS]
    if unknown:
        _refuse(
            refusals, names.INTERCONNECT, text, f"no kind {unknown[0][:40]!r}; known kinds are {', '.join(LINK_KINDS)}"
        )
        return None
    if not kinds and not mbps:
        _refuse(refusals, names.INTERCONNECT, text, "name a kind or a bandwidth, like nvlink or >= 200GB/s")
        return None
    return LinkRule(kinds=kinds, mbps=mbps, required=required)


def _fabric(annotations: Mapping[str, str], refusals: list[Refusal]) -> FabricRule | None:
    text = annotations.get(names.FABRIC)
    if text is None:
        return None
    required, rest = _strength(text)
    found = tuple(dict.fromkeys(word.strip() for word in rest.split(",") if word.strip()))
    if any(not _NAME.fullmatch(name) for name in found) or (not found and not _STRENGTH.fullmatch(text)):
        _refuse(refusals, names.FABRIC, text, "write required, preferred, or the names of networks, like ib-a")
        return None
    return FabricRule(names=found, required=required)


def _data_source(annotations: Mapping[str, str], refusals: list[Refusal]) -> DataSourceRule | None:
    text = annotations.get(names.DATA_SOURCE)
    if text is None:
        return None
    name, sign, bound = (part.strip() for part in text.partition("<="))
    match = _LATENCY.fullmatch(bound) if sign else None
    if not _NAME.fullmatch(name) or (sign and match is None):
        _refuse(refusals, names.DATA_SOURCE, text, "write the source's name, or like lake-1 <= 5ms")
        return None
    return DataSourceRule(name, None if match is None else int(Decimal(match[1]) * _MICROSECONDS[match[2]]))


def _strength(text: str) -> tuple[bool, str]:
    """Whether the rule is required (the default), and the words after that."""
    match = _STRENGTH.fullmatch(text)
    return (True, text.strip()) if match is None else (match[1] == "required", (match[2] or "").strip())


def _words(text: str) -> tuple[str, ...]:
    folded = (word.strip().lower().replace("-", "") for word in text.split(","))
    return tuple(dict.fromkeys(word for word in folded if word))


def _refuse(refusals: list[Refusal], key: str, text: str, how: str) -> None:
    refusals.append(Refusal("UnknownValue", f"annotation {key}: cannot read {text[:60]!r}; {how}"))
