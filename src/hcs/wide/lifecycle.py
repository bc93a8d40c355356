"""The life of a job in the wide-area queue: which states there are, and which may follow which.

Every change of state is a transition with a moment, a CamelCase reason and a sentence; the store writes it in the same
transaction as the state. A step that touches a cluster is recorded before it is taken (``Placing``) and after it was
seen to have happened (``Created``, ``Running``), so a controller that is killed between them finds out by asking the
cluster, under a name that follows from the entry, instead of doing it twice.
"""

from typing import Final, Literal, get_args

State = Literal["Queued", "Placing", "Created", "Running", "Cancelling", "Succeeded", "Failed", "Cancelled", "Refused"]
STATES: Final[tuple[State, ...]] = get_args(State)
MEANINGS: Final[dict[State, str]] = {
    "Queued": "waits for a place",
    "Placing": "a place is written down; the Job may or may not exist there yet",
    "Created": "the Job exists there, suspended; its bytes may still be on their way",
    "Running": "it was released there",
    "Cancelling": "somebody asked for its end; the Job may still exist",
    "Succeeded": "it ended well",
    "Failed": "it ended badly, as often as it may be tried",
    "Cancelled": "it was ended on request",
    "Refused": "it can never run as it was asked; the reason says why",
}
ENDED: Final[frozenset[State]] = frozenset(("Succeeded", "Failed", "Cancelled", "Refused"))
PLACED: Final[frozenset[State]] = frozenset(("Placing", "Created", "Running", "Cancelling"))
"""States in which a Job may exist on a cluster."""

_FOLLOW: Final[dict[State, frozenset[State]]] = {
    "Queued": frozenset(("Placing", "Cancelled", "Refused", "Failed")),
    # Back to Queued only after the Job is seen to be gone: the place was withdrawn, or the attempt failed.
    "Placing": frozenset(("Created", "Queued", "Cancelling", "Refused", "Failed")),
    "Created": frozenset(("Running", "Queued", "Cancelling", "Failed")),
    "Running": frozenset(("Succeeded", "Failed", "Queued", "Cancelling")),
    # A job that ended by itself before its end was carried out keeps that outcome.
    "Cancelling": frozenset(("Cancelled", "Succeeded", "Failed")),
    "Succeeded": frozenset(),
    "Failed": frozenset(),
    "Cancelled": frozenset(),
    "Refused": frozenset(),
}


def may_follow(before: State, after: State) -> bool:
    """Whether a job may go from one state to another.

    >>> may_follow("Queued", "Placing"), may_follow("Succeeded", "Queued")
    (True, False)
    """
    return after in _FOLLOW[before]
