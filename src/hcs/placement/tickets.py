"""In which order gangs are served, so that they never block each other for ever.

A gang's devices are reserved in one decision, so no two gangs each hold half of what both need. CPU and memory are not:
kube-scheduler takes them pod by pod while a gang's members gather before their bindings, and two gangs that gather on
the same nodes could each wait for the other. So gangs have *tickets*, ordered by priority, then by age, and a gang may
gather only where no gang with an earlier ticket does. Whoever waits then waits for an earlier ticket only, and an order
has no circles. A gang that runs into its time limit gives everything back and keeps its ticket, so it is not overtaken
for ever either.
"""

from collections.abc import Iterable, Mapping

import msgspec


class Ticket(msgspec.Struct, frozen=True):
    """A gang's turn. ``since`` is when its first member was seen, in seconds; it never changes."""

    gang: str
    priority: int
    since: float

    def before(self, other: "Ticket") -> bool:
        """Whether this one is served first: higher priority, then older, then by name."""
        return self.order < other.order

    @property
    def order(self) -> tuple[int, float, str]:
        """Sorts tickets as they are served."""
        return -self.priority, self.since, self.gang


def served(tickets: Iterable[Ticket]) -> tuple[Ticket, ...]:
    """Tickets in the order in which gangs are planned."""
    return tuple(sorted(tickets, key=lambda ticket: ticket.order))


def may_gather(ticket: Ticket, nodes: frozenset[str], gathering: Mapping[Ticket, frozenset[str]]) -> bool:
    """Whether a gang may open its members' gates now.

    Args:
        ticket: the gang's.
        nodes: the nodes of its plan.
        gathering: the gangs whose members gather now, with the nodes of their plans.
    """
    return not any(other != ticket and nodes & theirs for other, theirs in gathering.items())


def must_yield(ticket: Ticket, nodes: frozenset[str], waiting: Iterable[tuple[Ticket, frozenset[str]]]) -> bool:
    """Whether a gathering gang should close its gates for an earlier ticket that wants one of its nodes.

    Only one that could not gather within its time limit is asked; it plans again after the other.
    """
    return any(other.before(ticket) and nodes & theirs for other, theirs in waiting)
