"""What the controller does to Jobs on one cluster: create, release, delete, read. Each is one request with one meaning.

A request whose answer is lost may have been carried out, or may still be. Every one here can therefore be sent again:
names are never used twice, so a creation that meets an object of ours has succeeded before; a release names the UID;
deleting what is gone is no error. What the answer means is a value or one of three errors, so callers never look at
status codes.
"""

from typing import Any, Final

import httpx2
from lightkube import ApiError, AsyncClient
from lightkube.types import CascadeType, PatchType

from hcs.kube import manifests, resources
from hcs.kube.connection import NO_ANSWER
from hcs.wide.entries import LABEL_ENTRY, LABEL_QUEUE

AGAIN: Final = frozenset((408, 425, 429, 500, 502, 503, 504))
"""Answers that say nothing about the request itself."""


_CONTROLLER: Final = ("batch.kubernetes.io/controller-uid", "controller-uid")
"""Labels by which the Job controller marks its pods, of now and of before Kubernetes 1.27."""


def belongs(pod: resources.Pod, uid: str) -> bool:
    """Whether a pod is a Job's; one that was orphaned has no owner any more and keeps its label."""
    owner, labels = pod.controller, pod.metadata.labels or {}
    return (owner is not None and owner.uid == uid) or any(labels.get(label) == uid for label in _CONTROLLER)


class UnansweredError(Exception):
    """No answer, or one that says to come again: whether it was carried out is not known."""


class RejectedError(Exception):
    """The cluster will not have it as it is; ``reason`` is the API's."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class ForeignError(Exception):
    """There is an object of that name which is not ours."""


class ClusterJobs:
    """Jobs of one queue on one cluster."""

    def __init__(self, client: AsyncClient, queue: str) -> None:
        self._client, self._queue = client, queue

    async def create(self, manifest: dict[str, Any]) -> resources.Job:
        """Create a Job, or find the one that an earlier attempt created; that may itself be why another is refused.

        Raises:
            UnansweredError: try again.
            RejectedError: the cluster refuses it.
            ForeignError: the name is somebody else's.
        """
        metadata, refused = manifest["metadata"], None
        try:
            await manifests.create(self._client, manifest)
        except ApiError as error:
            refused = error
        except NO_ANSWER as error:
            raise _unanswered(error) from error
        exists = refused is None or (
            refused.status.code == 409 and "AlreadyExists" in (refused.status.reason or "AlreadyExists")
        )
        if refused is not None and not exists and isinstance(meaning := _meaning(refused), UnansweredError):
            raise meaning from refused
        job = await self.get(metadata["name"], metadata["namespace"])
        if job is None and refused is not None and not exists:
            raise _meaning(refused) from refused
        if job is None:
            raise UnansweredError("it was created and is gone again")
        labels = job.metadata.labels or {}
        if (labels.get(LABEL_QUEUE), labels.get(LABEL_ENTRY)) != (self._queue, metadata["labels"][LABEL_ENTRY]):
            raise ForeignError(
                f"there is a Job {metadata['name']} in {metadata['namespace']} that this queue never made"
            )
        return job

    async def release(self, name: str, namespace: str, uid: str) -> bool:
        """Let a Job run; False when that Job (this UID) is gone.

        Raises:
            UnansweredError: try again.
            RejectedError: the cluster refuses it.
        """
        body = {"metadata": {"uid": uid}, "spec": {"suspend": False}}
        try:
            await self._client.patch(resources.Job, name, body, namespace=namespace, patch_type=PatchType.MERGE)
        except ApiError as error:
            if error.status.code == 404:
                return False
            if error.status.code == 409:
                found = await self.get(name, namespace)
                if found is None or found.metadata.uid != uid:
                    return False
                raise UnansweredError("somebody else changed the Job meanwhile") from error
            raise _meaning(error) from error
        except NO_ANSWER as error:
            raise _unanswered(error) from error
        return True

    async def suspend(self, job: resources.Job) -> None:
        """Take a Job's pods away, unless anything about it has changed since it was read; then nothing happens.

        Raises:
            UnansweredError: try again.
            RejectedError: the cluster refuses it.
        """
        metadata = job.metadata
        read = {"uid": metadata.uid, "resourceVersion": metadata.resourceVersion}
        body = {"metadata": read, "spec": {"suspend": True}}
        try:
            await self._client.patch(
                resources.Job, metadata.name, body, namespace=metadata.namespace, patch_type=PatchType.MERGE
            )
        except ApiError as error:
            if error.status.code not in (404, 409):
                raise _meaning(error) from error
        except NO_ANSWER as error:
            raise _unanswered(error) from error

    async def delete(self, name: str, namespace: str) -> None:
        """Ask for the end of a Job and its pods; the Job stays visible until its pods are gone.

        Raises:
            UnansweredError: try again.
            RejectedError: the cluster refuses it.
        """
        try:
            await self._client.delete(resources.Job, name, namespace=namespace, cascade=CascadeType.FOREGROUND)
        except ApiError as error:
            if error.status.code not in (404, 409):
                raise _meaning(error) from error
        except NO_ANSWER as error:
            raise _unanswered(error) from error

    async def get(self, name: str, namespace: str) -> resources.Job | None:
        """The Job as the cluster holds it now; None when there is none.

        Raises:
            UnansweredError: the cluster did not say.
            RejectedError: we may not look.
        """
        try:
            found: resources.Job = await self._client.get(resources.Job, name, namespace=namespace)
        except ApiError as error:
            if error.status.code == 404:
                return None
            raise _meaning(error) from error
        except NO_ANSWER as error:
            raise _unanswered(error) from error
        return found

    async def pods(self, uid: str, namespace: str, entry: str) -> list[resources.Pod]:
        """The pods of a Job as the cluster holds them now, finished ones too.

        Raises:
            UnansweredError: the cluster did not say.
            RejectedError: we may not look.
        """
        labels: dict[str, Any] = {LABEL_QUEUE: self._queue, LABEL_ENTRY: entry}
        try:
            found = [pod async for pod in self._client.list(resources.Pod, namespace=namespace, labels=labels)]
        except ApiError as error:
            raise _meaning(error) from error
        except NO_ANSWER as error:
            raise _unanswered(error) from error
        return [pod for pod in found if belongs(pod, uid)]

    async def log(self, pod: str, namespace: str, container: str | None, lines: int, most: int) -> str:
        """The end of a container's log: so many lines, cut to so many bytes; empty where it cannot be had."""
        try:
            kept = [
                line async for line in self._client.log(pod, namespace=namespace, container=container, tail_lines=lines)
            ]
        except NO_ANSWER:
            return ""
        return "".join(kept).encode()[-most:].decode(errors="replace")


def _unanswered(error: Exception) -> UnansweredError:
    """In words; what a library could not read as an answer says little about the cluster."""
    if isinstance(error, (httpx2.HTTPError, OSError)):
        return UnansweredError(f"no answer: {error!r}")
    return UnansweredError(f"what answers is no API server, a proxy perhaps ({type(error).__name__}: {error})")


def _meaning(error: ApiError) -> UnansweredError | RejectedError:
    code, status = error.status.code, error.status
    if code is None or code in AGAIN:
        return UnansweredError(f"the server says {code} {status.reason or ''}".strip())
    if code == 401:
        return UnansweredError("the server does not know who we are (401); look at the cluster's credentials")
    return RejectedError(status.reason or f"Status{code}", status.message or str(error))
