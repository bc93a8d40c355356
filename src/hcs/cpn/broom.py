"""Carries out what :mod:`hcs.cpn.orphans` judges: Jobs that no entry claims are taken back, removed, or told of.

What an informer shows may be old, so before anything is done the Job is read from the cluster itself, and its entry
from the store; nothing lies between that and the deed but one request.
"""

import contextlib
import logging
from collections.abc import Callable, Iterable

from hcs.cpn.clusterjobs import RejectedError, UnansweredError
from hcs.cpn.elapsed import elapsed
from hcs.cpn.endings import over
from hcs.cpn.orphans import Graces, first_seen, judge
from hcs.cpn.watching import Station
from hcs.kube import resources
from hcs.model import names
from hcs.store.errors import StaleEntryError
from hcs.store.queue import QueueStore
from hcs.wide.entries import LABEL_ENTRY, Entry, Placement
from hcs.wide.jobs import Milliseconds

log = logging.getLogger(__name__)


class Broom:
    """Sweeps all clusters; remembers since when it saw what nobody claims, by time that no clock changes."""

    def __init__(
        self,
        store: QueueStore,
        graces: Graces,
        *,
        now: Callable[[], Milliseconds],
        may_act: Callable[[], bool],
    ) -> None:
        self._store, self._graces, self._now, self._may_act = store, graces, now, may_act
        self._unclaimed: dict[str, dict[str, Milliseconds]] = {}

    async def sweep(self, stations: Iterable[Station]) -> None:
        """Look at every Job with our label once."""
        for station in list(stations):
            if not station.synced:
                continue
            found = {job.metadata.uid: job for job in station.jobs.values()}
            now = elapsed()
            doubtful = {
                uid
                for uid, job in found.items()
                if judge(job, station.name, self._entry(job), now, now, self._graces).reason != "Claimed"
            }
            self._unclaimed[station.name] = first_seen(self._unclaimed.get(station.name, {}), doubtful, now)
            for uid, since in self._unclaimed[station.name].items():
                try:
                    await self._judge(station, found[uid], since)
                except (UnansweredError, RejectedError) as error:
                    name = found[uid].metadata.name
                    log.warning("a Job nobody claims is left for now: job=%s error=%s", name, error)

    def _entry(self, job: resources.Job) -> Entry | None:
        return self._store.get((job.metadata.labels or {}).get(LABEL_ENTRY, ""))

    async def _judge(self, station: Station, seen: resources.Job, since: Milliseconds) -> None:
        namespace = seen.metadata.namespace or "default"
        first = judge(seen, station.name, self._entry(seen), since, elapsed(), self._graces)
        if first.action == "keep":
            if first.reason == "UnknownEntry":
                log.warning("a Job nobody claims: %s; it is removed when that stays so", first.message)
            return
        job = await station.actions.get(seen.metadata.name, namespace)
        if job is None or job.metadata.uid != seen.metadata.uid or not self._may_act():
            return
        entry = self._entry(job)
        verdict = judge(job, station.name, entry, since, elapsed(), self._graces)
        if verdict.action == "delete":
            log.info("deleting a Job: reason=%s %s", verdict.reason, verdict.message)
            await station.actions.delete(job.metadata.name, namespace)
        elif verdict.action == "adopt" and entry is not None:
            self._adopt(entry, station, job)

    def _adopt(self, entry: Entry, station: Station, job: resources.Job) -> None:
        """An entry that waits takes back the Job that runs for it; it passes through its states as any other."""
        now = self._now()
        template = (job.spec.get("template") or {}).get("metadata") or {}
        kind = str((template.get("annotations") or {}).get(names.MODELS, ""))
        placement = Placement(station.name, kind, now, now, now, job.metadata.name, uid=job.metadata.uid)
        message = f"its Job {job.metadata.name} is on {station.name} already{' and over' if over(job) else ''}"
        with contextlib.suppress(StaleEntryError):
            self._store.move(entry, "Placing", now=now, reason="TakenBack", message=message, placement=placement)
