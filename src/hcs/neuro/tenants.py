"""Who shares a board: tenants with quotas, leases, and numbers of their own.

A *lease* is a rectangle of cores that a tenant holds like a computer of its own, with a grid that begins at (0,0); the
tenant's tasks share it. Tasks and streams are numbered from 1 for each tenant. Every number a tenant names is
looked up among its own, so another tenant's cannot be told from one that does not exist: same reason, same words.
"""

from typing import Final

import msgspec

from hcs.model.refusals import Refusal, RefusedError
from hcs.neuro.allocator import Allocator
from hcs.neuro.capacities import UNITS, Amounts
from hcs.neuro.grids import Cell, Rectangle, layout

_FIELDS = ("cores", "ksps", "streams", "tasks")


class Quota(msgspec.Struct, frozen=True, rename="camel"):
    """The most a tenant may hold at once; None for no limit."""

    cores: int | None = None
    ksps: int | None = None
    streams: int | None = None
    tasks: int | None = None

    def refuse(self, held: Amounts, tasks: int, more: Amounts, more_tasks: int, tenant: str) -> list[Refusal]:
        """What would exceed it, with what is left."""
        refusals = []
        for field in _FIELDS:
            limit = getattr(self, field)
            if limit is None:
                continue
            have = tasks if field == "tasks" else getattr(held, field)
            want = more_tasks if field == "tasks" else getattr(more, field)
            if want and have + want > limit:
                unit = UNITS.get(field, "tasks")
                refusals.append(
                    Refusal(
                        "QuotaExceeded",
                        f"tenant {tenant} holds {have} of {limit} {unit} and asks for {want} more; "
                        f"{max(0, limit - have)} would fit, or destroy a task first",
                    )
                )
        return refusals


UNLIMITED: Final = Quota()


class Lease:
    """A rectangle of a board that one tenant holds. Its cores are addressed from (0,0)."""

    def __init__(
        self, number: int, tenant: str, board: str, rectangle: Rectangle, *, dead: frozenset[Cell], whole: bool
    ) -> None:
        """Begin with no task in it.

        Args:
            number: global number, never used again; the board's allocator knows the rectangle by it.
            tenant: whose it is.
            board: the board's id.
            rectangle: where on the board.
            dead: cells of the board that carry no neurons.
            whole: whether it was made for one task alone and ends with it.
        """
        self.number, self.tenant, self.board, self.rectangle, self.whole = number, tenant, board, rectangle, whole
        inside = [self.virtual(cell) for cell in dead if rectangle.holds(cell)]
        self.inner = Allocator(layout(rectangle.width, rectangle.height), dead_cores=inside)
        self.tasks: set[int] = set()

    def physical(self, cell: Cell) -> Cell:
        """The board's core behind one of the lease's.

        Raises:
            RefusedError: the lease has no such core.
        """
        if not (0 <= cell[0] < self.rectangle.width and 0 <= cell[1] < self.rectangle.height):
            raise RefusedError(
                Refusal(
                    "OutsideLease",
                    f"core ({cell[0]},{cell[1]}) is not in this lease of "
                    f"{self.rectangle.width}x{self.rectangle.height}, counted from (0,0)",
                )
            )
        return self.rectangle.x + cell[0], self.rectangle.y + cell[1]

    def virtual(self, cell: Cell) -> Cell:
        """The address within the lease of a core of the board."""
        return cell[0] - self.rectangle.x, cell[1] - self.rectangle.y

    @property
    def cores(self) -> int:
        """Live cores in it."""
        return self.inner.live.bit_count()

    def copy(self) -> "Lease":
        """An independent copy."""
        twin = object.__new__(Lease)
        twin.__dict__.update(self.__dict__)
        twin.inner, twin.tasks = self.inner.copy(), set(self.tasks)
        return twin


class Tenant:
    """One tenant: quota, and its own numbers, each never used again."""

    def __init__(self, name: str, quota: Quota = UNLIMITED) -> None:
        """Begin with nothing.

        Args:
            name: unique; a namespace where tasks come from Kubernetes.
            quota: the most it may hold.
        """
        self.name, self.quota = name, quota
        self.tasks: dict[int, int] = {}
        """Its task number → the global one."""
        self.leases: dict[int, int] = {}
        self.apps: set[str] = set()
        self.next_task = 1
        self.next_lease = 1

    def copy(self) -> "Tenant":
        """An independent copy."""
        twin = object.__new__(Tenant)
        twin.__dict__.update(self.__dict__)
        twin.tasks, twin.leases, twin.apps = dict(self.tasks), dict(self.leases), set(self.apps)
        return twin


def missing(kind: str, number: object) -> RefusedError:
    """The one answer for what is not there and for what belongs to others."""
    return RefusedError(Refusal("NotFound", f"you have no {kind} {str(number)[:60]}; list yours to see their numbers"))
