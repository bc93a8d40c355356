"""The seam between the HTTP server and the controller behind it: what the server asks, in values.

The server itself only needs the store. Everything a controller adds (what it expects, why a job waits, what it sees of
the clusters) comes through this protocol, from memory: no call may wait for a cluster.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec
from prometheus_client import CollectorRegistry

from hcs.cpn.views import ClusterView
from hcs.model.refusals import Refusal
from hcs.store.queue import QueueStore
from hcs.wide.entries import Entry
from hcs.wide.jobs import Bytes, Milliseconds


class Expectation(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the last plan expects of a job that has not ended. Moments in milliseconds since 1970.

    ``end`` is the expected one, ``upper`` an upper quantile of it. ``memory`` is the upper quantile of its peak on one
    card. ``promised``: the start is a reservation. ``fallback``: nothing is known of such a job; it is to be probed.
    ``refusal`` says why no place is expected at all; then the moments are None.
    """

    job: str
    cluster: str = ""
    kind: str = ""
    start: Milliseconds | None = None
    end: Milliseconds | None = None
    upper: Milliseconds | None = None
    memory: Bytes | None = None
    promised: bool = False
    fallback: bool = False
    refusal: Refusal | None = None


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one pool means for a job: its refusal, or when it could run there.

    ``run`` is the expected run time there and ``transfer`` how long its bytes would take, in milliseconds.
    """

    cluster: str
    kind: str
    refusal: Refusal | None = None
    start: Milliseconds | None = None
    end: Milliseconds | None = None
    upper: Milliseconds | None = None
    run: Milliseconds | None = None
    transfer: Milliseconds | None = None


class Why(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a job is where it is: a headline, how many wait before it, one verdict a pool, and what else matters."""

    headline: str
    ahead: int = 0
    verdicts: tuple[Verdict, ...] = ()
    notes: tuple[str, ...] = ()


class Service(Protocol):
    """What the server is made of. One object of the controller; all calls come from its own event loop."""

    @property
    def store(self) -> QueueStore: ...

    @property
    def registry(self) -> CollectorRegistry:
        """Where metrics are kept; the server adds those of the queue."""
        ...

    def now(self) -> Milliseconds:
        """Milliseconds since 1970."""
        ...

    def wake(self) -> None:
        """The queue or the clusters have changed: decide soon. May be called often."""
        ...

    def ready(self) -> Refusal | None:
        """Why decisions cannot be made now; None when they can."""
        ...

    def views(self) -> Sequence[ClusterView]:
        """What is known of every cluster object, by name."""
        ...

    def expectations(self) -> Mapping[str, Expectation]:
        """What the last plan expects, by entry id; entries it has not seen yet are missing."""
        ...

    def why(self, entry: Entry) -> Why:
        """Why an entry is where it is."""
        ...
