"""The service's calls: all of their work or none, and nobody sees another's."""

import random

import msgspec
import pytest
from tests.neuro.boards import board, package

from hcs.model.refusals import RefusedError
from hcs.neuro.allocator import CoreRequest
from hcs.neuro.capacities import Amounts
from hcs.neuro.lifecycle import HOLDING
from hcs.neuro.service import NeuralService
from hcs.neuro.sites import Wish
from hcs.neuro.tenants import Quota

MODELS = {
    "small": (4, {"ksps": 10, "streams": 1, "outputs": [3], "synapses": [{"source": [0, 0], "target": [3, 0]}]}),
    "wide": (6, {"width": 6, "height": 1, "ksps": 10, "streams": 2}),
    "greedy": (2, {"ksps": 100_000_000, "streams": 1}),
    "chatty": (2, {"ksps": 10, "streams": 99}),
    "huge": (900, {"ksps": 10, "streams": 1}),
}


def opened(*boards: object, tenants: tuple[str, ...] = ("a", "b")) -> NeuralService:
    service = NeuralService(boards or (board(),))  # type: ignore[arg-type]
    for tenant in tenants:
        service.install(tenant, package(**MODELS))
    return service


def state(service: NeuralService) -> object:
    """Everything that could leak."""
    return (
        {
            id: (site.cores.free, site.cores.held.copy(), site.ledger.free, site.ledger.relays, site.taken)
            for id, site in service.sites.items()
        },
        {number: (lease.rectangle, lease.inner.free, set(lease.tasks)) for number, lease in service.leases.items()},
        set(service.tasks),
        service.table.everything(),
        {name: (dict(tenant.tasks), dict(tenant.leases)) for name, tenant in service.tenants.items()},
    )


def refused(service: NeuralService, *arguments: object, **more: object) -> RefusedError:
    before = state(service)
    with pytest.raises(RefusedError) as caught:
        service.create(*arguments, **more)  # type: ignore[arg-type]
    assert state(service) == before, "nothing half allocated"
    return caught.value


def end(service: NeuralService, tenant: str, number: int) -> None:
    service.advance(tenant, number, "destroy")
    service.advance(tenant, number, "drained")


def test_a_task_gets_cores_ways_numbers_and_gives_all_back() -> None:
    service = opened()
    empty = state(service)
    task = service.create("a", "app", "small")
    assert task.life.state == "Routed"
    assert len(set(task.cores)) == 4
    assert all(task.rectangle.holds(cell) for cell in task.cores)
    assert all(task.rectangle.holds(cell) for route in task.spike_routes for cell in route.cells())
    assert {c.route.points[-1] for c in task.corridors} <= set(task.cores)
    for event in ("loaded", "checked", "run", "pause", "resume"):
        service.advance("a", task.number, event)  # type: ignore[arg-type]
    end(service, "a", task.number)
    assert state(service) == empty


@pytest.mark.parametrize(
    ("model", "reason", "sentence"),
    [
        ("greedy", "BeyondBoard", "offers"),
        ("chatty", "BeyondBoard", "99 streams, and board b0 offers 12 when empty"),
        ("huge", "BeyondBoard", "largest rectangle that fits is 8x8"),
        ("nope", "UnknownModel", "it has small, wide"),
    ],
)
def test_what_can_never_be_says_what_would_fit(model: str, reason: str, sentence: str) -> None:
    error = refused(opened(), "a", "app", model)
    assert error.refusals[0].reason == reason
    assert sentence in str(error)


def test_ports_run_out_with_a_sentence() -> None:
    service = opened(board(virtual_channels=1, control_channels=2))
    for _ in range(2):
        service.create("a", "app", "small")
    assert "0 of 2 left" in str(refused(service, "a", "app", "small"))


def test_a_rate_no_single_port_carries_is_refused_whole() -> None:
    from hcs.neuro.boards import EdgePort

    ports = (EdgePort("west", "west", (0, 0), 6), EdgePort("east", "east", (7, 0), 6))
    service = opened(board(ports=ports, control_channels=0))
    assert refused(service, "a", "app", "small").refusals[0].reason == "PortRateExhausted"
    service.lease("a", 9)
    assert refused(service, "a", "app", "small", lease=1).refusals[0].reason == "PortRateExhausted"


def test_numbers_begin_at_one_for_everybody_and_never_come_again() -> None:
    service = opened()
    first, other = service.create("a", "app", "small"), service.create("b", "app", "small")
    assert first.number == other.number == 1
    assert first.id != other.id
    end(service, "a", 1)
    again = service.create("a", "app", "small")
    assert again.number == 2
    assert again.id > max(first.id, other.id)
    assert not set(again.addresses) & set(first.addresses)


def test_a_foreign_number_cannot_be_told_from_a_missing_one() -> None:
    service = opened()
    service.create("a", "app", "small")
    service.create("a", "app", "small")
    service.create("b", "app", "small")
    lease = service.lease("a", 4)
    assert lease.tenant == "a"

    def words(call: object, number: int) -> str:
        with pytest.raises(RefusedError) as caught:
            call(number)  # type: ignore[operator]
        return str(caught.value).replace(str(number), "N")

    for call in (
        lambda n: service.get("b", n),
        lambda n: service.advance("b", n, "destroy"),
        lambda n: service.remap("b", n),
        lambda n: service.end_lease("b", n),
        lambda n: service.create("b", "app", "small", lease=n),
    ):
        assert words(call, 2 if "lease" not in str(call) else 1) == words(call, 77)
    assert service.table.forward("b", 2) is None
    assert service.table.forward("b", 99) is None


def test_a_tenant_that_never_was_sees_the_same() -> None:
    service = opened()
    with pytest.raises(RefusedError, match="you have no task 1;"):
        service.get("stranger", 1)
    assert service.list("stranger") == []


def test_a_lease_is_a_computer_of_its_own() -> None:
    service = opened(board(width=12, height=12, dead_cores=frozenset({(5, 5)})))
    lease = service.lease("a", 100)
    assert lease.cores >= 100
    one = service.create("a", "app", "small", lease=1)
    two = service.create("a", "app", "wide", lease=1)
    for task in (one, two):
        assert lease.rectangle.contains(task.rectangle)
        x, y = lease.physical((task.virtual.rectangle.x, task.virtual.rectangle.y))
        assert (x, y) == (task.rectangle.x, task.rectangle.y)
    assert not one.rectangle.overlaps(two.rectangle)
    with pytest.raises(RefusedError, match="counted from"):
        lease.physical((lease.rectangle.width, 0))
    with pytest.raises(RefusedError, match="holds task 1, 2"):
        service.end_lease("a", 1)
    end(service, "a", 1)
    end(service, "a", 2)
    service.end_lease("a", 1)
    assert service.sites["b0"].cores.held == {}


def test_a_full_lease_says_what_fits() -> None:
    service = opened()
    service.lease("a", 6, request=CoreRequest(3, 2, rotation=False))
    service.create("a", "app", "small", lease=1)
    assert "2 of 6 free" in str(refused(service, "a", "app", "small", lease=1))


def test_dead_cores_carry_nothing() -> None:
    service = opened(board(dead_cores=frozenset({(0, 0), (7, 7), (0, 7), (7, 0)})))
    for _ in range(6):
        task = service.create("a", "app", "small")
        assert not set(task.cores) & service.sites["b0"].board.dead_cores


@pytest.mark.parametrize(
    ("quota", "what"),
    [
        (Quota(tasks=1), "1 of 1 tasks"),
        (Quota(cores=7), "4 of 7 cores"),
        (Quota(ksps=15), "10 of 15 KSPS"),
        (Quota(streams=1), "1 of 1 streams"),
    ],
)
def test_a_quota_holds_and_says_what_is_left(quota: Quota, what: str) -> None:
    service = opened()
    service.set_quota("a", quota)
    service.create("a", "app", "small")
    assert what in str(refused(service, "a", "app", "small"))
    service.create("b", "app", "small")


def test_leased_cores_count_against_the_quota_once() -> None:
    service = opened()
    service.set_quota("a", Quota(cores=16))
    service.lease("a", 16)
    service.create("a", "app", "small", lease=1)
    with pytest.raises(RefusedError, match="16 of 16 cores"):
        service.lease("a", 1)


@pytest.mark.parametrize("kind", ["cores", "routers"])
def test_a_fault_degrades_whom_it_hurts_and_they_move_with_their_numbers(kind: str) -> None:
    service = opened()
    hurt, spared = service.create("a", "app", "small"), service.create("b", "app", "small")
    for tenant in ("a", "b"):
        service.advance(tenant, 1, "loaded")
        service.advance(tenant, 1, "checked")
    found = service.fault("b0", **{kind: [hurt.cores[0]]})
    assert [task.id for task in found] == [hurt.id]
    assert service.get("a", 1).life.state == "Degraded"
    moved = service.remap("a", 1)
    assert (moved.id, moved.number, moved.addresses) == (hurt.id, hurt.number, hurt.addresses)
    assert hurt.cores[0] not in moved.cores
    assert moved.life.state == "Remapping"
    assert service.get("b", 1).cores == spared.cores
    for address in moved.addresses:
        endpoint = service.table.forward("a", address)
        assert endpoint is not None
        assert endpoint.core in moved.cores
    service.advance("a", 1, "remapped")
    end(service, "a", 1)
    end(service, "b", 1)
    assert service.sites["b0"].cores.held == {}
    assert service.sites["b0"].taken == Amounts()


def test_a_task_that_cannot_move_keeps_what_it_has() -> None:
    service = opened(board(width=2, height=2))
    task = service.create("a", "app", "small")
    service.fault("b0", cores=[task.cores[0]])
    before = state(service)
    with pytest.raises(RefusedError):
        service.remap("a", 1)
    assert state(service) == before
    service.mend("b0", [task.cores[0]])
    service.remap("a", 1)


def test_it_moves_to_another_board_when_its_own_is_full() -> None:
    service = opened(board("b0", 2, 2), board("b1", 8, 8))
    task = service.create("a", "app", "small", wish=Wish(board="b0"))
    service.fault("b0", cores=[task.cores[0]])
    assert service.remap("a", 1).board == "b1"


@pytest.mark.parametrize(
    ("wish", "board_id"),
    [
        (Wish(affinity="high-capacity"), "large"),
        (Wish(affinity="near-source", numa=0), "near"),
        (Wish(board="near"), "near"),
        (Wish(), "near"),
    ],
)
def test_boards_are_chosen_by_wish(wish: Wish, board_id: str) -> None:
    service = opened(board("large", 16, 16, numa=1), board("near", 6, 6, numa=0))
    assert service.create("a", "app", "small", wish=wish).board == board_id


def test_an_unknown_board_is_refused() -> None:
    assert "there are b0" in str(refused(opened(), "a", "app", "small", wish=Wish(board="x")))


def test_the_least_important_go_first_and_no_more_than_needed() -> None:
    service = opened(board(ksps=100))
    for priority in (0, 0, 1, 5):
        service.create("a", "app", "small", priority=priority)
    assert service.victims("b0", Amounts(ksps=60), priority=9) == []
    chosen = service.victims("b0", Amounts(ksps=75), priority=9)
    assert [task.priority for task in chosen] == [0, 0]
    assert service.victims("b0", Amounts(ksps=99), priority=1) == [], "all of lower priority would not do"


def test_of_500_ksps_of_which_400_are_taken_at_most_100_are_given() -> None:
    models = {"m100": (1, {"ksps": 100}), "m101": (1, {"ksps": 101}), "m400": (1, {"ksps": 400})}
    service = NeuralService([board(ksps=500)])
    service.install("a", package(**models))
    service.create("a", "app", "m400")
    assert "has 100 of 500 left" in str(refused(service, "a", "app", "m101"))
    service.create("a", "app", "m100")


def test_idle_tasks_are_moved_to_make_room_and_busy_ones_never() -> None:
    service = opened(board(width=7, height=1, virtual_channels=8))
    service.install("a", package("app", one=(1, {"width": 1, "height": 1}), four=(4, {"width": 4, "height": 1})))
    for _ in range(7):
        service.create("a", "app", "one")
    middle = next(t for t in service.list("a") if t.rectangle.x == 3)
    for task in service.list("a"):
        if task is middle:
            service.advance("a", task.number, "loaded")
            service.advance("a", task.number, "checked")
        else:
            end(service, "a", task.number)
    assert service.plan_room("b0", CoreRequest(4, 1)) is not None
    service.advance("a", middle.number, "run")
    assert service.plan_room("b0", CoreRequest(4, 1)) is None


def check_all(service: NeuralService) -> None:
    for id, site in service.sites.items():
        held = list(site.cores.held.values())
        assert sum(r.area for r in held) == len({cell for r in held for cell in r.cells()}), "rectangles overlap"
        leases = [lease for lease in service.leases.values() if lease.board == id]
        assert {lease.number for lease in leases} == set(site.cores.held), "a rectangle leaked"
        tasks = [task for task in service.tasks.values() if task.board == id]
        used = [cell for task in tasks for cell in task.cores]
        assert len(used) == len(set(used)), "a core has two tasks"
        for lease in leases:
            assert lease.tasks == {task.id for task in tasks if task.lease == lease.number}
            assert lease.tasks == set(lease.inner.held), "cores of a lease leaked"
        for task in tasks:
            lease = service.leases[task.lease]
            assert lease.tenant == task.tenant
            assert lease.rectangle.contains(task.rectangle)
            assert task.life.state in HOLDING
        rates = [msgspec.structs.replace(task.amounts, cores=0) for task in tasks]
        assert site.taken == sum(rates, Amounts()), "a rate leaked"
        assert site.ledger.open == sum(len(task.corridors) for task in tasks), "a channel leaked"
    for (tenant, _), endpoint in service.table.everything().items():
        task = service.tasks[endpoint.task]
        assert task.tenant == tenant, "an address leads to another tenant"
        assert endpoint.core in task.cores


def operate(count: int, seed: int, every: int) -> None:
    """Random calls of three tenants; each may name any number, its own or not."""
    source = random.Random(seed)
    service = opened(board("b0", 9, 9, virtual_channels=6), board("b1", 6, 5), tenants=("a", "b", "c"))
    highest = 0
    seen: set[int] = set()
    for step in range(count):
        tenant = source.choice("abc")
        owner = service.tenants[tenant]
        # Its own, a number somebody may have, or the global number of anybody's task.
        number = source.choice([*owner.tasks, source.randint(1, max(1, highest)), *list(service.tasks)[-2:]])
        act = source.random()
        try:
            if act < 0.35:
                lease = source.choice([*owner.leases, None, None, source.randint(1, 5)])
                task = service.create(tenant, "app", source.choice(["small", "wide", "chatty"]), lease=lease)
                assert task.id not in seen, "a number came again"
                seen.add(task.id)
                highest = max(highest, task.number)
            elif act < 0.6:
                end(service, tenant, number)
            elif act < 0.7:
                event = source.choice(["loaded", "checked", "run", "pause", "resume", "finished", "failed"])
                service.advance(tenant, number, event)  # type: ignore[arg-type]
            elif act < 0.76:
                service.lease(tenant, source.randint(1, 20))
            elif act < 0.84:
                service.end_lease(tenant, source.choice([*owner.leases, 1]))
            elif act < 0.9:
                found = service.get(tenant, number)
                assert found.tenant == tenant, "another tenant's task was reached"
                assert number in owner.tasks
            elif act < 0.95:
                endpoint = service.table.forward(tenant, source.randint(1, max(1, highest)))
                assert endpoint is None or service.tasks[endpoint.task].tenant == tenant
            elif act < 0.97:
                site = source.choice(list(service.sites.values()))
                cell = (source.randrange(site.board.model.width), source.randrange(site.board.model.height))
                service.fault(site.board.id, **{source.choice(["cores", "routers"]): [cell]})
            elif act < 0.985:
                site = source.choice(list(service.sites.values()))
                service.mend(site.board.id, site.board.dead_cores | site.board.dead_routers)
            else:
                service.remap(tenant, number)
                service.advance(tenant, number, "remapped")
        except RefusedError:
            pass
        if step % every == 0:
            check_all(service)
    check_all(service)


def test_nothing_overlaps_leaks_or_is_reached_by_others_in_10_000_operations() -> None:
    operate(10_000, 1, every=50)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_nothing_overlaps_leaks_or_is_reached_by_others_in_a_million_operations() -> None:
    for seed in range(20):
        operate(50_000, 100 + seed, every=100)
