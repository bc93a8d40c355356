"""A held port is nobody else's, and a server's all the same."""

import socket

import pytest

from hcs.process.serving import Endpoint
from hcs.sandbox.ports import HeldPorts


def test_a_held_port_can_be_listened_on_again_and_again_and_by_nobody_who_is_careless() -> None:
    ports = HeldPorts()
    one, other = ports.take(), ports.take()
    assert one != other
    for _ in range(2):
        Endpoint(port=one).listen().close()
    with socket.socket() as careless, pytest.raises(OSError, match="in use"):
        careless.bind(("127.0.0.1", other))
    ports.release()
    with socket.socket() as careless:
        careless.bind(("127.0.0.1", other))
