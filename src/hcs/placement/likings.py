"""How much a request prefers each node, from 0 to 100: what its pod wishes, and what nodes cost.

Only an order among places that serve, never a condition. Both follow from labels alone, so they are found once for each
shape of request, and where no pod wishes and no node has a price there is nothing to find.
"""

from typing import Final

import numpy as np

from hcs.model.requests import ComputeRequest
from hcs.placement.fleet import Fleet, Integers

MOST: Final = 100


def likes(fleet: Fleet, request: ComputeRequest) -> Integers | None:
    """[N] How much the request prefers each node, from 0 to 100; the mean where it wishes and nodes have prices.

    None where nothing is preferred: then the place is chosen as if there were no preferences.
    """
    wished, cheap = _wished(fleet, request), _cheapness(fleet)
    if wished is None or cheap is None:
        return cheap if wished is None else wished
    mean: Integers = (wished + cheap) // 2
    return mean


def _wished(fleet: Fleet, request: ComputeRequest) -> Integers | None:
    """The weights of the wishes that hold, in percent of the most that hold on any node, as kube-scheduler does it."""
    if not request.preferences:
        return None
    held = []
    for node in fleet.nodes:
        labels = dict(node.labels)
        held.append(sum(wish.weight for wish in request.preferences if wish.holds(node.name, labels)))
    return _percent(np.array(held, dtype=np.int64))


def _cheapness(fleet: Fleet) -> Integers | None:
    """What a node costs less than the dearest, in percent of that; a node without a price counts as the dearest."""
    known = fleet.memory.get("cheapness")
    if known is None:
        known = fleet.memory["cheapness"] = (_find_cheapness(fleet),)
    assert isinstance(known, tuple)
    found: Integers | None = known[0]
    return found


def _find_cheapness(fleet: Fleet) -> Integers | None:
    priced = [node.cost for node in fleet.nodes if node.cost is not None]
    dearest = max(priced, default=0)
    if not dearest:
        return None
    saved = [dearest - (dearest if node.cost is None else node.cost) for node in fleet.nodes]
    return np.array(saved, dtype=np.int64) * MOST // dearest if any(saved) else None


def _percent(amounts: Integers) -> Integers | None:
    most = int(amounts.max(initial=0))
    return amounts * MOST // most if most else None
