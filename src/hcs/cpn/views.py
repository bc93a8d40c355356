"""What is known of a cluster at one moment: the seam between those who collect and the controller who decides.

A view is a value. Every figure that comes from a metric carries its age, since a reading may be a minute old and says
nothing about a Job that was sent after it; the controller adds its own dispatches that a view cannot have seen yet.
"""

from typing import Protocol

import msgspec
from lightkube import AsyncClient

from hcs.wide.jobs import Bytes, Milliseconds


class Reading(msgspec.Struct, frozen=True, omit_defaults=True):
    """A figure and how old it was when it was read."""

    value: float
    age: Milliseconds = 0


class PoolView(msgspec.Struct, frozen=True, omit_defaults=True):
    """Cards of one model in one cluster. ``usable``: healthy, not quarantined; ``taken``: by whom we did not send.

    ``taken`` is in cards, and counts pods and Jobs of others as the cluster's API shows them. ``memory`` is one card's
    in bytes. ``busy`` is the mean utilisation (0 to 1) and ``used`` the mean memory in use, from metrics. ``ours`` are
    cards that pods we sent hold, also where others share them; so ``usable - taken - ours`` are free by the API.

    ``cpu`` is each usable card's share of its node's CPU in millicores, the mean of the pool, None: not known;
    ``cpu_asked`` is what pods of others ask of that, and ``cpu_busy`` the share of the hosts' CPU in use (0 to 1), by
    whomever, from metrics.
    """

    kind: str
    usable: int
    taken: int = 0
    memory: Bytes | None = None
    busy: Reading | None = None
    used: Reading | None = None
    ours: int = 0
    cpu: int | None = None
    cpu_asked: int = 0
    cpu_busy: Reading | None = None


class ClusterView(msgspec.Struct, frozen=True, omit_defaults=True):
    """One cluster. ``reachable`` is about its API; metrics may be missing while it is.

    ``cpu_busy`` is the share of CPU in use (0 to 1), of the hosts that have cards. ``host_free`` is free host memory in
    bytes, of the host that has most: a pod lives on one. ``foreign_jobs`` are Jobs that others created and that still
    run. ``missing`` says in sentences which metrics are not there, and ``doubts`` what is there and hard to believe.
    ``seen`` is the moment of the last good answer; ``message`` is why the cluster cannot be reached, empty while it
    can. What is shown of an unreachable cluster is the last that was known.
    """

    name: str
    reachable: bool
    pools: tuple[PoolView, ...] = ()
    cpu_busy: Reading | None = None
    host_free: Reading | None = None
    foreign_jobs: int = 0
    missing: tuple[str, ...] = ()
    seen: Milliseconds = 0
    message: str = ""
    doubts: tuple[str, ...] = ()


class Cluster(Protocol):
    """A live cluster, as the controller uses it."""

    @property
    def name(self) -> str: ...

    @property
    def client(self) -> AsyncClient: ...

    def view(self) -> ClusterView:
        """What is known now; from memory, never waits."""
        ...
