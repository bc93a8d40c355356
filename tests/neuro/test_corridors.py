"""The ledger of streams: every channel once, rates within the port's, all or none."""

import msgspec
import pytest
from tests.neuro.boards import board

from hcs.model.refusals import RefusedError
from hcs.neuro.boards import EdgePort
from hcs.neuro.capacities import capacity_of
from hcs.neuro.corridors import Ledger
from hcs.neuro.models import DARWIN3
from hcs.neuro.routes import Route


def small() -> Ledger:
    ports = (EdgePort("west", "west", (0, 0), 100), EdgePort("east", "east", (7, 7), 50))
    return Ledger(board(ports=ports, virtual_channels=2, control_channels=1).model)


def reserve(ledger: Ledger, holder: int, streams: int, ksps: int) -> None:
    ledger.reserve(holder, [(3, 3)] * streams, ksps, routers=ledger.model.layout.cells)


def test_the_ledger_is_the_event_routing_capacity() -> None:
    ledger = small()
    assert ledger.free == ledger.model.streams == 3
    assert Ledger(DARWIN3).free == 4 * 4 - 4
    for holder in range(3):
        reserve(ledger, holder, 1, 10)
        assert ledger.free == 2 - holder
    with pytest.raises(RefusedError, match="1 event streams, and 0 of 3 are free"):
        reserve(ledger, 9, 1, 1)
    pairs = {(c.port, c.channel) for holder in range(3) for c in ledger.corridors(holder)}
    assert pairs == {("west", 1), ("east", 0), ("east", 1)}, "control keeps the first channel of the first port"


def test_rates_are_split_and_never_exceed_a_port() -> None:
    ledger = small()
    reserve(ledger, 1, 2, 101)
    assert sorted(c.ksps for c in ledger.corridors(1)) == [50, 51]
    with pytest.raises(RefusedError, match="no port has more than"):
        reserve(ledger, 2, 1, 100)


def test_a_refused_reservation_leaves_nothing_behind() -> None:
    ledger = small()
    before = ledger.copy()
    with pytest.raises(RefusedError):
        reserve(ledger, 1, 2, 300)
    assert (ledger.free, ledger.relays, ledger.corridors(1)) == (before.free, {}, ())


def test_released_channels_and_relay_points_are_free_again() -> None:
    model = msgspec.structs.replace(board(width=30, height=3).model, hop_limit=5, relay_capacity=1)
    ledger = Ledger(model)
    ledger.reserve(1, [(15, 0)], 10, routers=model.layout.cells)
    ledger.reserve_inner(1, [Route(((3, 0), (8, 0), (12, 0)))])
    assert sum(ledger.relays.values()) >= 1
    ledger.release(1)
    assert (ledger.free, ledger.relays) == (model.streams, {})


def test_relay_points_have_an_end() -> None:
    model = msgspec.structs.replace(board(width=30, height=1).model, hop_limit=15, relay_capacity=1)
    ledger = Ledger(model)
    ledger.reserve_inner(1, [Route(((0, 0), (15, 0), (29, 0)))])
    with pytest.raises(RefusedError, match=r"router \(15,0\)"):
        ledger.reserve_inner(2, [Route(((1, 0), (15, 0), (28, 0)))])
    assert ledger.relays == {(15, 0): 1}


def test_a_channel_is_claimed_once() -> None:
    ledger = small()
    ledger.claim(1, [("east", 0)])
    with pytest.raises(RefusedError, match="channel 0 of port east is taken"):
        ledger.claim(2, [("west", 1), ("east", 0)])
    assert ledger.free == 2, "all or none"
    with pytest.raises(RefusedError):
        ledger.claim(3, [("west", 0)])


def test_streams_of_a_board_follow_its_ports_and_channels() -> None:
    assert capacity_of(board(virtual_channels=3, control_channels=2)).streams == 4 * 3 - 2
