"""An entry of the wide-area queue: what was submitted, where it stands, and what was decided for it.

Entries are values. The store keeps them, the controller reads them and asks the store for the next state, the server
shows them. ``version`` grows with every change; a change that was made from an older version is refused.
"""

from typing import Any, Final

import msgspec

from hcs.wide.jobs import Blob, Bytes, Milliseconds
from hcs.wide.lifecycle import State

LABEL_ENTRY: Final = "ai.compute/cpn-entry"
"""On every Job we create: the id of its entry."""
LABEL_QUEUE: Final = "ai.compute/cpn-queue"
"""On every Job we create: the id of the queue, which the store is given when it is made. Orphans are found by it."""
LABEL_PULL: Final = "ai.compute/cpn-pull"
"""On every Job that only pulls an image in advance, and on nothing else: the id of the queue."""


class Submission(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a Job manifest asks for, read once when it is submitted.

    ``steps`` is epochs x samples / batch (1 where that was not said), or None where the amount of work was not said;
    ``samples`` may count anything that is alike in all jobs of one model, and is in MiB where it was given as a size.
    ``cards`` are those of all ``pods`` together. ``memory`` is what the user
    asked for as ``ai.compute/vram``, in bytes on one card; None leaves it to the prediction. ``kinds`` are the card
    models it is limited to; empty: any. ``cpu`` is in millicores and ``host_memory`` in bytes, of one pod.
    ``deadline`` is a moment in milliseconds since 1970.
    """

    name: str
    namespace: str = "default"
    model: str = ""
    batch: float | None = None
    steps: float | None = None
    samples: float | None = None
    epochs: float | None = None
    cards: int = 1
    pods: int = 1
    memory: Bytes | None = None
    kinds: tuple[str, ...] = ()
    cpu: int = 0
    host_memory: Bytes = 0
    priority: int = 0
    deadline: Milliseconds | None = None
    inputs: tuple[Blob, ...] = ()


class Placement(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where an attempt runs. ``expected`` and ``upper`` are predicted ends; ``job`` and ``uid`` the Job it became.

    ``memory`` is the ``ai.compute/vram`` it was dispatched with, ``shared`` whether it may share its card. ``host`` is
    the entry on whose card it is a guest; ``beside`` the one it shares or shared a card with, either way; ``rate`` what
    that is believed to leave it now, per mille. ``group`` is its sharing group: those that were planned onto one card
    have one together, all others one each.
    """

    cluster: str
    kind: str
    decided: Milliseconds
    expected: Milliseconds
    upper: Milliseconds
    job: str
    uid: str = ""
    host: str | None = None
    memory: Bytes | None = None
    shared: bool = False
    probe: bool = False
    started: Milliseconds | None = None
    beside: str = ""
    rate: int = 1000
    group: str = ""


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One job of the queue. ``reason`` and ``message`` are those of its last transition.

    ``attempts`` counts runs that ended badly; ``turn`` is its place in the line: later attempts go behind others.
    ``floor`` is the memory that was seen to be too little, in bytes on one card, plus one step; ``host_floor`` the same
    of one pod's host memory.
    """

    id: str
    manifest: dict[str, Any]
    submission: Submission
    state: State
    version: int
    submitted: Milliseconds
    changed: Milliseconds
    turn: int
    key: str | None = None
    attempts: int = 0
    floor: Bytes | None = None
    placement: Placement | None = None
    reason: str = ""
    message: str = ""
    progress: float | None = None
    ended: Milliseconds | None = None
    host_floor: Bytes | None = None


class Transition(msgspec.Struct, frozen=True, omit_defaults=True):
    """One change of state; ``before`` is None for the submission."""

    entry: str
    at: Milliseconds
    before: State | None
    after: State
    reason: str
    message: str
    placement: Placement | None = None


def job_name(entry: str, attempt: int) -> str:
    """The name of the Job of one attempt: it follows from the entry, so a second creation meets the first.

    >>> job_name("01h8xt2k", 0)
    'cpn-01h8xt2k-0'
    """
    return f"cpn-{entry}-{attempt}"
