"""Brings a placed job to its cluster and back, exactly once, whatever dies meanwhile.

Every step is written down before it is taken and after it was seen to have happened:

    Placing  --create suspended-->  Created  --release-->  Running  --it ends-->  Succeeded, Failed, or Queued again

A step can be taken twice without harm: each placement has a name of its own, so creating it again meets the first; a
Job is created suspended, so one that nobody recorded never runs; a release names the Job's UID; an end is recorded in
one transaction with what it teaches. An entry goes back to the queue only when its Job is over, or was seen to be gone
by asking the cluster itself, or can never have run. A cluster that does not answer keeps its jobs.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from hcs.cpn.attempts import Finished
from hcs.cpn.clusterjobs import ForeignError, RejectedError, UnansweredError
from hcs.cpn.companion import Companion
from hcs.cpn.endings import Messages, over
from hcs.cpn.jobmanifest import job_manifest
from hcs.cpn.limits import Settings
from hcs.cpn.moves import Moves
from hcs.cpn.refusing import Refusals
from hcs.cpn.takingback import take_back
from hcs.cpn.watching import Station
from hcs.store.errors import StaleEntryError
from hcs.store.queue import QueueStore
from hcs.wide.entries import Entry
from hcs.wide.jobs import Bytes, Milliseconds
from hcs.wide.lifecycle import PLACED

log = logging.getLogger(__name__)

_LONGEST_PAUSE: Final = 30.0
_PROBES: Final = 2
"""So many steps at once are taken on a cluster out of reach: each may wait for as long as a request can, and others
need the workers."""
_PROBE_PAUSE: Final = 5.0
_TRIES: Final = 5
"""So often at least the same is asked of a cluster before it is given up."""


class Dispatcher:
    """Takes one entry a step on; see :class:`hcs.cpn.stepping.Stepper`."""

    def __init__(
        self,
        store: QueueStore,
        station: Callable[[str], Station | None],
        *,
        messages: Messages,
        now: Callable[[], Milliseconds],
        may_act: Callable[[], bool] = lambda: True,
        learned: Callable[[Finished], None] = lambda _: None,
        card_memory: Callable[[str, str], Bytes | None] = lambda cluster, kind: None,
        gone: Callable[[str], bool] = lambda cluster: False,
        clusters: Callable[[], Iterable[str]] = tuple,
        settings: Settings | None = None,
    ) -> None:
        """Prepare.

        Args:
            store: the queue.
            station: the live cluster of a name; None while there is none.
            messages: how frameworks say that memory ran out.
            now: milliseconds since 1970.
            may_act: whether this process is still the one that acts.
            learned: keeps what an attempt taught; called inside the transaction that records its end.
            card_memory: bytes of a card of a kind on a cluster, if known.
            gone: whether a cluster is out of reach and its operator vouches that nothing runs there any more.
            clusters: the names of all live clusters.
            settings: limits.
        """
        self._store, self._station, self._now = store, station, now
        self._may_act, self._gone = may_act, gone
        self.settings = settings or Settings()
        self._refusals = Refusals(clusters)
        self._moves = Moves(store, self._refusals, now=now, card_memory=card_memory, settings=self.settings)
        self._companion = Companion(
            store, self._moves, messages=messages, now=now, learned=learned, settings=self.settings
        )
        self.refused, self.notes, self.peaks = self._refusals.until, self._moves.notes, self._companion.peaks
        self._failures: dict[str, int] = {}
        self._asking: Counter[str] = Counter()
        """By cluster: steps under way there."""

    async def step(self, id: str) -> float | None:
        """Take an entry one step on, and say when to look again."""
        entry = self._store.get(id)
        if entry is None or entry.state not in PLACED or entry.placement is None:
            self.notes.pop(id, None)
            self._companion.forget(id)
            return None
        if not self._may_act():
            self.notes[id] = "NotLeading", "another controller acts for this queue, or the lease could not be renewed"
            return 1.0
        if self._gone(entry.placement.cluster):
            self._moves.lose(entry, entry.placement.cluster)
            return None
        station = self._station(entry.placement.cluster)
        if station is None:
            self.notes[id] = (
                "ClusterUnknown",
                f"cluster {entry.placement.cluster} is not connected; the job is kept as it is until it is back. "
                "Should nothing run there any more: 'hcs cpn clusters add' it again, then 'hcs cpn clusters gone'",
            )
            return 5.0
        if not station.cluster.view().reachable and self._asking[station.name] >= _PROBES:
            message = f"cluster {station.name} does not answer; the job is kept, and looked at when it does"
            self.notes[id] = "ClusterUnreachable", message
            return _PROBE_PAUSE
        self._asking[station.name] += 1
        try:
            again = await self._take(entry, station)
        except UnansweredError as error:
            return self._pause(entry, "ClusterUnreachable", f"cluster {station.name}: {error}; trying again")
        except RejectedError as error:
            return self._pause(entry, error.reason, f"cluster {station.name} refuses: {error}")
        except StaleEntryError:
            return 0.05
        finally:
            self._asking[station.name] -= 1
        self._failures.pop(id, None)
        return again

    async def _take(self, entry: Entry, station: Station) -> float | None:
        match entry.state:
            case "Placing":
                return await self._create(entry, station)
            case "Created":
                return await self._release(entry, station)
            case "Running":
                return await self._companion.watch(entry, station)
            case _:
                return await self._cancel(entry, station)

    async def _create(self, entry: Entry, station: Station) -> float | None:
        placement = entry.placement
        assert placement is not None
        out_of_reach = self._now() - max(entry.changed, station.cluster.view().seen)
        if (
            station.lost_after is not None
            and not station.cluster.view().reachable
            and out_of_reach > station.lost_after
        ):
            # It was never released, so whatever the cluster may hold of it never runs, and is collected later.
            self._moves.requeue(
                entry, "ClusterLost", f"cluster {station.name} is out of reach; planned anew, it never ran there"
            )
            return None
        manifest = job_manifest(entry, placement, self._store.queue_id, overlay=station.overlay, store=station.blobs)
        try:
            job = await station.actions.create(manifest)
        except ForeignError as error:
            self._moves.move(
                entry, "Refused", "NameTaken", f"cluster {station.name}: {error}; rename that Job and submit again"
            )
            return None
        except RejectedError as error:
            self._refusals.add(entry.id, station.name, self._now())
            counts = self._refusals.blame(entry.id, error.reason, str(error))
            self._moves.again(entry, error.reason, f"cluster {station.name} refused the Job: {error}", counts=counts)
            return None
        except UnansweredError as error:
            if not self._given_up(entry, station):
                raise
            # It was never released, as above.
            self._refusals.add(entry.id, station.name, self._now())
            self._moves.requeue(
                entry, "NotCreated", f"cluster {station.name} takes no Jobs ({error}); it never ran there"
            )
            return None
        made = msgspec.structs.replace(placement, uid=job.metadata.uid)
        self._moves.move(
            entry, "Created", "JobCreated", f"Job {placement.job} is on {station.name}, suspended", placement=made
        )
        return 0.0

    def _given_up(self, entry: Entry, station: Station) -> bool:
        """Whether a cluster has been asked the same for too long. One out of reach has its own rule."""
        waited, limit = self._now() - entry.changed, station.lost_after
        reachable = station.cluster.view().reachable
        return reachable and limit is not None and waited > limit and self._failures.get(entry.id, 0) >= _TRIES

    async def _release(self, entry: Entry, station: Station) -> float | None:
        placement, namespace = entry.placement, entry.submission.namespace
        assert placement is not None
        if entry.id in self._companion.withdrawn:
            return await self._withdraw(entry, station)
        try:
            there = await station.actions.release(placement.job, namespace, placement.uid)
        except RejectedError as error:
            job = await station.actions.get(placement.job, namespace)
            if job is not None and over(job) is None:
                return self._hold_back(entry, station, error)
            there = job is not None
        except UnansweredError as error:
            return self._hold_back(entry, station, error)
        if not there:
            self._moves.again(
                entry, "JobVanished", f"somebody deleted Job {placement.job} on {station.name} before it ran"
            )
            return None
        return self._released(entry, station)

    def _released(self, entry: Entry, station: Station) -> float:
        assert entry.placement is not None
        begun = msgspec.structs.replace(entry.placement, started=self._now())
        self._moves.move(entry, "Running", "JobReleased", f"runs on {begun.kind} of {station.name}", placement=begun)
        return 0.0

    def _hold_back(self, entry: Entry, station: Station, error: UnansweredError | RejectedError) -> float:
        """It cannot be released. Whether an earlier attempt did it nobody knows, so it is removed there before it is
        planned anew."""
        if not self._given_up(entry, station):
            raise error
        message = f"cluster {station.name} does not let its Job run ({error}); planned anew"
        self._companion.withdrawn[entry.id] = "NotReleased", message
        return 0.0

    async def _withdraw(self, entry: Entry, station: Station) -> float | None:
        """Of a Job that could not be released."""
        found = await take_back(entry, station.actions)
        if found.standing in ("Began", "Over"):
            del self._companion.withdrawn[entry.id]
            return self._released(entry, station)  # by an earlier request
        if found.standing != "Gone":
            self.notes[entry.id] = self._companion.withdrawn[entry.id]
            return 1.0
        self._refusals.add(entry.id, station.name, self._now())
        self._moves.again(entry, *self._companion.withdrawn.pop(entry.id), counts=False)
        return None

    async def _cancel(self, entry: Entry, station: Station) -> float | None:
        placement, namespace = entry.placement, entry.submission.namespace
        assert placement is not None
        job = await station.actions.get(placement.job, namespace)
        if job is not None and placement.uid and job.metadata.uid != placement.uid:
            job = None
        if job is None:
            if station.synced and any(not pod.finished for pod in station.pods_of(placement.uid)):
                return 1.0
            self._moves.move(entry, "Cancelled", "Cancelled", f"its Job on {station.name} is gone")
            return None
        ended = over(job)
        if ended == "Complete" or (ended == "Failed" and job.metadata.deletionTimestamp is None):
            await self._companion.conclude(entry, station, job, station.pods_of(job.metadata.uid))
            return None
        if job.metadata.deletionTimestamp is None:
            await station.actions.delete(placement.job, namespace)
            return 0.2
        self.notes[entry.id] = "PodsLinger", f"its Job on {station.name} is being deleted, its pods have not ended yet"
        return 2.0

    def _pause(self, entry: Entry, reason: str, message: str) -> float:
        count = self._failures[entry.id] = self._failures.get(entry.id, 0) + 1
        self.notes[entry.id] = reason, message
        waited = (self._now() - entry.changed) / 1000
        level = logging.WARNING if waited > self.settings.step_limit else logging.INFO
        log.log(level, "no step possible: job=%s state=%s waited=%.0f %s", entry.id, entry.state, waited, message)
        return min(_LONGEST_PAUSE, 0.25 * 2.0 ** min(count, 10))
