"""One controller acts for a queue: a Lease on a home cluster, held by who acts.

The file's lock keeps two processes off one file; the Lease keeps two machines with copies of it off the same clusters.
Who holds it renews it often. Whoever could not renew stops acting before anybody else may take it: it counts from the
moment its last good request was *sent*, by its own clock, and stops early enough for the slowest request to be over.
"""

import asyncio
import datetime
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from lightkube import ApiError, AsyncClient

from hcs.kube.connection import NO_ANSWER
from hcs.kube.resources import Lease
from hcs.model.pods import ObjectMeta

log = logging.getLogger(__name__)


class Timing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds. ``margin`` must be longer than any request may take."""

    duration: float = 45.0
    renew: float = 5.0
    margin: float = 15.0


class Leadership:
    """Whether this process acts; ``run`` it beside the controller."""

    def __init__(
        self,
        client: AsyncClient,
        *,
        name: str,
        namespace: str,
        identity: str,
        clock: Callable[[], float],
        today: Callable[[], datetime.datetime],
        timing: Timing | None = None,
        pause: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        """
        Args:
            client: of the home cluster.
            name: of the Lease, one for each queue.
            namespace: where it is.
            identity: of this process; no two may have the same.
            clock: seconds that only go forward.
            today: the wall clock, for what is written.
            timing: how long and how often.
            pause: how to wait.
        """
        self._client, self._name, self._namespace, self._identity = client, name, namespace, identity
        self._clock, self._today, self._pause = clock, today, pause
        self.timing = timing or Timing()
        self._until = float("-inf")
        self._seen: tuple[str, float] = ("", 0.0)
        """The version of a Lease that somebody else holds, and when we first saw it."""
        self.holder = ""

    def may_act(self) -> bool:
        """Whether this process may act at this moment."""
        return self._clock() < self._until - self.timing.margin

    async def run(self) -> None:
        """Take the Lease and renew it until cancelled; then give it up, so that the next one need not wait."""
        try:
            while True:
                try:
                    await self.renew()
                except NO_ANSWER as error:
                    log.warning("lease not renewed: name=%s error=%r", self._name, error)
                await self._pause(self.timing.renew)
        finally:
            if self.may_act():
                self._until = float("-inf")
                await asyncio.shield(self._give_up())

    async def renew(self) -> None:
        """One attempt to take or keep the Lease.

        Raises:
            ApiError, httpx2.HTTPError, OSError: the home cluster did not answer.
        """
        sent = self._clock()
        try:
            found: Lease = await self._client.get(Lease, self._name, namespace=self._namespace)
        except ApiError as error:
            if error.status.code != 404:
                raise
            if await self._write(self._lease(None), None):
                self._until = sent + self.timing.duration
            return
        self.holder = str(found.spec.get("holderIdentity") or "")
        version = found.metadata.resourceVersion
        if self.holder and self.holder != self._identity:
            self._until = float("-inf")
            if self._seen[0] != version:
                self._seen = version, self._clock()
            # By our own clock: the other machine's may be wrong.
            lasts = float(found.spec.get("leaseDurationSeconds") or self.timing.duration)
            if self._clock() - self._seen[1] < lasts:
                return
            log.warning("taking over the lease: name=%s from=%s", self._name, self.holder)
        if await self._write(self._lease(found), version):
            self._until = sent + self.timing.duration

    async def _write(self, lease: Lease, version: str | None) -> bool:
        """Write exactly over what was read; False when somebody else wrote meanwhile."""
        try:
            if version is None:
                await self._client.create(lease)
            else:
                await self._client.replace(lease)
        except ApiError as error:
            if error.status.code != 409:
                raise
            self._until = float("-inf")
            return False
        return True

    def _lease(self, found: Lease | None, holder: str | None = None) -> Lease:
        now = self._today().astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        before = found.spec if found is not None else {}
        mine = before.get("holderIdentity") == self._identity
        spec = {
            "holderIdentity": self._identity if holder is None else holder,
            "leaseDurationSeconds": round(self.timing.duration),
            "acquireTime": before.get("acquireTime") if mine else now,
            "renewTime": now,
            "leaseTransitions": int(before.get("leaseTransitions") or 0) + (found is not None and not mine),
        }
        metadata = ObjectMeta(
            name=self._name,
            namespace=self._namespace,
            resourceVersion=found.metadata.resourceVersion if found is not None else "",
        )
        return Lease(apiVersion="coordination.k8s.io/v1", kind="Lease", metadata=metadata, spec=spec)

    async def _give_up(self) -> None:
        try:
            found: Lease = await self._client.get(Lease, self._name, namespace=self._namespace)
            if found.spec.get("holderIdentity") == self._identity:
                await self._write(self._lease(found, ""), found.metadata.resourceVersion)
        except NO_ANSWER as error:
            log.warning("lease not given up: name=%s error=%r", self._name, error)
