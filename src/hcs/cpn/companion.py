"""Keeps company with what was released: since when it runs, how far it is, whether it ever begins, how it ends."""

from collections.abc import Callable

from hcs.cpn.attempts import Finished, outcome_of, peak_of, told_seconds
from hcs.cpn.elapsed import elapsed
from hcs.cpn.endings import Messages, ending, failed_container, over, why_pending
from hcs.cpn.idling import Idling
from hcs.cpn.limits import Settings
from hcs.cpn.moves import Moves
from hcs.cpn.peaks import Peaks
from hcs.cpn.reports import read_log, read_pods
from hcs.cpn.takingback import take_back
from hcs.cpn.watching import Station
from hcs.kube import resources
from hcs.store.queue import QueueStore
from hcs.wide.entries import Entry, Placement
from hcs.wide.jobs import Milliseconds


class Companion:
    """Of entries that are ``Running``, and of every Job that is over."""

    def __init__(
        self,
        store: QueueStore,
        moves: Moves,
        *,
        messages: Messages,
        now: Callable[[], Milliseconds],
        learned: Callable[[Finished], None],
        settings: Settings,
    ) -> None:
        """
        Args:
            store: the queue.
            moves: changes states.
            messages: how frameworks say that memory ran out.
            now: milliseconds since 1970.
            learned: keeps what an attempt taught; called inside the transaction that records its end.
            settings: limits.
        """
        self._store, self._moves, self._messages, self._now = store, moves, messages, now
        self._learned, self._settings = learned, settings
        self.peaks, self._idling = Peaks(), Idling(now())
        self._began: dict[str, Milliseconds] = {}
        """By Job UID: when its pods were first seen to run."""
        self._heard: dict[str, Milliseconds] = {}
        self.withdrawn: dict[str, tuple[str, str]] = {}
        """Entries whose Jobs are being taken back, and why, as reason and sentence."""
        moves.leaving.append(self._left)

    def forget(self, id: str) -> None:
        """An entry is not on its way any more."""
        self.withdrawn.pop(id, None)
        self._heard.pop(id, None)

    def _left(self, id: str, placement: Placement) -> None:
        self.forget(id)
        self._began.pop(placement.uid, None)
        self._idling.forget(placement.uid)
        self.peaks.forget(placement.uid)

    async def watch(self, entry: Entry, station: Station) -> float | None:
        """One look at an entry that was released; seconds until the next, None when it left its place.

        Raises:
            UnansweredError: its cluster did not say what had to be asked.
            RejectedError: its cluster does not let us.
        """
        placement, namespace = entry.placement, entry.submission.namespace
        assert placement is not None
        if not station.synced:
            self._moves.notes[entry.id] = (
                "ClusterUnreachable",
                f"cluster {station.name} has not been read yet; the job is kept",
            )
            return 5.0
        job, pods = station.job(placement, namespace), station.pods_of(placement.uid)
        if entry.id in self.withdrawn:
            found = await take_back(entry, station.actions)
            job, pods = found.job, found.pods
            if found.standing == "Waits":
                self._moves.notes[entry.id] = self.withdrawn[entry.id]
                return 1.0
            if found.standing == "Began":
                del self.withdrawn[entry.id]
                self._idling.runs(placement.uid)
                return 1.0
        elif job is None or (placement.uid and job.metadata.uid != placement.uid):
            job = await station.actions.get(placement.job, namespace)
            if job is None or (placement.uid and job.metadata.uid != placement.uid):
                job, pods = None, await station.actions.pods(placement.uid, namespace, entry.id)
        living = [pod for pod in pods if not pod.finished]
        if job is None:
            if living:
                self._moves.notes[entry.id] = (
                    "PodsLinger",
                    f"Job {placement.job} is gone from {station.name}, its pods are not yet",
                )
                return 5.0
            reason, message = self.withdrawn.pop(
                entry.id, ("JobVanished", f"somebody deleted Job {placement.job} on {station.name} while it ran")
            )
            self._moves.again(entry, reason, message)
            return None
        if over(job) is not None:
            if over(job) == "Failed" and living:
                self._moves.notes[entry.id] = "PodsLinger", f"it failed on {station.name}, its pods have not ended yet"
                return 1.0
            await self.conclude(entry, station, job, pods)
            return None
        return await self._accompany(entry, station, job, pods)

    async def _accompany(
        self, entry: Entry, station: Station, job: resources.Job, pods: list[resources.Pod]
    ) -> float | None:
        """While it runs: since when, how far; and take it back where it never begins."""
        placement, settings = entry.placement, self._settings
        assert placement is not None
        running = [pod for pod in pods if pod.status.phase == "Running"]
        if running:
            ran = self._now() - self._began.setdefault(placement.uid, self._now())
            if not placement.shared and placement.host is None:
                self.peaks.see(placement.uid, running, *station.readings(), ran=ran)
            self._idling.runs(placement.uid)
            self._moves.notes.pop(entry.id, None)
        elif not pods or all(pod.status.phase in ("", "Pending") for pod in pods):
            waited = self._idling.waits(placement, pods, self._now(), elapsed()) / 1000
            begin, limit = f"{station.name} did not start it", f"within {settings.pending_limit:g} s; planned anew"
            reason = "NeverStarted"
            self._moves.notes[entry.id] = (
                "PodPending",
                why_pending(pods) or f"{station.name} has not started its pods yet",
            )
            if self._idling.ran(placement.uid):
                reason, begin = "NotResumed", f"{station.name} took its pods away and did not run it again"
            if job.spec.get("suspend"):
                reason, begin = "Suspended", f"somebody suspended Job {placement.job} on {station.name}, not resumed"
                self._moves.notes[entry.id] = "Suspended", f"{begin} yet; it is planned anew when that lasts"
            if waited > settings.pending_limit:
                self.withdrawn[entry.id] = reason, f"{begin} {limit}, behind others"
                return 0.0
            return min(settings.pending_limit - waited + 1, 60.0)
        await self._hear(entry, station, running)
        return settings.progress_seconds

    async def _hear(self, entry: Entry, station: Station, running: list[resources.Pod]) -> None:
        if not running or self._now() - self._heard.get(entry.id, 0) < self._settings.progress_seconds * 900:
            return
        self._heard[entry.id] = self._now()
        pod = running[0]
        text = await station.actions.log(
            pod.metadata.name, entry.submission.namespace, _container(pod), lines=50, most=self._settings.log_bytes
        )
        progress = read_pods(running).over(read_log(text)).progress
        if progress is not None and progress != entry.progress:
            self._store.amend(entry, now=self._now(), progress=progress)

    async def conclude(self, entry: Entry, station: Station, job: resources.Job, pods: list[resources.Pod]) -> None:
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
                self._moves.move(
                    entry, "Succeeded", "Completed", f"done on {station.name} in {seconds:.1f} s", progress=1.0
                )
            elif entry.state == "Cancelling" or ended.kind == "DeadlineExceeded":
                self._moves.move(entry, "Failed", ended.kind, ended.message, attempts=entry.attempts + 1)
            else:
                self._moves.again(entry, ended.kind, ended.message)

    async def _log(self, entry: Entry, station: Station, pods: list[resources.Pod]) -> str:
        ended = failed_container(pods)
        name = ended["pod"] if ended else max((pod.metadata.name for pod in pods), default=None)
        if name is None:
            return ""
        container = ended["container"] if ended else _container(next(p for p in pods if p.metadata.name == name))
        return await station.actions.log(
            name, entry.submission.namespace, container, lines=self._settings.log_lines, most=self._settings.log_bytes
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


def _container(pod: resources.Pod) -> str | None:
    return pod.spec.containers[0].name if pod.spec.containers else None
