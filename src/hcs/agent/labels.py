"""Labels on the Node, so that a nodeSelector and ``kubectl get nodes -L`` can speak of cards.

The agent writes the labels of its own list and no other; one that no longer holds is taken away.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from hcs.model import names
from hcs.model.devices import Device

CARDS: Final = f"{names.DOMAIN}/cards"
VENDOR: Final = f"{names.DOMAIN}/vendor."
MODEL: Final = f"{names.DOMAIN}/model."
_LONGEST: Final = 63
"""Of a label's name, the prefix before the slash aside."""


def labels_of(devices: Iterable[Device]) -> dict[str, str]:
    """The labels that hold: how many cards in all, of each vendor and of each model.

    >>> labels_of((Device("a", 0, "nvidia", "A100-SXM4-80GB", 1),))[MODEL + "A100-SXM4-80GB"]
    '1'
    """
    cards = tuple(devices)
    counts: Counter[str] = Counter()
    for device in cards:
        counts[f"{VENDOR}{device.vendor}"] += 1
        counts[f"{MODEL}{_word(device.model)}"] += 1
    return {CARDS: str(len(cards)), **{key: str(count) for key, count in counts.items()}} if cards else {}


def changes(present: Mapping[str, str], devices: Iterable[Device]) -> dict[str, str | None]:
    """What to patch: new values, and None for labels of ours that no longer hold; empty where nothing is to be done."""
    wanted = labels_of(devices)
    ours = {key for key in present if key == CARDS or key.startswith((VENDOR, MODEL))}
    stale: dict[str, str | None] = dict.fromkeys(sorted(ours - wanted.keys()))
    return {**stale, **{key: value for key, value in wanted.items() if present.get(key) != value}}


def _word(model: str) -> str:
    """A model as part of a label's name."""
    word = re.sub(r"[^A-Za-z0-9._-]+", "-", model)
    return word[: _LONGEST - len("model.")].strip("-._") or "unnamed"
