"""One pod's worker: starts its containers, keeps them as its restart policy says, reports, ends and removes it.

Containers are looked after whether or not the API server can be reached: what is to be written is worked out when it
can be written, so a long outage costs one write. A worker ends in one of three ways: the pod is deleted (containers end
within their grace period, the last status is written, the pod is removed), it is gone already, or the kubelet stops
(both: everything is killed and nothing is written). The node agent hears of containers that are gone for good; not of
those a stopping kubelet kills, for they start again and go on with their ledger.
"""

import asyncio
import contextlib
import datetime
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import httpx2
import msgspec
from lightkube import ApiError

from hcs.sandbox.images import ImageMissingError, ImageStore
from hcs.sandbox.kubelet.agent import Agent
from hcs.sandbox.kubelet.cluster import Cluster, PodGoneError
from hcs.sandbox.kubelet.containers import NotStartedError, Place, start_container
from hcs.sandbox.kubelet.environment import ConfigurationError
from hcs.sandbox.kubelet.pods import BoundPod
from hcs.sandbox.kubelet.processes import Process, StartError
from hcs.sandbox.kubelet.restarts import NEVER, ON_FAILURE, BackOff, restarts
from hcs.sandbox.kubelet.status import (
    HOST_IP,
    INITIALIZING,
    Conditions,
    ContainerRecord,
    Running,
    Terminated,
    Waiting,
    ended,
    pod_status,
    recalled,
)
from hcs.sandbox.kubelet.volumes import Volume, make_volumes

log = logging.getLogger(__name__)

DEFAULT_GRACE: Final = 30.0
"""Seconds, as in Kubernetes."""
START_ERROR_CODE: Final = 128
"""What containerd reports for a command that cannot be executed."""


class Surroundings(msgspec.Struct, frozen=True):
    """What all workers of a kubelet share. ``now`` is the clock; ``back_off`` the pause between restarts."""

    cluster: Cluster
    images: ImageStore
    back_off: BackOff = BackOff()
    now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC)


class PodWorker:
    """The worker of one pod; :meth:`run` is its life."""

    def __init__(self, pod: BoundPod, surroundings: Surroundings, agent: Agent, directory: Path, logs: Path) -> None:
        """Prepare.

        Args:
            pod: as first seen; the node agent is shown this one, as a runtime shows its plug-ins the sandbox's copy.
            surroundings: shared by all workers.
            agent: of the pod's node.
            directory: for this pod's trees and volumes.
            logs: for this pod's log files.
        """
        self.pod, self._sandbox, self._shared, self._agent = pod, pod, surroundings, agent
        self._directory, self._logs = directory, logs
        self._cluster = surroundings.cluster
        self._conditions, self._volumes = Conditions(), dict[str, Volume]()
        self._started = surroundings.now()
        written = [*(pod.status.containerStatuses or ()), *(pod.status.initContainerStatuses or ())]
        known = {str(status.get("name")): status for status in written}
        now = surroundings.now()
        initial = INITIALIZING if pod.spec.initContainers else Waiting()
        self._inits = {c.name: recalled(known.get(c.name), now, Waiting()) for c in pod.spec.initContainers or ()}
        self._mains = {c.name: recalled(known.get(c.name), now, initial) for c in pod.spec.containers}
        self._stopping, self._hurry, self._dirty = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._grace, self._written = DEFAULT_GRACE, dict[str, Any]()
        self._silent = self._gone = self._final = False

    def update(self, pod: BoundPod) -> None:
        """Take note of a newer version of the pod; one that is being deleted ends."""
        self.pod = pod
        if pod.metadata.deletionTimestamp is not None:
            grace = pod.metadata.deletionGracePeriodSeconds
            self._stop(DEFAULT_GRACE if grace is None else float(grace))

    def abandon(self, *, gone: bool = False) -> None:
        """End at once: kill everything, write nothing. ``gone`` says that the pod no longer exists."""
        self._silent, self._gone = True, self._gone or gone
        self._stop(0.0)

    async def run(self) -> None:
        """Live until the pod is removed or abandoned."""
        writer = asyncio.create_task(self._write())
        try:
            if self.pod.status.phase not in ("Succeeded", "Failed"):
                await self._live()
            await self._stopping.wait()
            if self._silent:
                return
            self._final = True
            self._changed()
            abandoned = asyncio.create_task(self._until_abandoned())
            await asyncio.wait({writer, abandoned}, return_when=asyncio.FIRST_COMPLETED)
            abandoned.cancel()
            if writer.done() and not self._silent:
                await self._persist(lambda: self._cluster.remove(self.pod))
        finally:
            writer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await writer

    # --- the containers -------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        self._changed()
        if not await self._make_volumes():
            return
        for name, record in self._inits.items():
            policy = NEVER if self.pod.spec.restartPolicy == NEVER else ON_FAILURE
            await self._keep(name, record, policy)
            if not (isinstance(record.state, Terminated) and record.state.exit_code == 0):
                return
        for record in self._mains.values():
            if record.state == INITIALIZING:
                record.state = Waiting()
        self._changed()
        async with asyncio.TaskGroup() as group:
            for name, record in self._mains.items():
                group.create_task(self._keep(name, record, self.pod.spec.restartPolicy))

    async def _make_volumes(self) -> bool:
        attempt = 0
        while not self._stopping.is_set():
            try:
                self._volumes = await make_volumes(
                    self.pod,
                    self._directory / "volumes",
                    images=self._shared.images,
                    config_maps=self._cluster.config_map,
                    tokens=self._cluster.token,
                    host_ip=HOST_IP,
                )
            except (ConfigurationError, ImageMissingError, OSError, ApiError, httpx2.HTTPError) as error:
                attempt += 1
                reason = "ImagePullBackOff" if isinstance(error, ImageMissingError) else "ContainerCreating"
                for record in (self._inits or self._mains).values():
                    record.state = Waiting(reason, str(error))
                self._changed()
                await self._cluster.tell(self.pod, "FailedMount", str(error), warning=True)
                await self._pause(self._shared.back_off.pause(attempt + 1))
            else:
                return True
        return False

    async def _keep(self, name: str, record: ContainerRecord, policy: str | None) -> None:
        """Run one container, again and again as the policy says, until it is over for good."""
        refusals = 0
        try:
            if isinstance(record.state, Terminated) and not restarts(policy, record.state.exit_code):
                return
            while not self._stopping.is_set():
                if isinstance(record.state, Terminated):
                    record.last = record.state
                began = self._shared.now()
                try:
                    process = await self._start(name, record)
                except NotStartedError as error:
                    refusals += 1
                    record.state = Waiting(error.reason, str(error))
                    self._changed()
                    await self._cluster.tell(self.pod, "Failed", f"{error.reason}: {error}", warning=True)
                    await self._pause(self._shared.back_off.pause(refusals + 1))
                    continue
                except StartError as error:
                    self._count_start(name, record)
                    end = Terminated(START_ERROR_CODE, "StartError", str(error), began, began)
                else:
                    self._count_start(name, record)
                    record.state = Running(process.started)
                    self._changed()
                    await self._cluster.tell(self.pod, "Started", f"Started container {name}")
                    code = await self._until_ended(process)
                    end = ended(code, process.started, self._shared.now())
                refusals, record.state = 0, end
                self._changed()
                if self._stopping.is_set() or not restarts(policy, end.exit_code):
                    return
                record.crashes = self._shared.back_off.crashes(
                    record.crashes, (self._shared.now() - began).total_seconds()
                )
                if pause := self._shared.back_off.pause(record.crashes):
                    text = f"back-off {pause:g}s restarting failed container={name} pod={self.pod.metadata.name}"
                    record.last, record.state = end, Waiting("CrashLoopBackOff", text)
                    self._changed()
                    await self._pause(pause)
        finally:
            if self._gone or not self._silent:
                await self._agent.forget(self.pod.metadata.uid, name)

    async def _start(self, name: str, record: ContainerRecord) -> Process:
        every = [*self.pod.spec.containers, *(self.pod.spec.initContainers or ())]
        container = next(container for container in every if container.name == name)
        log_file = self._logs / f"{name}.log"
        if record.begun and log_file.exists():
            log_file.replace(self._logs / f"{name}.previous.log")
        return await start_container(
            self.pod,
            container,
            Place(self._directory / "containers" / name, log_file),
            images=self._shared.images,
            volumes=self._volumes,
            agent=self._agent,
            host_ip=HOST_IP,
            sandbox=self._sandbox,
        )

    def _count_start(self, name: str, record: ContainerRecord) -> None:
        record.restarts += record.begun
        record.begun = True
        record.container_id = f"emulated://{self.pod.metadata.uid}-{name}-{record.restarts}"

    async def _until_ended(self, process: Process) -> int:
        """Wait for the end; when the pod is to end, ask the container, and kill it after the grace period."""
        exit_code = asyncio.create_task(process.ended())
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({exit_code, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not exit_code.done():
                await self._end(process, exit_code)
        finally:
            stopping.cancel()
            if not exit_code.done():
                process.kill()
        return await exit_code

    async def _end(self, process: Process, exit_code: asyncio.Task[int]) -> None:
        """Ask the container to end and give it its grace period, which may become shorter meanwhile."""
        if self._grace > 0:
            process.terminate()
        loop = asyncio.get_running_loop()
        began = loop.time()
        while not exit_code.done() and (left := began + self._grace - loop.time()) > 0:
            self._hurry.clear()
            hurry = asyncio.create_task(self._hurry.wait())
            await asyncio.wait({exit_code, hurry}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            hurry.cancel()

    def _stop(self, grace: float) -> None:
        self._grace = min(grace, self._grace) if self._stopping.is_set() else grace
        self._stopping.set()
        self._hurry.set()

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    # --- the reports ----------------------------------------------------------------------------------------------

    def _changed(self) -> None:
        self._dirty.set()

    async def _write(self) -> None:
        """Write the status whenever it changed, until the final one is written."""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            final = self._final
            status = pod_status(
                self.pod,
                self._inits,
                self._mains,
                conditions=self._conditions,
                started=self._started,
                now=self._shared.now(),
                final=final,
            )
            if status != self._written:
                await self._persist(lambda status=status: self._cluster.write_status(self.pod, status))  # type: ignore[misc]
                self._written = status
            if final:
                return

    async def _persist(self, write: Callable[[], Awaitable[None]]) -> None:
        """Try until it is done or the pod is gone."""
        attempt = 0
        while not self._silent:
            try:
                await write()
            except PodGoneError:
                return
            except (ApiError, httpx2.HTTPError) as error:
                attempt += 1
                log.warning("pod not written: pod=%s error=%r attempt=%d", self.pod.key, error, attempt)
                await asyncio.sleep(min(5.0, 0.1 * 2.0 ** min(attempt, 6)))
            else:
                return

    async def _until_abandoned(self) -> None:
        while not self._silent:
            self._hurry.clear()
            await self._hurry.wait()
