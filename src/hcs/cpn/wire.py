"""What the controller's HTTP API sends and takes, as the command line reads it too.

All moments are milliseconds since 1970, all sizes bytes. Fields are only ever added.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hcs.cpn.service import Expectation
from hcs.cpn.views import ClusterView
from hcs.model.refusals import Refusal
from hcs.store.clusters import ClusterConfig
from hcs.wide.entries import Entry, Placement, Submission, Transition
from hcs.wide.jobs import Bytes, Milliseconds
from hcs.wide.lifecycle import ENDED, State

PORT: Final = 8470
"""Where the controller listens on loopback unless told otherwise, and where the command line looks for it."""
PAGE: Final = 100
"""Jobs in one answer where nothing is said."""
LONGEST_PAGE: Final = 1000


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of every answer that is a no; ``refusals`` where there is more than one reason."""

    reason: str
    message: str
    refusals: tuple[Refusal, ...] = ()


class JobRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One job in a list. ``start``, ``end`` and ``upper`` are expected while it has not ended, and facts then."""

    id: str
    name: str
    state: State
    submitted: Milliseconds
    changed: Milliseconds
    cards: int
    turn: int
    namespace: str = "default"
    model: str = ""
    priority: int = 0
    cluster: str = ""
    kind: str = ""
    start: Milliseconds | None = None
    end: Milliseconds | None = None
    upper: Milliseconds | None = None
    deadline: Milliseconds | None = None
    promised: bool = False
    probe: bool = False
    shared: bool = False
    progress: float | None = None
    attempts: int = 0
    reason: str = ""
    message: str = ""


class JobList(msgspec.Struct, frozen=True):
    """Jobs in the order that was asked for; ``total`` counts all of these states."""

    jobs: tuple[JobRow, ...]
    total: int


class JobDetail(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything about one job. ``cautions``: what its manifest left open. ``log``: the end of its last run's.

    ``note`` is what stands in the way of one that has a place already; empty: nothing that is known.
    """

    id: str
    state: State
    job: JobRow
    submission: Submission
    transitions: tuple[Transition, ...]
    manifest: dict[str, Any]
    key: str | None = None
    memory_floor: Bytes | None = None
    placement: Placement | None = None
    expectation: Expectation | None = None
    cautions: tuple[Refusal, ...] = ()
    log: str = ""
    note: str = ""


class Submitted(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to a submission; ``created`` is false where its key had made the job before."""

    id: str
    state: State
    job: JobRow
    created: bool
    cautions: tuple[Refusal, ...] = ()


class ClusterRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """A cluster object and what is known of it. Its kubeconfig is never shown; ``jobs`` is ours that are there."""

    config: ClusterConfig
    view: ClusterView | None = None
    jobs: int = 0
    kubeconfig_stored: bool = False


class ClusterList(msgspec.Struct, frozen=True):
    """All cluster objects by name."""

    clusters: tuple[ClusterRow, ...]


class QueueView(msgspec.Struct, frozen=True, omit_defaults=True):
    """The queue at a glance. ``end`` and ``upper``: when all that has not ended is expected to be over.

    ``unplanned`` counts waiting jobs without an expected place, ``late`` those that will miss their deadline.
    ``refusal`` says why nothing is decided now.
    """

    queue: str
    now: Milliseconds
    counts: dict[State, int]
    end: Milliseconds | None = None
    upper: Milliseconds | None = None
    unplanned: int = 0
    late: int = 0
    refusal: Refusal | None = None


def row(entry: Entry, expectation: Expectation | None = None) -> JobRow:
    """An entry as one line of a list, with what is expected of it."""
    place, expected = entry.placement, expectation
    if entry.state != "Queued" or (expected is not None and expected.refusal is not None):
        expected = None
    ended = entry.state in ENDED
    start = place.started if place else None
    end = entry.ended if ended else place.expected if place else None
    return JobRow(
        id=entry.id,
        name=entry.submission.name,
        state=entry.state,
        submitted=entry.submitted,
        changed=entry.changed,
        cards=entry.submission.cards,
        turn=entry.turn,
        namespace=entry.submission.namespace,
        model=entry.submission.model,
        priority=entry.submission.priority,
        cluster=place.cluster if place else expected.cluster if expected else "",
        kind=place.kind if place else expected.kind if expected else "",
        start=expected.start if expected else start,
        end=expected.end if expected else end,
        upper=expected.upper if expected else place.upper if place and not ended else None,
        deadline=entry.submission.deadline,
        promised=expected.promised if expected else False,
        probe=place.probe if place else expected.fallback if expected else False,
        shared=place.shared if place else False,
        progress=entry.progress,
        attempts=entry.attempts,
        reason=entry.reason,
        message=entry.message,
    )


def glance(
    queue: str,
    now: Milliseconds,
    counts: dict[State, int],
    entries: list[Entry],
    expectations: Mapping[str, Expectation],
    refusal: Refusal | None,
) -> QueueView:
    """The queue at a glance, from the entries that have not ended."""
    rows = [row(entry, expectations.get(entry.id)) for entry in entries]
    ends = [job.end for job in rows if job.end is not None]
    uppers = [job.upper for job in rows if job.upper is not None]
    return QueueView(
        queue=queue,
        now=now,
        counts=counts,
        end=max(ends, default=None),
        upper=max(uppers, default=None),
        unplanned=sum(1 for job in rows if job.state == "Queued" and job.end is None),
        late=sum(1 for job in rows if job.deadline is not None and (job.end or now) > job.deadline),
        refusal=refusal,
    )
