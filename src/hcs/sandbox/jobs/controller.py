"""Carries the decisions about Jobs out, one Job at a time, whenever something about it changes."""

import asyncio
import datetime
import logging
from collections.abc import Callable
from typing import Any, Final

import httpx2
import msgspec
from lightkube import ApiError, AsyncClient
from lightkube.types import PatchType

from hcs.kube import manifests, resources
from hcs.kube.informer import ChangeKind, Informer
from hcs.kube.writes import EventRecorder
from hcs.model.pods import Pod
from hcs.sandbox.jobs.decisions import Decision, Pace, Tally, belongs, count, decide, pod_manifest

log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 2.0


class JobController:
    """The controller; ``ready`` is set when it knows all Jobs and pods."""

    def __init__(
        self,
        client: AsyncClient,
        *,
        pace: Pace | None = None,
        now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
    ) -> None:
        """Prepare; nothing happens before :meth:`run`.

        Args:
            client: the connection.
            pace: of replacements after failures; None takes the sandbox's quick one.
            now: the clock.
        """
        self._client, self._pace, self._now = client, pace or Pace(), now
        self._jobs = Informer(client, resources.Job)
        self._pods = Informer(client, resources.Pod)
        self._events = EventRecorder(client, "job-controller")
        self._tallies: dict[str, Tally] = {}
        self._awaited: dict[str, dict[str, Pod]] = {}
        """By Job: pods that were made and have not been seen yet, so that none is made twice."""
        self._gone: dict[str, set[str]] = {}
        """By Job: pods that were seen to go, which may be before the answer that they were made."""
        self._ended: dict[str, dict[str, Pod]] = {}
        """By Job: pods that were seen to end. One may be gone before its Job is looked at; a real controller holds it
        with a finalizer until it is counted."""
        self._due: set[str] = set()
        self._wake = asyncio.Event()
        self.ready = asyncio.Event()

    async def run(self) -> None:
        """Serve until cancelled."""
        self._jobs.on_change(self._job_changed)
        self._pods.on_change(self._pod_changed)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._jobs.run())
            group.create_task(self._pods.run())
            await asyncio.gather(self._jobs.synced.wait(), self._pods.synced.wait())
            self.ready.set()
            while True:
                await self._wake.wait()
                self._wake.clear()
                due, self._due = self._due, set()
                for uid in due:
                    await self._reconcile(uid)

    def _job_changed(self, kind: ChangeKind, job: resources.Job, before: resources.Job | None) -> None:
        if kind == "DELETED":
            self._tallies.pop(job.metadata.uid, None)
            self._awaited.pop(job.metadata.uid, None)
            self._gone.pop(job.metadata.uid, None)
            self._ended.pop(job.metadata.uid, None)
        else:
            self._look_at(job.metadata.uid)

    def _pod_changed(self, kind: ChangeKind, pod: resources.Pod, before: resources.Pod | None) -> None:
        owner = pod.controller
        if owner is not None and owner.kind == "Job":
            self._awaited.get(owner.uid, {}).pop(pod.metadata.uid, None)
            if kind == "DELETED":
                self._gone.setdefault(owner.uid, set()).add(pod.metadata.uid)
            if pod.finished:
                self._ended.setdefault(owner.uid, {})[pod.metadata.uid] = pod
            self._look_at(owner.uid)

    def _look_at(self, uid: str) -> None:
        self._due.add(uid)
        self._wake.set()

    async def _reconcile(self, uid: str) -> None:
        job = next((job for job in self._jobs.values() if job.metadata.uid == uid), None)
        if job is None or job.metadata.deletionTimestamp is not None:
            self._ended.pop(uid, None)
            return
        awaited = self._awaited.setdefault(uid, {})
        pods: list[Pod] = [pod for pod in self._pods.values() if belongs(pod, job)]
        pods += awaited.values()
        now = self._now()
        ended = self._ended.pop(uid, {})
        seen = [*pods, *(pod for pod in ended.values() if pod.metadata.uid not in {one.metadata.uid for one in pods})]
        tally = self._tallies[uid] = count(job, seen, self._tallies.get(uid), now)
        decision = decide(job, pods, tally, now, self._pace)
        try:
            await self._carry_out(job, decision, awaited)
        except (ApiError, httpx2.HTTPError) as error:
            log.warning("job not brought up to date: job=%s error=%r", job.metadata.name, error)
            await self._tell(job, "FailedCreate", f"Error creating: {error}")
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self._look_at, uid)
        if decision.again_in is not None:
            asyncio.get_running_loop().call_later(decision.again_in, self._look_at, uid)

    async def _carry_out(self, job: resources.Job, decision: Decision, awaited: dict[str, Pod]) -> None:
        for pod in decision.delete:
            try:
                await self._client.delete(resources.Pod, pod.metadata.name, namespace=pod.metadata.namespace)
            except ApiError as error:
                if error.status.code != 404:
                    raise
        made = 0
        try:
            for _ in range(decision.create):
                pod = msgspec.convert(await manifests.create(self._client, pod_manifest(job)), Pod)
                seen = self._pods.get(pod.metadata.name, pod.metadata.namespace) is not None
                if not seen and pod.metadata.uid not in self._gone.get(job.metadata.uid, ()):
                    awaited[pod.metadata.uid] = pod
                made += 1
        finally:
            active = int(decision.status.get("active") or 0) + made
            await self._write_status(job, {**decision.status, "active": active} if made else decision.status)

    async def _write_status(self, job: resources.Job, status: dict[str, Any]) -> None:
        if all(job.status.get(key) == value for key, value in status.items()):
            return
        body = {"metadata": {"uid": job.metadata.uid}, "status": status}
        try:
            await self._client.patch(
                resources.JobStatus,
                job.metadata.name,
                body,
                namespace=job.metadata.namespace,
                patch_type=PatchType.MERGE,
            )
        except ApiError as error:
            if error.status.code not in (404, 409):
                raise

    async def _tell(self, job: resources.Job, reason: str, message: str) -> None:
        about = resources.ObjectReference(
            apiVersion="batch/v1",
            kind="Job",
            name=job.metadata.name,
            namespace=job.metadata.namespace or "default",
            uid=job.metadata.uid,
        )
        await self._events.tell(about, reason=reason, message=message, now=self._now(), warning=True)
