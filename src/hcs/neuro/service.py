"""The neural service: boards, tenants, leases and tasks, and the calls that change them. Pure; it acts on nothing.

Every call either does all of its work or none: it works on copies and puts them in place at the end, so nothing is ever
half allocated. What must be done on hardware comes back as the life cycle's instructions; whoever acts reports the next
event. The calls are those the field knows: InstallApp, TaskCreate, TaskRun, TaskDestroy.
"""

from collections.abc import Iterable, Sequence

import msgspec

from hcs.model.refusals import Refusal, RefusedError
from hcs.neuro.allocator import CoreRequest, Placed
from hcs.neuro.boards import BoardState
from hcs.neuro.capacities import Amounts, shortages
from hcs.neuro.forwarding import Endpoint, ForwardingTable
from hcs.neuro.grids import Cell, Rectangle
from hcs.neuro.lifecycle import ENDED, HOLDING, Event, Instruction, Life, TransitionError
from hcs.neuro.migration import USUAL, MigrationLimits, MigrationPlan, plan_migration
from hcs.neuro.packages import Model, Package
from hcs.neuro.routes import Route, find_route
from hcs.neuro.sites import ANYWHERE, Site, Wish, largest_free, no_place, shapes_of, spike_routes, worth_saying
from hcs.neuro.tasks import Task, map_cores
from hcs.neuro.tenants import Lease, Quota, Tenant, missing


class NeuralService:
    """All of it. Not thread-safe: one caller at a time."""

    def __init__(self, boards: Iterable[BoardState], *, first_id: int = 1) -> None:
        """Begin with empty boards.

        Args:
            boards: the boards, each with an id of its own.
            first_id: the first global number; after a restart, one above the highest ever given.

        Raises:
            RefusedError: two boards have the same id, or faults are off the board.
        """
        self.sites: dict[str, Site] = {}
        for board in boards:
            if board.id in self.sites:
                raise RefusedError(Refusal("DuplicateBoard", f"two boards are called {board.id}"))
            self.sites[board.id] = Site(board)
        self.tenants: dict[str, Tenant] = {}
        self.leases: dict[int, Lease] = {}
        self.tasks: dict[int, Task] = {}
        self.packages: dict[tuple[str, str], Package] = {}
        self.table = ForwardingTable()
        self.next_id = first_id

    # Tenants and applications.

    def tenant(self, name: str) -> Tenant:
        """A tenant; a new one has no quota."""
        return self.tenants.setdefault(name, Tenant(name))

    def set_quota(self, tenant: str, quota: Quota) -> None:
        """Limit a tenant from now on; what it holds already stays.

        Raises:
            RefusedError: a limit is negative.
        """
        if any((limit or 0) < 0 for limit in msgspec.structs.astuple(quota)):
            raise RefusedError(Refusal("NegativeQuota", f"quota of {tenant}: limits are 0 or more, or left out"))
        self.tenant(tenant).quota = quota

    def install(self, tenant: str, package: Package) -> None:
        """InstallApp: keep a package under its name; a newer one replaces it, running tasks keep theirs."""
        self.packages[tenant, package.name] = package
        self.tenant(tenant).apps.add(package.name)

    def apps(self, tenant: str) -> list[Package]:
        """The tenant's packages."""
        return [package for (owner, _), package in sorted(self.packages.items()) if owner == tenant]

    # Leases.

    def lease(self, tenant: str, cores: int, *, request: CoreRequest | None = None, wish: Wish = ANYWHERE) -> Lease:
        """Hold a rectangle of at least so many live cores for a tenant's tasks.

        Args:
            tenant: whose it will be.
            cores: live cores; the rectangle is near to a square unless ``request`` says which.
            request: the exact rectangle.
            wish: on which board.

        Raises:
            RefusedError: no board holds it, now or ever, or the quota does not allow it.
        """
        if cores < 1:
            raise RefusedError(Refusal("NegativeSize", f"a lease has at least 1 core, not {cores}; ask like 100"))
        owner = self.tenant(tenant)
        requests = [request] if request is not None else shapes_of(cores)
        self._within_quota(owner, Amounts(cores=cores), 0)
        refusals: list[Refusal] = []
        for site in self._order(wish):
            possible: list[CoreRequest] = []
            for wanted in requests:
                try:
                    site.cores.check(wanted)
                except RefusedError as error:
                    refusals.extend(error.refusals)
                    continue
                possible.append(wanted)
                placed = site.cores.find(wanted)
                if placed is not None:
                    return self._new_lease(owner, site, placed, whole=False)
            if possible:
                refusals.append(no_place(site, possible[0]))
        raise RefusedError(*worth_saying(refusals))

    def end_lease(self, tenant: str, number: int) -> None:
        """Give a lease back.

        Raises:
            RefusedError: there is no such lease, or tasks are in it.
        """
        owner = self.tenant(tenant)
        lease = self._lease(owner, number)
        if lease.tasks:
            busy = ", ".join(str(self.tasks[task].number) for task in sorted(lease.tasks))
            raise RefusedError(Refusal("LeaseInUse", f"lease {number} holds task {busy}; destroy those first"))
        self._drop_lease(owner, number, lease)

    # Tasks.

    def create(
        self,
        tenant: str,
        app: str,
        model: str = "",
        *,
        lease: int | None = None,
        wish: Wish = ANYWHERE,
        priority: int = 0,
    ) -> Task:
        """TaskCreate: choose a model, allocate, map logical to physical cores, reserve the ways, give it a number.

        Returns:
            The task in state ``Routed``: next it is loaded.

        Raises:
            RefusedError: with what would fit; then nothing has changed.
        """
        owner = self.tenant(tenant)
        package = self.packages.get((tenant, app))
        if package is None:
            raise missing("app", app)
        chosen = package.model(model)
        if lease is not None:
            found = self._lease(owner, lease)
            self._within_quota(owner, msgspec.structs.replace(chosen.amounts, cores=0), 1)
            return self._create_in(owner, package, chosen, found, priority)
        self._within_quota(owner, chosen.amounts, 1)
        refusals: list[Refusal] = []
        for site in self._order(wish):
            lacking = shortages(
                msgspec.structs.replace(chosen.amounts, cores=0), site.free(), site.capacity, f"board {site.board.id}"
            )
            if lacking:
                refusals.extend(lacking)
                continue
            try:
                site.cores.check(chosen.request)
            except RefusedError as error:
                refusals.extend(error.refusals)
                continue
            placed = site.cores.find(chosen.request)
            if placed is None:
                refusals.append(no_place(site, chosen.request))
                continue
            held = self._new_lease(owner, site, placed, whole=True)
            try:
                return self._create_in(owner, package, chosen, held, priority)
            except RefusedError as error:
                refusals.extend(error.refusals)
                self._undo_lease(owner, held)
        raise RefusedError(*worth_saying(refusals))

    def get(self, tenant: str, number: int) -> Task:
        """One of the tenant's tasks.

        Raises:
            RefusedError: it has no such task, whoever else may.
        """
        owner = self.tenants.get(tenant)
        id = owner.tasks.get(number) if owner is not None else None
        if id is None:
            raise missing("task", number)
        return self.tasks[id]

    def list(self, tenant: str) -> Sequence[Task]:
        """All tasks of a tenant, by number."""
        owner = self.tenants.get(tenant)
        return [self.tasks[id] for _, id in sorted(owner.tasks.items())] if owner is not None else []

    def advance(self, tenant: str, number: int, event: Event) -> tuple[Task, tuple[Instruction, ...]]:
        """Tell a task what happened; say where it is now and what to do.

        Raises:
            RefusedError: no such task, or the event makes no sense now.
        """
        task = self.get(tenant, number)
        try:
            life, instructions = task.life.after(event)
        except TransitionError as error:
            raise RefusedError(Refusal("WrongState", f"task {number}: {error}")) from error
        task = msgspec.structs.replace(task, life=life)
        self.tasks[task.id] = task
        if life.state in ENDED:
            self._free(task)
        return task, instructions

    def streams(self, tenant: str) -> dict[int, Endpoint]:
        """The tenant's virtual stream addresses."""
        return self.table.of(tenant)

    def register_route(self, task: Task, logical: int) -> Route:
        """The way by which registers and tables of one of its cores are written, from the nearest port.

        Raises:
            RefusedError: faults cut it off, or there is no such core.
        """
        if not 0 <= logical < len(task.cores):
            raise missing("core", logical)
        site = self.sites[task.board]
        cell = task.cores[logical]
        model = site.board.model
        port = min(model.ports, key=lambda p: (abs(p.cell[0] - cell[0]) + abs(p.cell[1] - cell[1]), p.name))
        return find_route(model.layout, port.cell, cell, allowed=site.routers, hop_limit=model.hop_limit)

    # Faults.

    def fault(self, board: str, *, cores: Iterable[Cell] = (), routers: Iterable[Cell] = ()) -> Sequence[Task]:
        """Note that cores or routers died; the tasks they hurt become ``Degraded``, and are returned.

        Raises:
            RefusedError: no such board, or no such core.
        """
        site = self._site(board)
        dead, broken = frozenset(cores), frozenset(routers)
        state = msgspec.structs.replace(
            site.board, dead_cores=site.board.dead_cores | dead, dead_routers=site.board.dead_routers | broken
        )
        state.check()
        site.board = state
        site.cores.fail(cores=dead, routers=broken)
        for lease in self.leases.values():
            if lease.board == board:
                inside = [cell for cell in dead | broken if lease.rectangle.holds(cell)]
                lease.inner.fail(
                    cores=[lease.virtual(cell) for cell in inside if cell in dead],
                    routers=[lease.virtual(cell) for cell in inside if cell in broken],
                )
        hurt = []
        for task in list(self.tasks.values()):
            if task.board != board or task.life.state not in HOLDING:
                continue
            if task.life.state in ("Draining", "Degraded"):
                continue
            if dead.intersection(task.cores) or broken.intersection(task.cores) or broken & _routers_of(task):
                changed, _ = self.advance(task.tenant, task.number, "fault")
                hurt.append(changed)
        return hurt

    def mend(self, board: str, cells: Iterable[Cell]) -> None:
        """Note that cores and routers work again.

        Raises:
            RefusedError: no such board.
        """
        site, mended = self._site(board), frozenset(cells)
        site.board = msgspec.structs.replace(
            site.board, dead_cores=site.board.dead_cores - mended, dead_routers=site.board.dead_routers - mended
        )
        site.cores.mend(mended - frozenset(site.board.model.controllers))
        for lease in self.leases.values():
            if lease.board == board:
                lease.inner.mend([lease.virtual(cell) for cell in mended if lease.rectangle.holds(cell)])

    def remap(self, tenant: str, number: int) -> Task:
        """Give a degraded task other cores; its numbers and stream addresses stay. It must be loaded anew.

        Returns:
            The task in state ``Remapping``.

        Raises:
            RefusedError: it is not degraded, or there is no room; then nothing has changed.
        """
        task = self.get(tenant, number)
        if task.life.state != "Degraded":
            raise RefusedError(Refusal("WrongState", f"task {number} is {task.life.state}; only a degraded one moves"))
        saved = self._checkpoint()
        try:
            moved = self._move(task)
        except RefusedError:
            self._restore(saved)
            raise
        life, _ = task.life.after("remap")
        moved = msgspec.structs.replace(moved, life=life)
        self.tasks[task.id] = moved
        return moved

    # Making room.

    def plan_room(self, board: str, request: CoreRequest, limits: MigrationLimits = USUAL) -> MigrationPlan | None:
        """Which idle tasks to move so that a request fits; see :func:`hcs.neuro.migration.plan_migration`.

        Only tasks that are ready or paused, each alone in its lease, are moved.

        Raises:
            RefusedError: no such board.
        """
        site = self._site(board)
        movable = {}
        for number, lease in self.leases.items():
            tasks = [self.tasks[id] for id in lease.tasks]
            if lease.board == board and lease.whole and all(t.life.state in ("Ready", "Paused") for t in tasks):
                movable[number] = tasks[0].model.request if tasks else CoreRequest(1, 1)
        return plan_migration(site.cores, request, movable, limits)

    def victims(self, board: str, wanted: Amounts, priority: int) -> Sequence[Task]:
        """Which tasks of lower priority must go so that an amount is free; the fewest, the least important first.

        Empty where even all of them would not do, or none is needed.

        Raises:
            RefusedError: no such board.
        """
        site = self._site(board)
        free = site.free()
        lower = sorted(
            (t for t in self.tasks.values() if t.board == board and t.priority < priority and t.life.state in HOLDING),
            key=lambda t: (t.priority, -t.amounts.ksps, -t.id),
        )
        chosen: list[Task] = []
        for task in lower:
            if wanted.within(free):
                break
            chosen.append(task)
            free = free + _event_amounts(task)
        if not wanted.within(free):
            return []
        for task in list(reversed(chosen)):
            if wanted.within(free - _event_amounts(task)):
                chosen.remove(task)
                free = free - _event_amounts(task)
        return chosen

    # Inside.

    def _site(self, board: str) -> Site:
        site = self.sites.get(board)
        if site is None:
            known = ", ".join(sorted(self.sites)) or "none"
            raise RefusedError(Refusal("UnknownBoard", f"there is no board {board[:60]!r}; there are {known}"))
        return site

    def _lease(self, owner: Tenant, number: int) -> Lease:
        id = owner.leases.get(number)
        if id is None:
            raise missing("lease", number)
        return self.leases[id]

    def _order(self, wish: Wish) -> Sequence[Site]:
        """The boards to try, the best first."""
        if wish.board:
            return [self._site(wish.board)]
        if not self.sites:
            raise RefusedError(Refusal("NoBoards", "there is no board here; give the service one"))

        def score(site: Site) -> tuple[object, ...]:
            near = wish.numa is not None and site.board.numa == wish.numa
            capacity = site.capacity.ksps
            if wish.affinity == "near-source":
                return (not near, site.free().cores, site.board.id)
            if wish.affinity == "high-capacity":
                return (-capacity, not near, site.board.id)
            # The fullest board that still takes it keeps the others whole.
            return (wish.numa is not None and not near, site.free().cores, site.board.id)

        return sorted(self.sites.values(), key=score)

    def _within_quota(self, owner: Tenant, more: Amounts, tasks: int) -> None:
        held = Amounts()
        for id in owner.tasks.values():
            held = held + msgspec.structs.replace(self.tasks[id].amounts, cores=0)
        cores = sum(self.leases[number].cores for number in owner.leases.values())
        cores += sum(lease.cores for lease in self.leases.values() if lease.tenant == owner.name and lease.whole)
        held = msgspec.structs.replace(held, cores=cores)
        refusals = owner.quota.refuse(held, len(owner.tasks), more, tasks, owner.name)
        if refusals:
            raise RefusedError(*refusals)

    def _new_lease(self, owner: Tenant, site: Site, placed: Placed, *, whole: bool) -> Lease:
        number = self.next_id
        self.next_id += 1
        site.cores.hold(number, placed.rectangle)
        dead = site.board.dead_cores | frozenset(site.board.model.controllers)
        lease = Lease(number, owner.name, site.board.id, placed.rectangle, dead=dead, whole=whole)
        self.leases[number] = lease
        if not whole:
            owner.leases[owner.next_lease] = number
            owner.next_lease += 1
        return lease

    def _undo_lease(self, owner: Tenant, lease: Lease) -> None:
        self.sites[lease.board].cores.release(lease.number)
        del self.leases[lease.number]

    def _drop_lease(self, owner: Tenant, number: int, lease: Lease) -> None:
        del owner.leases[number]
        self._undo_lease(owner, lease)

    def _create_in(self, owner: Tenant, package: Package, model: Model, lease: Lease, priority: int) -> Task:
        id, number = self.next_id, owner.next_task
        saved = self._checkpoint()
        try:
            task = self._settle(
                Task(
                    id=id,
                    number=number,
                    tenant=owner.name,
                    app=package.name,
                    version=package.version,
                    model=model,
                    board=lease.board,
                    lease=lease.number,
                    rectangle=lease.rectangle,
                    virtual=Placed(Rectangle(0, 0, 1, 1)),
                    cores=(),
                    corridors=(),
                    spike_routes=(),
                    addresses=(),
                    amounts=model.amounts,
                    priority=priority,
                ),
                lease,
            )
        except RefusedError:
            self._restore(saved)
            raise
        life = Life()
        events: tuple[Event, ...] = ("placed", "routed")
        for event in events:
            life, _ = life.after(event)
        task = msgspec.structs.replace(task, life=life)
        self.next_id += 1
        owner.next_task += 1
        owner.tasks[number] = id
        self.tasks[id] = task
        return task

    def _settle(self, task: Task, lease: Lease) -> Task:
        """Take cores, ways and rates for a task in a lease. On a refusal the caller restores everything."""
        site = self.sites[lease.board]
        board, model, request = site.board, task.model, task.model.request
        rates = msgspec.structs.replace(task.amounts, cores=0)
        lacking = shortages(rates, site.free(), site.capacity, f"board {board.id}")
        if lacking:
            raise RefusedError(*lacking)
        lease.inner.check(request)
        virtual = lease.inner.find(request)
        if virtual is None:
            raise RefusedError(
                Refusal(
                    "LeaseFull",
                    f"asks for {request} cores, and the lease has {lease.inner.free_cores} of {lease.cores} free, "
                    f"not in one such piece; {largest_free(lease.inner)} would fit",
                )
            )
        lease.inner.hold(task.id, virtual.rectangle)
        lease.tasks.add(task.id)
        x, y = lease.physical((virtual.rectangle.x, virtual.rectangle.y))
        rectangle = Rectangle(x, y, virtual.rectangle.width, virtual.rectangle.height)
        layout = board.model.layout
        cores = map_cores(layout, board.model, rectangle, board.live(), model.cores)
        routes = spike_routes(site, model, rectangle, cores)
        ends = [cores[core] for core in (*model.inputs, *model.outputs)]
        targets = [ends[number % len(ends)] for number in range(model.streams)]
        corridors = site.ledger.reserve(task.id, targets, model.ksps, routers=site.routers)
        site.ledger.reserve_inner(task.id, routes)
        site.taken = site.taken + rates
        endpoints = [
            Endpoint(board.id, corridor.port, corridor.channel, corridor.route.points[-1], corridor.ksps, task.id)
            for corridor in corridors
        ]
        if task.addresses:
            for address, endpoint in zip(task.addresses, endpoints, strict=True):
                self.table.move(task.tenant, address, endpoint)
            addresses = task.addresses
        else:
            addresses = tuple(self.table.add(task.tenant, endpoint) for endpoint in endpoints)
        return msgspec.structs.replace(
            task,
            board=board.id,
            lease=lease.number,
            rectangle=rectangle,
            virtual=virtual,
            cores=cores,
            corridors=corridors,
            spike_routes=routes,
            addresses=addresses,
            amounts=msgspec.structs.replace(task.amounts, cores=request.cores),
        )

    def _unsettle(self, task: Task) -> None:
        """Give back what a task took; its addresses stay."""
        site, lease = self.sites[task.board], self.leases[task.lease]
        site.ledger.release(task.id)
        site.taken = site.taken - msgspec.structs.replace(task.amounts, cores=0)
        lease.inner.release(task.id)
        lease.tasks.discard(task.id)
        if lease.whole:
            self._undo_lease(self.tenants[task.tenant], lease)

    def _move(self, task: Task) -> Task:
        """Settle a task again: within its lease if it shares one, otherwise wherever there is room."""
        lease = self.leases[task.lease]
        self._unsettle(task)
        if not lease.whole:
            return self._settle(task, lease)
        owner = self.tenants[task.tenant]
        refusals: list[Refusal] = []
        for site in self._order(Wish(numa=self.sites[task.board].board.numa)):
            placed = site.cores.find(task.model.request)
            if placed is None:
                refusals.append(no_place(site, task.model.request))
                continue
            saved = self._checkpoint()
            try:
                return self._settle(task, self._new_lease(owner, site, placed, whole=True))
            except RefusedError as error:
                refusals.extend(error.refusals)
                self._restore(saved)
        raise RefusedError(*worth_saying(refusals))

    def _free(self, task: Task) -> None:
        """Forget a task that ended; its numbers are not given again."""
        if task.cores:
            self._unsettle(task)
        for address in task.addresses:
            self.table.remove(task.tenant, address)
        del self.tasks[task.id]
        del self.tenants[task.tenant].tasks[task.number]

    def _checkpoint(self) -> "_Checkpoint":
        books: list[Site | Tenant | Lease] = [*self.sites.values(), *self.tenants.values(), *self.leases.values()]
        return _Checkpoint(
            [(kept, kept.copy()) for kept in books],
            dict(self.leases),
            dict(self.tasks),
            self.table.copy(),
        )

    def _restore(self, saved: "_Checkpoint") -> None:
        """Put back what :meth:`_checkpoint` kept, into the same objects; numbers used meanwhile stay used."""
        for kept, copy in saved.parts:
            kept.__dict__.update(copy.copy().__dict__)
        self.leases, self.tasks, self.table = dict(saved.leases), dict(saved.tasks), saved.table.copy()


class _Checkpoint(msgspec.Struct, frozen=True):
    """Everything a call may change, as it was before."""

    parts: list[tuple[Site | Tenant | Lease, Site | Tenant | Lease]]
    leases: dict[int, Lease]
    tasks: dict[int, Task]
    table: ForwardingTable


def _event_amounts(task: Task) -> Amounts:
    return msgspec.structs.replace(task.amounts, streams=len(task.corridors))


def _routers_of(task: Task) -> frozenset[Cell]:
    """Every router a task's packets go through, and all of its rectangle."""
    used = set(task.rectangle.cells())
    for corridor in task.corridors:
        used.update(corridor.route.cells())
    return frozenset(used)
