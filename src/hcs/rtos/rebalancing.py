"""Rebalancing: weights and capacities that follow the load, within what each container was given.

Each guest keeps two fixed points: the weight of its shares and the capacity of its limits. Under load, a guest's
capacity may sink towards what it really uses plus room to grow, so that idle guests cannot burst into the time of busy
ones; it never rises above its limit, and comes back as soon as the guest uses what it has. Its weight moves between
half and double of its own, by its share of the demand. When demand does not exceed the pCPUs there is nothing to hold
down, and everything returns to its fixed point. Changes under :data:`SLACK` percent are not worth a command.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from hcs.rtos.hosts import Host
from hcs.rtos.processors import MAX_WEIGHT

HEADROOM: Final = 25
"""Percent on top of the use that a guest may grow by before the next look."""
FLOOR: Final = 10
"""Percent of a pCPU that no guest is held below, nor below a tenth of its limit."""
SLACK: Final = 10
"""Percent by which a value must differ from the present one to be changed."""


class Load(msgspec.Struct, frozen=True):
    """A guest and its load.

    ``weight`` and ``limit`` are what its container was given (percent of one pCPU, 0 for no bound); ``present_weight``
    and ``present_capacity`` are what it has now; ``used`` is percent of one pCPU over the last look; ``vcpus`` bounds
    what it can use at all.
    """

    name: str
    weight: int
    limit: int
    present_weight: int
    present_capacity: int
    used: int
    vcpus: int = 1


class Adjustment(msgspec.Struct, frozen=True):
    """One guest's new values and why; ``commands`` are what changes, possibly nothing."""

    name: str
    weight: int
    capacity: int
    commands: tuple[tuple[str, str], ...]
    reason: str


def rebalance(loads: Sequence[Load], host: Host) -> list[Adjustment]:
    """Work out new weights and capacities.

    Args:
        loads: the running guests of one host.
        host: its pCPUs; where their number is not known, every guest returns to its fixed point.
    """
    demand = {load.name: _demand(load) for load in loads}
    room = 100 * host.pcpus
    pressed = bool(room) and sum(demand.values()) > room
    weights = {load.name: load.weight for load in loads}
    average = _share(sum(demand.values()), sum(weights.values()))
    return [_adjust(load, demand[load.name], average, pressed) for load in loads]


def _demand(load: Load) -> int:
    """Percent a guest would use if it could: its use and some room, within its limit and vCPUs."""
    most = min(load.limit or 100 * load.vcpus, 100 * load.vcpus)
    wanted = -(-load.used * (100 + HEADROOM) // 100)
    if load.present_capacity and load.used * 100 >= load.present_capacity * 90:
        wanted = max(wanted, most)  # it runs against its bound: what it would use is not visible
    floor = max(FLOOR, load.limit // 10)
    return min(max(wanted, floor), most)


def _share(demand: int, weight: int) -> tuple[int, int]:
    return (demand, weight) if weight else (1, 1)


def _adjust(load: Load, demand: int, average: tuple[int, int], pressed: bool) -> Adjustment:
    if not pressed:
        weight, capacity, reason = load.weight, load.limit, "no pressure: as its container was given"
    else:
        total, weights = average
        # demand / weight of this guest against that of all: above 1 it needs more than its weight gives it
        weight = load.weight * demand * weights // max(1, total * load.weight) if load.weight else 0
        weight = min(max(weight, -(-load.weight // 2), 1), 2 * load.weight, MAX_WEIGHT)
        capacity = min(demand, load.limit) if load.limit else demand
        reason = f"uses {load.used} of {load.present_capacity or 'unbounded'}, holds {capacity}"
    commands: list[tuple[str, str]] = []
    if _differs(load.present_capacity, capacity, exact=not pressed):
        commands.append(("cpucapacity", str(capacity)))
    else:
        capacity = load.present_capacity
    if _differs(load.present_weight, weight, exact=not pressed):
        commands.append(("cpuweight", str(weight)))
    else:
        weight = load.present_weight
    return Adjustment(load.name, weight, capacity, tuple(commands), reason)


def _differs(present: int, wanted: int, *, exact: bool) -> bool:
    if exact or (present == 0) != (wanted == 0):
        return present != wanted
    return abs(present - wanted) * 100 > present * SLACK


def commands_of(adjustments: Iterable[Adjustment]) -> list[str]:
    """The commands as people read them: ``guest: set key value``."""
    return [f"{one.name}: set {key} {value}" for one in adjustments for key, value in one.commands]
