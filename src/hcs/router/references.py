"""Exchange rates that do not come with the cards: the catalogue's, and a site's own ExchangeRate objects over them.

A site's rate wins over the catalogue's for the same model and workload class, also on the cards of the fleet. Two
stand against it: a rate that was *measured* against a site's that was not, and whatever was found on the very card.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from hcs.model.devices import WORKLOADS, Device, NodeInventory, Rate
from hcs.ura.catalogue import load_catalogue
from hcs.ura.naming import fold

SiteRates = Mapping[tuple[str, str], tuple[Rate, ...]]
"""(vendor, model) → the rates that a site states for it; the model's name is folded."""


def reference_rates() -> dict[str, tuple[Rate, ...]]:
    """Model → its rates; where two vendors have a model of one name, the first in the catalogue."""
    found: dict[str, tuple[Rate, ...]] = {}
    for card in load_catalogue().models:
        if card.rates:
            found.setdefault(card.model, card.rates)
    return found


def read_site_rates(specs: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], tuple[Rate, ...]]:
    """Read the ``spec`` of ExchangeRate objects; one that cannot be read states nothing. The last of two wins."""
    found: dict[tuple[str, str], tuple[Rate, ...]] = {}
    for spec in specs:
        try:
            rates = msgspec.convert(spec.get("rates") or (), tuple[Rate, ...])
        except msgspec.ValidationError:
            continue
        known = tuple(rate for rate in rates if rate.workload in WORKLOADS and rate.milliacu > 0)
        key = str(spec.get("vendor") or ""), fold(str(spec.get("model") or ""))
        found[key] = _over(found.get(key, ()), known)
    return found


def with_site_rates(inventory: NodeInventory, site: SiteRates) -> NodeInventory:
    """A node whose cards have the site's rates."""
    if not site:
        return inventory
    devices = tuple(_rated(device, site) for device in inventory.devices)
    return inventory if devices == inventory.devices else msgspec.structs.replace(inventory, devices=devices)


def overlaid(reference: Mapping[str, tuple[Rate, ...]], site: SiteRates) -> dict[str, tuple[Rate, ...]]:
    """The catalogue's rates with a site's over them."""
    merged = dict(reference)
    names = {fold(model): model for model in merged}
    for (_, model), rates in site.items():
        name = names.get(model, model)
        merged[name] = _over(merged.get(name, ()), rates)
    return merged


def _rated(device: Device, site: SiteRates) -> Device:
    stated = site.get((device.vendor, fold(device.model)))
    if not stated:
        return device
    own = {rate.workload for rate in device.rates if device.measured_at and rate.as_of == device.measured_at}
    others = tuple(rate for rate in stated if rate.workload not in own)
    return msgspec.structs.replace(device, rates=_over(device.rates, others))


def _over(below: tuple[Rate, ...], above: tuple[Rate, ...]) -> tuple[Rate, ...]:
    """Rates of ``above`` in place of those of ``below`` in the same class; others stay."""
    merged = {rate.workload: rate for rate in reversed(below)}
    for rate in above:
        known = merged.get(rate.workload)
        if known is None or known.source != "measured" or rate.source == "measured":
            merged[rate.workload] = rate
    order = {workload: position for position, workload in enumerate(WORKLOADS)}
    return tuple(sorted(merged.values(), key=lambda rate: order.get(rate.workload, len(order))))
