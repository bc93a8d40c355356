"""Cards of sites that do not run HCS: what the vendors' device plugins announce, and what node labels say of them.

Names are data (``data/resources.yaml``). A plugin counts cards, or shares of cards where a site has it hand out each
card several times; a label says how many, and a share is never taken for a card.
"""

import fnmatch
import math
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Final

import msgspec
import yaml

from hcs.kube.amounts import parse_thousandths
from hcs.ura.catalogue import CardError, Catalogue, load_catalogue
from hcs.wide.jobs import Bytes

UNITS: Final = {"B": 1, "KB": 10**3, "KiB": 1 << 10, "MB": 10**6, "MiB": 1 << 20, "GB": 10**9, "GiB": 1 << 30}
"""Bytes of each unit of memory that the data files may name."""
MAX_CARDS: Final = 4096
"""Cards that one node may announce; more is a mistake."""


class PluginResource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One resource that counts cards; the fields are explained in ``data/resources.yaml``."""

    resource: str
    vendor: str
    model: str = ""
    memory: str = ""
    unit: str = "B"
    replicas: str = ""
    suffix: str = ""
    register: str = ""
    without: tuple[str, ...] = ()

    def names(self, resource: str) -> bool:
        """Whether it is about this resource."""
        return fnmatch.fnmatchcase(resource, self.resource) and not any(
            fnmatch.fnmatchcase(resource, other) for other in self.without
        )


class Announced(msgspec.Struct, frozen=True):
    """Equal cards of one node. ``shares`` is how many of the resource make up one card."""

    resource: str
    vendor: str
    kind: str
    capacity: int
    allocatable: int
    shares: int
    memory: Bytes | None
    labelled: bool

    def cards(self, amount: int) -> int:
        """Cards that so much of the resource takes up at least."""
        return math.ceil(amount / self.shares)


def announced(
    labels: Mapping[str, str],
    status: Mapping[str, Any],
    annotations: Mapping[str, str] | None = None,
    catalogue: Catalogue | None = None,
) -> tuple[Announced, ...]:
    """The cards a node's plugins announce, by resource.

    Args:
        labels: the node's.
        status: its ``status``, with ``capacity`` and ``allocatable``.
        annotations: the node's.
        catalogue: where names of products are looked up; None takes the one that comes with the package.
    """
    found = []
    capacity = status.get("capacity") or {}
    allocatable = status.get("allocatable") or {}
    for resource in sorted({*capacity, *allocatable}):
        entry = plugin_resource(resource)
        if entry is None:
            continue
        most, now = count(capacity.get(resource)), count(allocatable.get(resource))
        if max(most, now) == 0:
            continue
        shares = max(1, count(labels.get(entry.replicas))) if entry.replicas else 1
        memory = _memory(entry, labels)
        name = labels.get(entry.model, "") if entry.model else ""
        if cards := registered((annotations or {}).get(entry.register, "")):
            shares = max(shares, most // len(cards))
            memory = memory or min(card.devmem for card in cards) << 20 or None
            models = {card.type.removeprefix(f"{entry.vendor.upper()}-") for card in cards}
            name = name or (models.pop() if len(models) == 1 else "")
        kind = _kind(entry, name, memory, catalogue or load_catalogue()) if name else ""
        kind, labelled = kind or resource, bool(kind)
        found.append(Announced(resource, entry.vendor, kind, most // shares, now // shares, shares, memory, labelled))
    return tuple(found)


class Registered(msgspec.Struct, frozen=True):
    """One card as HAMi's plugin writes it down: how often it is handed out, its memory in MiB, and its model."""

    count: Annotated[int, msgspec.Meta(ge=1, le=MAX_CARDS)] = 1
    devmem: Annotated[int, msgspec.Meta(ge=0, le=1 << 30)] = 0
    type: Annotated[str, msgspec.Meta(max_length=200)] = ""


def registered(text: str) -> tuple[Registered, ...]:
    """The cards in such an annotation, as JSON or in its older form; none where it cannot be read.

    >>> registered("GPU-1,10,32768,100,NVIDIA-A10,0,true:")
    (Registered(count=10, devmem=32768, type='NVIDIA-A10'),)
    """
    try:
        if text.lstrip().startswith("["):
            return msgspec.json.decode(text, type=tuple[Registered, ...])
        fields = [card.split(",") for card in text.split(":") if card]
        named = [{"count": int(card[1]), "devmem": int(card[2]), "type": card[4]} for card in fields]
        return msgspec.convert(named, tuple[Registered, ...])
    except (msgspec.MsgspecError, ValueError, IndexError, RecursionError):
        return ()


def plugin_resource(resource: str) -> PluginResource | None:
    """The entry about a resource, or None where it counts no cards."""
    return next((entry for entry in plugin_resources() if entry.names(resource)), None)


@cache
def plugin_resources() -> tuple[PluginResource, ...]:
    """All entries, as they come with the package."""
    text = (files("hcs.cpn") / "data" / "resources.yaml").read_text(encoding="utf-8")
    return tuple(msgspec.convert(yaml.safe_load(text), list[PluginResource]))


def count(text: str | int | float | None) -> int:
    """A whole number of cards that a node or a pod states; 0 for what is none, or more than any node has."""
    if text is None:
        return 0
    try:
        thousandths = parse_thousandths(text)
    except (ValueError, ArithmeticError):
        return 0
    return thousandths // 1000 if 0 <= thousandths <= MAX_CARDS * 1000 else 0


def _kind(entry: PluginResource, name: str, memory: Bytes | None, catalogue: Catalogue) -> str:
    """The catalogue's name for a product, so that equal cards have one name on every site; else the label's own.

    Empty where the label states only a brand.
    """
    plain = name.removesuffix(entry.suffix) if entry.suffix else name
    for text in (plain, plain.replace("-", " "), plain.replace("-", " ", 1)):
        try:
            return catalogue.find(text, entry.vendor, vram=memory).model
        except CardError:
            continue
    for word in (f"{entry.vendor}-", "tesla-"):
        if plain.casefold().startswith(word):
            return _kind(entry, plain[len(word) :], memory, catalogue)
    return plain


def _memory(entry: PluginResource, labels: Mapping[str, str]) -> Bytes | None:
    text = labels.get(entry.memory, "") if entry.memory else ""
    if not text:
        return None
    try:
        number = parse_thousandths(text.removesuffix("B"))
    except (ValueError, ArithmeticError):
        return None
    bytes_ = number // 1000 * (UNITS[entry.unit] if text.isdecimal() else 1)
    return bytes_ if 0 < bytes_ < 1 << 62 else None
