"""Plugins for tests: what they answer is said beforehand, what they hear is kept.

Run as a program (``python -m tests.nri.plugins SOCKET BEHAVIOUR``) it is a plugin in a process of its own, which can be
killed, stopped or slow. It adjusts every container of a pod that carries an allocation.
"""

import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hcs.inject.adjustments import Adjustment, Mount, Variable
from hcs.inject.injection import MARK
from hcs.model import names
from hcs.model.refusals import Refusal, RefusedError
from hcs.nri.adjusting import missing, wire
from hcs.nri.messages import EVENTS
from hcs.nri.plugin import Plugin
from hcs.nri.runtimes import PLUGIN_EVENTS, Runtime

GIVEN = Adjustment(env=(Variable("HCS_CARD", "0"),), annotations={MARK: "nvidia"})
RECORDED = Adjustment(
    env=(Variable("HCS_CARD", "0"),),
    mounts=(Mount("/run/hcs-demo/preload", "/etc/ld.so.preload", ("bind", "ro")),),
)


class Scripted:
    """Handlers that answer what they were told to."""

    def __init__(self, adjustment: Adjustment | None = GIVEN) -> None:
        self.adjustment = adjustment
        self.refusal: Refusal | None = None
        self.error: Exception | None = None
        self.wait = 0.0
        self.heard: list[str] = []
        self.runtime: Runtime | None = None
        self.synchronized: list[tuple[list[str], list[str]]] = []
        self._answered: dict[str, Any] = {}

    def connected(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.heard.append("connected")

    def disconnected(self) -> None:
        self.heard.append("disconnected")

    def synchronize(self, pods: Sequence[Any], containers: Sequence[Any]) -> None:
        self.synchronized.append(([pod.name for pod in pods], [container.name for container in containers]))

    async def create(self, pod: Any, container: Any) -> Any | None:
        self.heard.append(f"create {pod.namespace}/{pod.name} {container.name}")
        await asyncio.sleep(self.wait)
        if self.error is not None:
            raise self.error
        if self.refusal is not None:
            raise RefusedError(self.refusal)
        if self.adjustment is None or not self.must_refuse(pod):
            return None
        assert self.runtime is not None
        self._answered[container.id] = message = wire(self.adjustment, self.runtime)
        return message

    async def validate(self, request: Any) -> Refusal | None:
        self.heard.append(f"validate {request.container.name}")
        ours = self._answered.get(request.container.id)
        absent = missing(ours, request.adjust) if ours is not None else ""
        return Refusal("Lost", absent) if absent else None

    async def event(self, event: int, pod: Any, container: Any) -> None:
        self.heard.append(f"{EVENTS[event]} {pod.name} {container.name}".rstrip())

    def must_refuse(self, pod: Any) -> bool:
        return names.ALLOCATION in pod.annotations


class Slow(Scripted):
    """Blocks its whole process, as one does that computes or waits for a disk in the wrong place."""

    async def create(self, pod: Any, container: Any) -> Any | None:
        time.sleep(3)  # noqa: ASYNC251 - it is what this plugin does wrong
        return await super().create(pod, container)


class Dying(Scripted):
    """Ends in the middle of the call."""

    async def create(self, pod: Any, container: Any) -> Any | None:
        sys.stdout.flush()
        raise SystemExit(1)


BEHAVIOURS = {"good": Scripted, "slow": Slow, "dying": Dying}

if __name__ == "__main__":
    asyncio.run(
        Plugin(names.NRI_PLUGIN, "50", BEHAVIOURS[sys.argv[2]](), events=PLUGIN_EVENTS, socket=Path(sys.argv[1])).run()
    )
