"""Carries out what the neural service decides: calls of tenants in, driver calls and life-cycle events out.

One call at a time; driver calls run in a thread, so a slow board keeps nobody from being heard. A driver that fails
while a task is being made leads to ``Failed`` and to a refusal: nothing stays half loaded.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from hcs.model.refusals import Refusal, RefusedError
from hcs.neuro.allocator import CoreRequest
from hcs.neuro.drivers import BoardDriver, DriverError, Limits, Load, Spike, Usage
from hcs.neuro.grids import Cell
from hcs.neuro.lifecycle import Event
from hcs.neuro.packages import Package
from hcs.neuro.service import NeuralService
from hcs.neuro.sites import ANYWHERE, Wish
from hcs.neuro.tasks import Task
from hcs.neuro.tenants import Lease, Quota

log = logging.getLogger(__name__)

Call = Callable[..., Awaitable[Any]]


class Operator:
    """The service with its boards' drivers."""

    def __init__(
        self,
        service: NeuralService,
        drivers: Mapping[str, BoardDriver],
        *,
        changed: Callable[[], None] = lambda: None,
        call: Call = asyncio.to_thread,
    ) -> None:
        """Prepare.

        Args:
            service: who decides.
            drivers: board id → its driver.
            changed: called after every call that took or freed something.
            call: how a call that may block is made.
        """
        self.service, self.drivers, self.changed, self.call = service, dict(drivers), changed, call
        self._turn = asyncio.Lock()
        self._seen: dict[str, tuple[frozenset[Cell], frozenset[Cell]]] = {
            id: (site.board.dead_cores, site.board.dead_routers) for id, site in service.sites.items()
        }

    async def install(self, tenant: str, package: Package) -> Package:
        """InstallApp."""
        async with self._turn:
            self.service.install(tenant, package)
        log.info("app installed: tenant=%s app=%s version=%s", tenant, package.name, package.version)
        return package

    async def create(
        self,
        tenant: str,
        app: str,
        model: str = "",
        *,
        lease: int | None = None,
        wish: Wish = ANYWHERE,
        priority: int = 0,
    ) -> Task:
        """TaskCreate: place, route, configure, load and check.

        Returns:
            The task in state ``Ready``.

        Raises:
            RefusedError: it does not fit, or the board could not load it; then nothing is held.
        """
        async with self._turn:
            task = self.service.create(tenant, app, model, lease=lease, wish=wish, priority=priority)
            try:
                await self._load(task)
            except DriverError as error:
                self.service.advance(tenant, task.number, "failed")
                await self._unload(task)
                raise RefusedError(Refusal("LoadFailed", f"{error}; nothing was kept")) from error
            finally:
                self.changed()
            self.service.advance(tenant, task.number, "loaded")
            task, _ = self.service.advance(tenant, task.number, "checked")
        log.info(
            "task ready: id=%d tenant=%s app=%s board=%s rectangle=%s", task.id, tenant, app, task.board, task.rectangle
        )
        return task

    async def run(self, tenant: str, number: int, steps: Sequence[Sequence[Spike]]) -> Sequence[Sequence[Spike]]:
        """TaskRun: one time step for each list of input spikes; the output spikes of each.

        Raises:
            RefusedError: no such task, it is not ready, or the board failed.
        """
        async with self._turn:
            task, _ = self.service.advance(tenant, number, "run")
            try:
                outputs: Sequence[Sequence[Spike]] = await self.call(self.drivers[task.board].run, task.id, steps)
            except DriverError as error:
                self._after(tenant, number, "finished")
                self._look_for_faults(task.board)
                raise RefusedError(Refusal("RunFailed", str(error))) from error
            self._after(tenant, number, "finished")
        return outputs

    async def start(self, tenant: str, number: int) -> Task:
        """Let a task run on its own, until it is paused; its events come over its streams."""
        return await self._event(tenant, number, "run")

    async def pause(self, tenant: str, number: int) -> Task:
        """Stop a running task where it is."""
        return await self._event(tenant, number, "pause")

    async def resume(self, tenant: str, number: int) -> Task:
        """Let a paused task go on."""
        return await self._event(tenant, number, "resume")

    async def destroy(self, tenant: str, number: int) -> Task:
        """TaskDestroy: drain, unload, free.

        Raises:
            RefusedError: there is no such task.
        """
        async with self._turn:
            task, instructions = self.service.advance(tenant, number, "destroy")
            if "drain" in instructions:
                await self._unload(task)
                task, _ = self.service.advance(tenant, number, "drained")
            self.changed()
        log.info("task released: id=%d tenant=%s", task.id, tenant)
        return task

    async def lease(
        self, tenant: str, cores: int, *, request: CoreRequest | None = None, wish: Wish = ANYWHERE
    ) -> tuple[int, Lease]:
        """Hold a rectangle for a tenant's tasks; the tenant's number for it, and the lease."""
        async with self._turn:
            lease = self.service.lease(tenant, cores, request=request, wish=wish)
            self.changed()
        numbers = self.service.tenant(tenant).leases
        return next(number for number, id in numbers.items() if id == lease.number), lease

    async def end_lease(self, tenant: str, number: int) -> None:
        """Give a lease back."""
        async with self._turn:
            self.service.end_lease(tenant, number)
            self.changed()

    async def set_quota(self, tenant: str, quota: Quota) -> None:
        """Limit a tenant."""
        async with self._turn:
            self.service.set_quota(tenant, quota)

    async def fault(self, board: str, *, cores: Sequence[Cell], routers: Sequence[Cell]) -> list[Task]:
        """Note faults that an operator found; the tasks they hurt are moved by the next :meth:`look`.

        Raises:
            RefusedError: no such board, or no such core.
        """
        async with self._turn:
            hurt = self.service.fault(board, cores=cores, routers=routers)
            self.changed()
        return list(hurt)

    async def look(self) -> list[Task]:
        """Ask every board for faults; move the tasks they hurt. The tasks that were moved."""
        async with self._turn:
            for board in self.drivers:
                self._look_for_faults(board)
            degraded = [task for task in self.service.tasks.values() if task.life.state == "Degraded"]
            moved = [again for task in degraded if (again := await self._remap(task)) is not None]
            if moved:
                self.changed()
        return moved

    def usage(self) -> dict[int, Usage]:
        """What every loaded task has used."""
        return {task: usage for driver in self.drivers.values() for task, usage in driver.usage().items()}

    # Inside.

    async def _event(self, tenant: str, number: int, event: Event) -> Task:
        async with self._turn:
            task, _ = self.service.advance(tenant, number, event)
        return task

    def _after(self, tenant: str, number: int, event: Event) -> None:
        task = self.service.get(tenant, number)
        if task.life.state == "Running":
            self.service.advance(tenant, number, event)

    def _look_for_faults(self, board: str) -> None:
        try:
            seen = self.drivers[board].query()
        except DriverError as error:
            log.warning("board does not answer: board=%s error=%s", board, error)
            return
        before = self._seen.get(board, (seen.dead_cores, seen.dead_routers))
        self._seen[board] = (seen.dead_cores, seen.dead_routers)
        known = self.service.sites[board].board
        cores, routers = seen.dead_cores - known.dead_cores, seen.dead_routers - known.dead_routers
        # Only what the board itself had reported: an operator may know of faults that the board does not see.
        mended = (before[0] | before[1]) - (seen.dead_cores | seen.dead_routers)
        if mended:
            self.service.mend(board, mended)
        if cores or routers:
            hurt = self.service.fault(board, cores=cores, routers=routers)
            log.warning("cores died: board=%s cores=%d routers=%d tasks=%d", board, len(cores), len(routers), len(hurt))
        if mended or cores or routers:
            self.changed()

    async def _remap(self, task: Task) -> Task | None:
        await self._unload(task)
        try:
            moved = self.service.remap(task.tenant, task.number)
        except RefusedError as error:
            log.warning("task cannot move yet: id=%d reason=%s", task.id, error)
            return None
        try:
            await self._load(moved)
        except DriverError as error:
            log.warning("task not loaded after moving: id=%d error=%s", task.id, error)
            self.service.advance(task.tenant, task.number, "fault")
            return None
        moved, _ = self.service.advance(task.tenant, task.number, "remapped")
        log.info("task moved: id=%d board=%s rectangle=%s", moved.id, moved.board, moved.rectangle)
        return moved

    async def _load(self, task: Task) -> None:
        driver = self.drivers[task.board]
        channels = tuple((corridor.port, corridor.channel) for corridor in task.corridors)

        def work() -> None:
            driver.configure(task.id, Limits(task.amounts.ksps, channels))
            driver.load(task.id, Load(task.model, task.cores, task.spike_routes))

        await self.call(work)

    async def _unload(self, task: Task) -> None:
        try:
            await self.call(self.drivers[task.board].unload, task.id)
        except DriverError as error:
            log.warning("task not unloaded: id=%d error=%s", task.id, error)


def described(task: Task, cores: bool = False) -> dict[str, Any]:
    """A task for the wire, without what belongs to the board alone unless ``cores`` are asked for."""
    virtual = task.virtual.rectangle
    told: dict[str, Any] = {
        "task": task.number,
        "id": task.id,
        "app": task.app,
        "version": task.version,
        "model": task.model.name,
        "state": task.life.state,
        "board": task.board,
        "grid": f"{virtual.width}x{virtual.height}",
        "streams": list(task.addresses),
        "ksps": task.amounts.ksps,
        "priority": task.priority,
    }
    if cores:
        told["tenant"] = task.tenant
        told["rectangle"] = [task.rectangle.x, task.rectangle.y, task.rectangle.width, task.rectangle.height]
        told["cores"] = [list(cell) for cell in task.cores]
        told["relays"] = [
            list(cell) for route in (*(c.route for c in task.corridors), *task.spike_routes) for cell in route.relays
        ]
        told["corridors"] = [
            {"port": c.port, "channel": c.channel, "ksps": c.ksps, "points": [list(p) for p in c.route.points]}
            for c in task.corridors
        ]
    return told


def cells_of(pairs: Sequence[Sequence[int]]) -> list[Cell]:
    """Cells from the wire.

    Raises:
        RefusedError: not a list of pairs.
    """
    try:
        return [(int(x), int(y)) for x, y in pairs]
    except (TypeError, ValueError):
        raise RefusedError(Refusal("MalformedRequest", "cores are written as [[x, y], ...]")) from None
