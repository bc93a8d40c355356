"""The life of one card as the healer sees it: a state machine, event in, new state and instructions out.

::

    Serving ──sub-health──▶ Watched ──────────┐
      ▲  ▲                    │ fatal         │ fatal
      │  └──────healthy───────┘               ▼
      │                                  Quarantined ──no pods left──▶ Drained
      │                                       ▲  │                        │
      └── healthy for the whole probation ── Recovering ◀──── healthy ────┘

A card that failed takes no new work from the same instant; the pods on it are evicted; it comes back only after it has
been healthy for the whole probation, since cards that fail once fail again; whatever is not health in between begins
the probation anew. ``Unknown`` changes nothing else: not knowing is no reason to evict anyone, nor to trust a card.
"""

from typing import Final, Literal

import msgspec

from hcs.model.devices import Verdict

Phase = Literal["Serving", "Watched", "Quarantined", "Drained", "Recovering"]
OUT_OF_SERVICE: Final[frozenset[Phase]] = frozenset({"Quarantined", "Drained", "Recovering"})
HISTORY: Final = 16


class IllegalTransitionError(RuntimeError):
    """Time ran backwards or a state was made up; the message carries the card's history."""


class Observation(msgspec.Struct, frozen=True):
    """What is true of a card now: the agent's verdict, how many pods still hold it, and the time in seconds."""

    verdict: Verdict
    reason: str
    message: str
    pods: int
    now: float


class CardState(msgspec.Struct, frozen=True):
    """Where a card stands. ``since`` is the time in seconds at which the phase began."""

    phase: Phase = "Serving"
    since: float = 0.0
    history: tuple[str, ...] = ()


class Instruction(msgspec.Struct, frozen=True):
    """What the healer must do: ``quarantine``, ``evict`` or ``release`` the card, or ``tell`` about it."""

    action: Literal["quarantine", "evict", "release", "tell"]
    reason: str
    message: str


def step(state: CardState, seen: Observation, *, probation: float) -> tuple[CardState, tuple[Instruction, ...]]:
    """Advance one card.

    Args:
        state: where it stands.
        seen: what is true now.
        probation: seconds a failed card must be healthy before it serves again.

    Returns:
        The new state and the instructions, in order. ``evict`` is repeated as long as pods remain on a card that
        failed: evictions may be blocked by a budget, and must then be tried again.

    Raises:
        IllegalTransitionError: ``seen.now`` lies before the state's beginning.
    """
    if seen.now < state.since:
        raise IllegalTransitionError(
            f"observation at {seen.now:.3f} s is older than {state.phase} since {state.since:.3f} s; "
            f"history: {' > '.join(state.history) or 'none'}"
        )
    fatal, healthy = seen.verdict == "Failed", seen.verdict == "Healthy"
    evict = (Instruction("evict", seen.reason, seen.message),) if seen.pods else ()
    match state.phase:
        case "Serving" | "Watched" if fatal:
            return _enter(state, "Quarantined", seen), (
                Instruction("quarantine", seen.reason, seen.message),
                Instruction("tell", "CardQuarantined", f"{seen.message}; it takes no new work"),
                *evict,
            )
        case "Serving" if seen.verdict == "SubHealthy":
            return _enter(state, "Watched", seen), (Instruction("tell", "CardSubHealthy", seen.message),)
        case "Watched" if healthy:
            return _enter(state, "Serving", seen), (Instruction("tell", "CardHealthy", "the card is healthy again"),)
        case "Recovering" if fatal:
            return _enter(state, "Quarantined", seen), (
                Instruction("tell", "CardFailedAgain", f"{seen.message}; it failed again during its probation"),
                *evict,
            )
        case "Quarantined" | "Drained" if healthy:
            return _enter(state, "Recovering", seen), (
                Instruction("tell", "CardRecovering", f"healthy again; on probation for {probation:g} s"),
            )
        case "Recovering" if healthy and seen.now - state.since >= probation:
            return _enter(state, "Serving", seen), (
                Instruction("release", "ProbationPassed", "the card takes work again"),
                Instruction("tell", "CardReleased", "healthy for the whole probation; it takes work again"),
            )
        case "Recovering" if not healthy:  # its health counts from the next time it is seen healthy
            return _enter(state, "Drained", seen), ()
        case "Quarantined" if fatal and seen.pods:
            return state, evict
        case "Drained" if fatal and seen.pods:  # bound just as the card failed
            return _enter(state, "Quarantined", seen), evict
        case "Quarantined" if not seen.pods:
            return _enter(state, "Drained", seen), (
                Instruction("tell", "CardDrained", "no pod is left on the card; it can be reset or replaced"),
            )
        case _:
            return state, ()


def _enter(state: CardState, phase: Phase, seen: Observation) -> CardState:
    note = f"{phase}@{seen.now:.3f}({seen.reason or seen.verdict})"
    return CardState(phase, seen.now, (*state.history, note)[-HISTORY:])
