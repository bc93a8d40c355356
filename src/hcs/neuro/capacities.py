"""What a spiking board offers and what a task takes of it, as exact whole numbers.

* ``ksps``: spike processing throughput, thousand spikes per second.
* ``streams``: event routing capacity, streams of events between host and cores that are open at once.
* ``activations``: neuron activation rate, thousand output spikes per second over all neurons.
* ``updates``: synaptic update rate, thousand weight updates per second.
* ``cores``: live neuron cores.
"""

from typing import Final

import msgspec

from hcs.model.refusals import Refusal
from hcs.neuro.boards import BoardState

DOMAIN: Final = "snn.ai.compute"
WORDS: Final = {
    "ksps": "ksps",
    "event-routing-streams": "streams",
    "neuron-activation-rate": "activations",
    "synaptic-update-rate": "updates",
    "cores": "cores",
}
"""Resource word → field of :class:`Amounts`."""
UNITS: Final = {
    "ksps": "KSPS",
    "streams": "streams",
    "activations": "thousand activations/s",
    "updates": "thousand updates/s",
    "cores": "cores",
}
LIMIT: Final = 1 << 40


class Amounts(msgspec.Struct, frozen=True):
    """An amount of everything."""

    ksps: int = 0
    streams: int = 0
    activations: int = 0
    updates: int = 0
    cores: int = 0

    def __add__(self, other: "Amounts") -> "Amounts":
        return Amounts(*(mine + theirs for mine, theirs in zip(self.figures(), other.figures(), strict=True)))

    def __sub__(self, other: "Amounts") -> "Amounts":
        return Amounts(*(mine - theirs for mine, theirs in zip(self.figures(), other.figures(), strict=True)))

    def figures(self) -> tuple[int, ...]:
        """All of them, in order of the fields."""
        return msgspec.structs.astuple(self)

    def within(self, other: "Amounts") -> bool:
        """Whether there is at most as much of everything."""
        return all(mine <= theirs for mine, theirs in zip(self.figures(), other.figures(), strict=True))


def capacity_of(board: BoardState) -> Amounts:
    """What a board offers with its faults of today: by its live cores, its ports and its channels."""
    model, live = board.model, board.live()
    ksps = activations = updates = 0
    for core_class in model.classes:
        count = (model.class_mask(core_class.name) & live).bit_count()
        ksps += count * core_class.ksps
        activations += count * core_class.activations
        updates += count * core_class.updates
    ksps = min(ksps, sum(port.ksps for port in model.ports))
    if model.ksps:
        ksps = min(ksps, model.ksps)
    return Amounts(ksps, model.streams, activations, updates, live.bit_count())


def check_amounts(amounts: Amounts, what: str) -> list[Refusal]:
    """Find amounts nobody could mean."""
    refusals = []
    for field in Amounts.__struct_fields__:
        amount = getattr(amounts, field)
        if amount < 0:
            refusals.append(Refusal("NegativeAmount", f"{what} asks for {amount} {UNITS[field]}; ask for 0 or more"))
        elif amount > LIMIT:
            refusals.append(
                Refusal("ImpossibleRate", f"{what} asks for {amount} {UNITS[field]}; no machine has more than {LIMIT}")
            )
    return refusals


def shortages(wanted: Amounts, there: Amounts, whole: Amounts, what: str) -> list[Refusal]:
    """Say what is too little, and what would fit.

    Args:
        wanted: what is asked for.
        there: what is free.
        whole: what there would be if nobody else took anything.
        what: who offers, as it begins the sentence: ``board b0``.
    """
    refusals = []
    for field in Amounts.__struct_fields__:
        asked, free, most = getattr(wanted, field), getattr(there, field), getattr(whole, field)
        if asked > most:
            refusals.append(
                Refusal(
                    "BeyondBoard",
                    f"asks for {asked} {UNITS[field]}, and {what} offers {most} when empty; ask for at most that",
                )
            )
        elif asked > free:
            refusals.append(
                Refusal(
                    "CapacityTaken",
                    f"asks for {asked} {UNITS[field]}, and {what} has {max(0, free)} of {most} left; "
                    "ask for at most that, or wait",
                )
            )
    return refusals
