"""Rates of models that pods may name and the fleet lacks: the catalogue's, read once at the start."""

from hcs.model.devices import Rate
from hcs.ura.catalogue import load_catalogue


def reference_rates() -> dict[str, tuple[Rate, ...]]:
    """Model → its rates; where two vendors have a model of one name, the first in the catalogue."""
    found: dict[str, tuple[Rate, ...]] = {}
    for card in load_catalogue().models:
        if card.rates:
            found.setdefault(card.model, card.rates)
    return found
