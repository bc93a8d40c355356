"""The agent as a plugin of the container runtime: the runtime's questions, put to ``delivery``, and what it can do.

Three things keep a container from starting unadjusted. The answer itself: what is not certain in time is refused. The
last look (where the runtime validates): the same creation asks again, so that an agent that died or stalled in between
refuses it by its absence, and another plugin cannot take away what we gave. And the reconciliation at every new
connection: whatever slipped through while nobody was there is deleted, with a reason.
"""

import asyncio
import datetime
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

import httpx2
from lightkube import ApiError, AsyncClient

from hcs.agent.delivery import Delivery, NotNowError
from hcs.inject.adjustments import EMPTY
from hcs.inject.injection import MARK
from hcs.inject.protocol import ContainerCreation, StartingContainer
from hcs.kube import writes
from hcs.model.devices import Abilities
from hcs.model.pods import EnvVar, ObjectMeta, Pod
from hcs.model.refusals import Refusal, RefusedError
from hcs.nri.adjusting import Look, missing, wire
from hcs.nri.messages import REMOVE, RUN_POD
from hcs.nri.runtimes import Runtime

log = logging.getLogger(__name__)

INDEX: Final = "50"
"""When the runtime asks us among its plugins; two digits."""
VALIDATOR: Final = "default-validator"
"""The runtime's own plugin that refuses containers whose required plugins are absent (containerd/nri)."""
MOST_CONTAINERS: Final = 4096
"""More than a node can run; what is older never came to be."""
_SEEN_BY: Final = "HCS_NODE="
"""Stands in the environment of every container with cards that was adjusted."""


class RuntimeLink:
    """The handlers of the agent's plugin."""

    def __init__(
        self,
        delivery: Delivery,
        *,
        client: AsyncClient,
        now: Callable[[], datetime.datetime],
        changed: Callable[[], None] = lambda: None,
        guarded: Callable[[], bool] = lambda: False,
        look: Look | None = None,
    ) -> None:
        """Prepare.

        Args:
            delivery: who decides.
            client: for events and deletions.
            now: the clock for events.
            changed: called when the runtime's abilities, or the connection, have changed.
            guarded: whether a guard lives beside a runtime that does not validate.
            look: how a device node is looked at.
        """
        self._delivery, self._client, self._now = delivery, client, now
        self._changed, self._guarded = changed, guarded
        self._look: dict[str, Any] = {} if look is None else {"look": look}
        self._events = writes.EventRecorder(client, "agent")
        self._validator: bool | None = None
        self._answered: dict[str, Any] = {}
        self._containers: dict[str, tuple[str, str]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.runtime: Runtime | None = None
        """The runtime that asks us; None while there is none."""

    def abilities(self) -> Abilities:
        """What the runtime can do for us; nothing while it does not ask us."""
        if self.runtime is None:
            return Abilities()
        return self.runtime.abilities(fail_closed=self.fails_closed())

    def fails_closed(self) -> bool:
        """Whether a container is refused when we are away. That the validator is off shows only at a creation."""
        if self.runtime is None:
            return False
        return (self.runtime.validates and self._validator is not False) or self._guarded()

    def problem(self) -> Refusal | None:
        """What is wrong with the node as a whole, so that nothing should be placed on it."""
        if self.runtime is None:
            return Refusal("RuntimeNotConnected", "the container runtime does not ask the agent; is NRI enabled in it?")
        return None

    def connected(self, runtime: Runtime) -> None:
        """The runtime has introduced itself."""
        self.runtime, self._validator = runtime, None
        self._answered.clear()
        self._containers.clear()
        self._changed()

    def disconnected(self) -> None:
        """The connection is gone."""
        self.runtime = None
        self._changed()

    def synchronize(self, pods: Sequence[Any], containers: Sequence[Any]) -> None:
        """Compare what runs with what should, and delete what started without us."""
        sandboxes = {pod.id: pod for pod in pods}
        running: dict[str, set[str]] = {}
        slipped: dict[str, tuple[Pod, str]] = {}
        for container in containers:
            sandbox = sandboxes.get(container.pod_sandbox_id)
            if sandbox is None:
                continue
            claimed = pod_of(sandbox)
            if not self._delivery.managed(claimed):
                continue
            self._containers[container.id] = (claimed.metadata.uid, container.name)
            if adjusted(container):
                running.setdefault(sandbox.id, set()).add(container.name)
            else:
                slipped[claimed.metadata.uid] = (claimed, container.name)
        for sandbox in pods:
            claimed = pod_of(sandbox)
            if not self._delivery.managed(claimed):
                continue
            known = self._delivery.seen(claimed)
            if known is not None:
                self._delivery.found_running(known, frozenset(running.get(sandbox.id, ())))
            if claimed.metadata.uid not in slipped:
                self._later(self._delivery.expect(claimed))
        for claimed, container in slipped.values():
            self._later(self._delete(claimed, container))

    async def create(self, pod: Any, container: Any) -> Any | None:
        """Ask delivery."""
        claimed = pod_of(pod)
        question = ContainerCreation(
            claimed,
            StartingContainer(container.name, env=tuple(_variables(container.env)), args=tuple(container.args)),
        )
        try:
            adjustment = await self._delivery.create(question, from_memory=True, withdraws=False)
            if adjustment is EMPTY:
                return None
            assert self.runtime is not None  # it is asking
            message = wire(adjustment, self.runtime, **self._look)
        except NotNowError as error:
            self._later(self._delivery.expect(claimed))
            raise RefusedError(Refusal("NotNow", f"{error}; it is asked again")) from error
        except OSError as error:
            raise RefusedError(
                Refusal("FilesNotWritten", f"the container's files could not be written: {error}")
            ) from error
        self._note(container.id, (claimed.metadata.uid, container.name))
        self._answered[container.id] = message
        return message

    async def validate(self, request: Any) -> Refusal | None:
        """Whether the container gets what we answered, as a whole."""
        validator = any(plugin.name == VALIDATOR for plugin in request.plugins)
        if validator != self._validator:
            self._validator = validator
            self._changed()
        ours = self._answered.pop(request.container.id, None)
        if ours is None:
            if not self.must_refuse(request.pod):
                return None
            return Refusal("NotAdjusted", "the node agent has not seen this container; it is created again")
        absent = missing(ours, request.adjust)
        if absent:
            return Refusal("AdjustmentLost", f"another plugin of the container runtime took away {absent}")
        return None

    async def event(self, event: int, pod: Any, container: Any) -> None:
        """A pod comes, or a container is gone."""
        if event == RUN_POD:
            claimed = pod_of(pod)
            if self._delivery.managed(claimed):
                self._later(self._delivery.expect(claimed))
        elif event == REMOVE:
            self._answered.pop(container.id, None)
            gone = self._containers.pop(container.id, None)
            if gone is not None:
                self._delivery.remove(*gone)

    def _note(self, id: str, who: tuple[str, str]) -> None:
        """Which container an id stands for. Only the newest of a container counts: of one that was answered and never
        came to be, because another plugin refused it, nobody tells us again."""
        for old in [old for old, other in self._containers.items() if other == who and old != id]:
            del self._containers[old]
            self._answered.pop(old, None)
        self._containers[id] = who
        while len(self._containers) > MOST_CONTAINERS:
            oldest = next(iter(self._containers))
            del self._containers[oldest]
            self._answered.pop(oldest, None)

    def must_refuse(self, pod: Any) -> bool:
        """Whether a container of this pod may start only with our answer."""
        return self._delivery.managed(pod_of(pod))

    @property
    def answered(self) -> int:
        """Containers that were answered, and of which nothing has been heard since."""
        return len(self._answered)

    async def settled(self) -> None:
        """Wait for everything that was put off."""
        while self._tasks:
            await asyncio.gather(*self._tasks)

    def _later(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _delete(self, pod: Pod, container: str) -> None:
        """Take a pod away that runs without what it was allocated; its owner makes another."""
        known = self._delivery.seen(pod)
        if known is not None and known.metadata.uid != pod.metadata.uid:
            return
        message = (
            f"container {container} was started while the node agent was away, without its cards and without its "
            "limits; the pod is deleted so that it can start as it should"
        )
        log.warning("pod runs unadjusted, deleting it: pod=%s container=%s", pod.key, container)
        try:
            gone = await writes.delete(self._client, pod)
        except (ApiError, httpx2.HTTPError) as error:
            log.warning("pod that runs unadjusted not deleted: pod=%s error=%r", pod.key, error)
            return
        if gone:
            await self._events.tell(
                writes.reference(pod), reason="NotAdjusted", message=message, now=self._now(), warning=True
            )


def pod_of(sandbox: Any) -> Pod:
    """The pod as the runtime names it: enough to find it, and nothing to believe."""
    return Pod(
        ObjectMeta(
            name=sandbox.name,
            namespace=sandbox.namespace,
            uid=sandbox.uid,
            annotations=dict(sandbox.annotations),
        )
    )


def adjusted(container: Any) -> bool:
    """Whether a container that exists went through us, by its mark; runtimes that do not show it show its variables."""
    return MARK in container.annotations or any(variable.startswith(_SEEN_BY) for variable in container.env)


def _variables(entries: Iterable[str]) -> Iterable[EnvVar]:
    for entry in entries:
        name, _, value = entry.partition("=")
        yield EnvVar(name, value)
