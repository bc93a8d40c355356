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
from typing import Any, Final

import msgspec

from hcs.cpn.attempts import Finished, floors, outcome_of, peak_of, told_seconds
from hcs.cpn.clusterjobs import ForeignError, RejectedError, UnansweredError
from hcs.cpn.elapsed import elapsed
from hcs.cpn.endings import Messages, ending, failed_container, over, why_pending
from hcs.cpn.idling import Idling
from hcs.cpn.jobmanifest import job_manifest
from hcs.cpn.peaks import Peaks
from hcs.cpn.refusing import Refusals
from hcs.cpn.reports import read_log, read_pods
from hcs.cpn.takingback import take_back
from hcs.cpn.watching import Station
from hcs.kube import resources
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


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``attempts``: runs that may end badly. Times in seconds, the log in lines and bytes.

    ``step_limit`` is how long an entry may stand in ``Placing``, ``Created`` or ``Cancelling`` until that is told as a
    warning; ``pending_limit`` how long a released Job may have no running pod until it is taken back. ``retry_pause``
    is how long the cluster on which a run failed by itself is left out, twice as long each time up to six minutes, as
    Kubernetes' own Job controller does: a sick card must not use up all attempts in a second.
    """

    attempts: int = 4
    step_limit: float = 60.0
    pending_limit: float = 900.0
    retry_pause: float = 10.0
    log_lines: int = 400
    log_bytes: int = 64 * 1024
    progress_seconds: float = 15.0


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
        self._store, self._station, self._messages, self._now = store, station, messages, now
        self._may_act, self._learned = may_act, learned
        self._gone = gone
        self._card_memory, self.peaks, self._idling = card_memory, Peaks(), Idling(now())
        self.settings = settings or Settings()
        self.notes: dict[str, tuple[str, str]] = {}
        """Of entries that stand still: why, as reason and sentence."""
        self._refusals = Refusals(clusters)
        self.refused = self._refusals.until
        self._failures: dict[str, int] = {}
        self._began: dict[str, Milliseconds] = {}
        """By Job UID: when its pods were first seen to run."""
        self._withdrawn: dict[str, tuple[str, str]] = {}
        self._heard: dict[str, Milliseconds] = {}
        self._asking: Counter[str] = Counter()
        """By cluster: steps under way there."""

    async def step(self, id: str) -> float | None:
        """Take an entry one step on, and say when to look again."""
        entry = self._store.get(id)
        if entry is None or entry.state not in PLACED or entry.placement is None:
            self._forget(id)
            return None
        if not self._may_act():
            self.notes[id] = "NotLeading", "another controller acts for this queue, or the lease could not be renewed"
            return 1.0
        if self._gone(entry.placement.cluster):
            self._lose(entry, entry.placement.cluster)
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
                return await self._watch(entry, station)
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
            self._requeue(
                entry, "ClusterLost", f"cluster {station.name} is out of reach; planned anew, it never ran there"
            )
            return None
        manifest = job_manifest(entry, placement, self._store.queue_id, overlay=station.overlay, store=station.blobs)
        try:
            job = await station.actions.create(manifest)
        except ForeignError as error:
            self._move(
                entry, "Refused", "NameTaken", f"cluster {station.name}: {error}; rename that Job and submit again"
            )
            return None
        except RejectedError as error:
            self._refusals.add(entry.id, station.name, self._now())
            counts = self._refusals.blame(entry.id, error.reason, str(error))
            self._again(entry, error.reason, f"cluster {station.name} refused the Job: {error}", counts=counts)
            return None
        except UnansweredError as error:
            if not self._given_up(entry, station):
                raise
            # It was never released, as above.
            self._refusals.add(entry.id, station.name, self._now())
            self._requeue(entry, "NotCreated", f"cluster {station.name} takes no Jobs ({error}); it never ran there")
            return None
        made = msgspec.structs.replace(placement, uid=job.metadata.uid)
        self._move(
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
        if entry.id in self._withdrawn:
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
            self._again(entry, "JobVanished", f"somebody deleted Job {placement.job} on {station.name} before it ran")
            return None
        return self._released(entry, station)

    def _released(self, entry: Entry, station: Station) -> float:
        assert entry.placement is not None
        begun = msgspec.structs.replace(entry.placement, started=self._now())
        self._move(entry, "Running", "JobReleased", f"runs on {begun.kind} of {station.name}", placement=begun)
        return 0.0

    def _hold_back(self, entry: Entry, station: Station, error: UnansweredError | RejectedError) -> float:
        """It cannot be released. Whether an earlier attempt did it nobody knows, so it is removed there before it is
        planned anew."""
        if not self._given_up(entry, station):
            raise error
        message = f"cluster {station.name} does not let its Job run ({error}); planned anew"
        self._withdrawn[entry.id] = "NotReleased", message
        return 0.0

    async def _withdraw(self, entry: Entry, station: Station) -> float | None:
        """Of a Job that could not be released."""
        found = await take_back(entry, station.actions)
        if found.standing in ("Began", "Over"):
            del self._withdrawn[entry.id]
            return self._released(entry, station)  # by an earlier request
        if found.standing != "Gone":
            return 1.0
        self._refusals.add(entry.id, station.name, self._now())
        self._again(entry, *self._withdrawn.pop(entry.id), counts=False)
        return None

    async def _watch(self, entry: Entry, station: Station) -> float | None:
        placement, namespace = entry.placement, entry.submission.namespace
        assert placement is not None
        if not station.synced:
            self.notes[entry.id] = (
                "ClusterUnreachable",
                f"cluster {station.name} has not been read yet; the job is kept",
            )
            return 5.0
        job, pods = station.job(placement, namespace), station.pods_of(placement.uid)
        if entry.id in self._withdrawn:
            found = await take_back(entry, station.actions)
            job, pods = found.job, found.pods
            if found.standing == "Waits":
                return 1.0
            if found.standing == "Began":
                del self._withdrawn[entry.id]
                self._idling.runs(placement.uid)
                return 1.0
        elif job is None or (placement.uid and job.metadata.uid != placement.uid):
            job = await station.actions.get(placement.job, namespace)
            if job is None or (placement.uid and job.metadata.uid != placement.uid):
                job, pods = None, await station.actions.pods(placement.uid, namespace, entry.id)
        living = [pod for pod in pods if not pod.finished]
        if job is None:
            if living:
                self.notes[entry.id] = (
                    "PodsLinger",
                    f"Job {placement.job} is gone from {station.name}, its pods are not yet",
                )
                return 5.0
            reason, message = self._withdrawn.pop(
                entry.id, ("JobVanished", f"somebody deleted Job {placement.job} on {station.name} while it ran")
            )
            self._again(entry, reason, message)
            return None
        if over(job) is not None:
            if over(job) == "Failed" and living:
                self.notes[entry.id] = "PodsLinger", f"it failed on {station.name}, its pods have not ended yet"
                return 1.0
            await self._conclude(entry, station, job, pods)
            return None
        return await self._accompany(entry, station, job, pods)

    async def _accompany(
        self, entry: Entry, station: Station, job: resources.Job, pods: list[resources.Pod]
    ) -> float | None:
        """While it runs: since when, how far; and take it back where it never begins."""
        placement, settings = entry.placement, self.settings
        assert placement is not None
        running = [pod for pod in pods if pod.status.phase == "Running"]
        if running:
            ran = self._now() - self._began.setdefault(placement.uid, self._now())
            if not placement.shared and placement.host is None:
                self.peaks.see(placement.uid, running, *station.readings(), ran=ran)
            self._idling.runs(placement.uid)
            self.notes.pop(entry.id, None)
        elif not pods or all(pod.status.phase in ("", "Pending") for pod in pods):
            waited = self._idling.waits(placement, pods, self._now(), elapsed()) / 1000
            begin, limit = f"{station.name} did not start it", f"within {settings.pending_limit:g} s; planned anew"
            reason = "NeverStarted"
            self.notes[entry.id] = "PodPending", why_pending(pods) or f"{station.name} has not started its pods yet"
            if self._idling.ran(placement.uid):
                reason, begin = "NotResumed", f"{station.name} took its pods away and did not run it again"
            if job.spec.get("suspend"):
                reason, begin = "Suspended", f"somebody suspended Job {placement.job} on {station.name}, not resumed"
                self.notes[entry.id] = "Suspended", f"{begin} yet; it is planned anew when that lasts"
            if waited > settings.pending_limit:
                self._withdrawn[entry.id] = reason, f"{begin} {limit}, behind others"
                return 0.0
            return min(settings.pending_limit - waited + 1, 60.0)
        await self._hear(entry, station, running)
        return settings.progress_seconds

    async def _hear(self, entry: Entry, station: Station, running: list[resources.Pod]) -> None:
        if not running or self._now() - self._heard.get(entry.id, 0) < self.settings.progress_seconds * 900:
            return
        self._heard[entry.id] = self._now()
        pod = running[0]
        text = await station.actions.log(
            pod.metadata.name, entry.submission.namespace, _container(pod), lines=50, most=self.settings.log_bytes
        )
        progress = read_pods(running).over(read_log(text)).progress
        if progress is not None and progress != entry.progress:
            self._store.amend(entry, now=self._now(), progress=progress)

    async def _cancel(self, entry: Entry, station: Station) -> float | None:
        placement, namespace = entry.placement, entry.submission.namespace
        assert placement is not None
        job = await station.actions.get(placement.job, namespace)
        if job is not None and placement.uid and job.metadata.uid != placement.uid:
            job = None
        if job is None:
            if station.synced and any(not pod.finished for pod in station.pods_of(placement.uid)):
                return 1.0
            self._move(entry, "Cancelled", "Cancelled", f"its Job on {station.name} is gone")
            return None
        ended = over(job)
        if ended == "Complete" or (ended == "Failed" and job.metadata.deletionTimestamp is None):
            await self._conclude(entry, station, job, station.pods_of(job.metadata.uid))
            return None
        if job.metadata.deletionTimestamp is None:
            await station.actions.delete(placement.job, namespace)
            return 0.2
        self.notes[entry.id] = "PodsLinger", f"its Job on {station.name} is being deleted, its pods have not ended yet"
        return 2.0

    async def _conclude(self, entry: Entry, station: Station, job: resources.Job, pods: list[resources.Pod]) -> None:
        """Record how it ended and what that teaches, in one transaction."""
        placement = entry.placement
        assert placement is not None
        text = await self._log(entry, station, pods)
        ended = ending(job, pods, text, self._messages)
        report = read_log(text).over(read_pods(pods))
        peak, source = peak_of(report, self.peaks.of(job.metadata.uid), ended, placement.memory)
        seconds = self._seconds(entry, pods)
        with self._store.together():
            self._learned(Finished(entry, outcome_of(ended), seconds, peak, source))
            if text:
                self._store.put_log(entry.id, entry.attempts, text)
            if ended.succeeded:
                self._move(entry, "Succeeded", "Completed", f"done on {station.name} in {seconds:.1f} s", progress=1.0)
            elif entry.state == "Cancelling" or ended.kind == "DeadlineExceeded":
                self._move(entry, "Failed", ended.kind, ended.message, attempts=entry.attempts + 1)
            else:
                self._again(entry, ended.kind, ended.message)

    async def _log(self, entry: Entry, station: Station, pods: list[resources.Pod]) -> str:
        ended = failed_container(pods)
        name = ended["pod"] if ended else max((pod.metadata.name for pod in pods), default=None)
        if name is None:
            return ""
        container = ended["container"] if ended else _container(next(p for p in pods if p.metadata.name == name))
        return await station.actions.log(
            name, entry.submission.namespace, container, lines=self.settings.log_lines, most=self.settings.log_bytes
        )

    def _seconds(self, entry: Entry, pods: list[resources.Pod]) -> float:
        """How long it held its cards. Kubernetes writes whole seconds; for short runs what we saw is finer."""
        placement = entry.placement
        assert placement is not None
        began = self._began.get(placement.uid)
        seen = (self._now() - began) / 1000 if began is not None else None
        told = told_seconds(pods)
        if told is not None and (seen is None or abs(told - seen) > 2):
            return max(told, 0.5)
        if seen is not None:
            return max(seen, 0.001)
        return max((self._now() - (placement.started or placement.decided)) / 1000, 0.001)

    def _again(self, entry: Entry, reason: str, message: str, *, counts: bool = True) -> None:
        """Back into the queue behind the others, or out of it when that was once too often."""
        attempts = entry.attempts + counts
        placement = entry.placement
        assert placement is not None
        whole = self._card_memory(placement.cluster, placement.kind)
        changes: dict[str, Any] = {"attempts": attempts, **floors(entry, reason, whole)}
        limit = self.settings.attempts
        if reason == "JobFailed" and isinstance(own := (entry.manifest.get("spec") or {}).get("backoffLimit"), int):
            limit = max(1, min(limit, own + 1))
        if attempts >= limit:
            said = f"{message}; that was attempt {attempts} of {limit}: look at its log ('hcs cpn job {entry.id}')"
            self._move(entry, "Failed", "TooManyFailures", f"{reason}: {said}", **changes)
            return
        if reason == "JobFailed":
            pause = min(360.0, self.settings.retry_pause * 2.0 ** (attempts - 1))
            self.refused[entry.id, placement.cluster] = self._now() + round(pause * 1000)
        self._requeue(entry, reason, message, **changes)

    def _lose(self, entry: Entry, cluster: str) -> None:
        """Its cluster is gone, by its operator's word."""
        message = f"cluster {cluster} is gone with all that ran there, as its operator says"
        if entry.state == "Cancelling":
            self._move(entry, "Cancelled", "ClusterGone", message)
        else:
            self._again(entry, "ClusterGone", message, counts=False)

    def _requeue(self, entry: Entry, reason: str, message: str, **changes: Any) -> None:
        self._move(entry, "Queued", reason, message, behind=True, **changes)

    def _move(self, entry: Entry, after: Any, reason: str, message: str, **changes: Any) -> Entry:
        moved = self._store.move(entry, after, now=self._now(), reason=reason, message=message, **changes)
        self.notes.pop(entry.id, None)
        if after != "Queued":
            self._refusals.taken(entry.id)
        if after not in PLACED and entry.placement is not None:
            self._forget(entry.id)
            self._began.pop(entry.placement.uid, None)
            self._idling.forget(entry.placement.uid)
            self.peaks.forget(entry.placement.uid)
        log.info("job moved: job=%s state=%s reason=%s %s", entry.id, after, reason, message)
        return moved

    def _forget(self, id: str) -> None:
        for known in (self.notes, self._withdrawn, self._heard):
            known.pop(id, None)

    def _pause(self, entry: Entry, reason: str, message: str) -> float:
        count = self._failures[entry.id] = self._failures.get(entry.id, 0) + 1
        self.notes[entry.id] = reason, message
        waited = (self._now() - entry.changed) / 1000
        level = logging.WARNING if waited > self.settings.step_limit else logging.INFO
        log.log(level, "no step possible: job=%s state=%s waited=%.0f %s", entry.id, entry.state, waited, message)
        return min(_LONGEST_PAUSE, 0.25 * 2.0 ** min(count, 10))


def _container(pod: resources.Pod) -> str | None:
    return pod.spec.containers[0].name if pod.spec.containers else None
