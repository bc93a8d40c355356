"""The life of a neural task, as a pure state machine: an event in, the new state and a list of instructions out.

    Pending -> Placed -> Routed -> Loaded -> Ready <-> Running <-> Paused -> Draining -> Released
    Placed ... Paused -> Degraded (a fault was seen) -> Remapping -> Ready, or Failed

Whoever acts carries the instructions out and reports back with the next event. Illegal events raise with the history
in the message, so that a mistake shows where it was made.
"""

from typing import Final, Literal

import msgspec

State = Literal[
    "Pending",
    "Placed",
    "Routed",
    "Loaded",
    "Ready",
    "Running",
    "Paused",
    "Draining",
    "Degraded",
    "Remapping",
    "Released",
    "Failed",
]
Event = Literal[
    "placed",
    "routed",
    "loaded",
    "checked",
    "run",
    "finished",
    "pause",
    "resume",
    "destroy",
    "drained",
    "fault",
    "remap",
    "remapped",
    "failed",
]
Instruction = Literal["place", "route", "load", "check", "start", "stop", "resume", "drain", "free", "remap"]

HOLDING: Final = frozenset(
    {"Placed", "Routed", "Loaded", "Ready", "Running", "Paused", "Draining", "Degraded", "Remapping"}
)
"""States in which a task holds cores."""
ENDED: Final = frozenset({"Released", "Failed"})

_BEFORE_LOAD: Final = ("Placed", "Routed", "Loaded")
_ON_BOARD: Final = ("Ready", "Running", "Paused")

TRANSITIONS: Final[dict[tuple[str, str], tuple[State, tuple[Instruction, ...]]]] = {
    ("Pending", "placed"): ("Placed", ("route",)),
    ("Placed", "routed"): ("Routed", ("load",)),
    ("Routed", "loaded"): ("Loaded", ("check",)),
    ("Loaded", "checked"): ("Ready", ()),
    ("Ready", "run"): ("Running", ("start",)),
    ("Running", "finished"): ("Ready", ()),
    ("Running", "pause"): ("Paused", ("stop",)),
    ("Paused", "resume"): ("Running", ("resume",)),
    ("Draining", "drained"): ("Released", ("free",)),
    ("Degraded", "remap"): ("Remapping", ("remap",)),
    ("Remapping", "remapped"): ("Ready", ()),
    ("Degraded", "destroy"): ("Draining", ("drain",)),
    ("Pending", "destroy"): ("Released", ()),
    ("Pending", "failed"): ("Failed", ()),
    **{(state, "destroy"): ("Draining", ("drain",)) for state in (*_BEFORE_LOAD, "Ready", "Paused")},
    ("Running", "destroy"): ("Draining", ("stop", "drain")),
    **{(state, "fault"): ("Degraded", ()) for state in (*_BEFORE_LOAD, "Ready", "Paused")},
    ("Running", "fault"): ("Degraded", ("stop",)),
    ("Remapping", "fault"): ("Degraded", ()),
    **{(state, "failed"): ("Failed", ("free",)) for state in HOLDING},
}
"""(state, event) → the next state, and what to do."""


class TransitionError(ValueError):
    """An event that the state does not allow; the message tells how the task came there."""


class Life(msgspec.Struct, frozen=True):
    """Where a task is, and every event so far."""

    state: State = "Pending"
    history: tuple[str, ...] = ()

    def after(self, event: Event) -> tuple["Life", tuple[Instruction, ...]]:
        """The life after an event, and what to do.

        Raises:
            TransitionError: the event makes no sense now.
        """
        found = TRANSITIONS.get((self.state, event))
        if found is None:
            possible = sorted(known for state, known in TRANSITIONS if state == self.state)
            told = " -> ".join(self.history[-12:]) or "nothing yet"
            raise TransitionError(
                f"{event} makes no sense in state {self.state}; possible are {', '.join(possible) or 'none'}; "
                f"so far: {told}"
            )
        state, instructions = found
        return Life(state, (*self.history[-63:], event)), instructions
