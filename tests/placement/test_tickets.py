"""Gangs take turns: whatever the order of events, all of them are served."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from hcs.placement.tickets import Ticket, may_gather, must_yield, served


def test_higher_priority_then_age_then_name() -> None:
    tickets = [Ticket("b", 0, 5.0), Ticket("a", 0, 5.0), Ticket("c", 0, 1.0), Ticket("d", 9, 7.0)]
    assert [ticket.gang for ticket in served(tickets)] == ["d", "c", "a", "b"]


def test_gangs_gather_side_by_side_only_on_different_nodes() -> None:
    old, young = Ticket("old", 0, 1.0), Ticket("young", 0, 2.0)
    assert may_gather(young, frozenset("cd"), {old: frozenset("ab")})
    assert not may_gather(young, frozenset("bc"), {old: frozenset("ab")})
    assert may_gather(old, frozenset("ab"), {old: frozenset("ab")}), "never in its own way"


def test_who_could_not_gather_in_time_yields_to_an_earlier_ticket_only() -> None:
    old, young = Ticket("old", 0, 1.0), Ticket("young", 0, 2.0)
    assert must_yield(young, frozenset("ab"), [(old, frozenset("b"))])
    assert not must_yield(old, frozenset("ab"), [(young, frozenset("b"))])
    assert not must_yield(young, frozenset("a"), [(old, frozenset("b"))])


@given(
    wants=st.lists(st.frozensets(st.sampled_from("abcd"), min_size=1), min_size=1, max_size=6),
    stuck=st.lists(st.booleans(), min_size=40, max_size=40),
)
def test_every_gang_is_served(wants: list[frozenset[str]], stuck: list[bool]) -> None:
    """Gangs that sometimes cannot gather in time: they give back and try again; nobody waits for ever."""
    tickets = {Ticket(f"g{n}", 0, float(n)): nodes for n, nodes in enumerate(wants)}
    waiting, gathering, done, events = dict(tickets), dict[Ticket, frozenset[str]](), 0, itertools.chain(stuck)
    for _ in range(200):
        for ticket in served(waiting):
            if may_gather(ticket, waiting[ticket], gathering):
                gathering[ticket] = waiting.pop(ticket)
        for ticket in list(gathering):
            nodes = gathering.pop(ticket)
            if next(events, False) and must_yield(ticket, nodes, waiting.items()):
                waiting[ticket] = nodes
            else:
                done += 1
        if done == len(tickets):
            return
    raise AssertionError("some gang was never served")
