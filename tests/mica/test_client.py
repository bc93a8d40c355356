"""The client against the emulated daemon, and against daemons that behave badly."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sandbox.micad.emulator import Micad, in_thread

from hcs.mica.client import Limits, Mica, MicaError
from hcs.mica.messages import CreateMessage
from hcs.model.refusals import RefusedError


@pytest.fixture
def micad() -> Iterator[Micad]:
    with in_thread(boot_seconds=0.0) as running:
        yield running


def client(micad: Micad) -> Mica:
    return Mica(str(micad.sockets), limits=Limits(0.3, 0.3))


def message(micad: Micad, name: str = "g") -> CreateMessage:
    return CreateMessage(name, str(micad.firmware()), ped_cfg="/image", vcpu_num=1, memory=64, max_memory=128)


def test_a_guest_is_created_started_changed_and_removed(micad: Micad) -> None:
    mica = client(micad)
    assert mica.is_up()
    mica.create(message(micad))
    assert mica.status("g").state == "Offline"
    mica.start("g")
    assert mica.status("g").state == "Running"
    mica.set("g", "maxmemory", "256")
    mica.set("g", "memory", "256")
    mica.stop("g")
    mica.remove("g")
    assert not mica.has("g")
    assert micad.xl() == [
        "xl create -p g-xen.cfg",
        "xl unpause g",
        "xl mem-max g 256m",
        "xl mem-set g 256m",
        "xl destroy g",
    ]


def test_micads_own_words_are_the_reason(micad: Micad) -> None:
    mica = client(micad)
    mica.create(message(micad))
    with pytest.raises(MicaError, match="g is already created") as failed:
        mica.create(message(micad))
    assert failed.value.reached
    assert failed.value.refusal.reason == "MicaFailed"


def test_nothing_is_sent_that_does_not_fit(micad: Micad) -> None:
    mica = client(micad)
    mica.create(message(micad))
    with pytest.raises(RefusedError):
        mica.set("g", "cpu", "0,2,4,6,8,10,12,14,16,18")
    assert micad.commands() == []


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        pytest.param({"fault": "no-reply"}, "NoAnswer", id="silence"),
        pytest.param({"fault": "late", "seconds": 0.5}, "NoAnswer", id="too-late"),
        pytest.param({"fault": "close"}, "NoMarker", id="closed-without-a-word"),
        pytest.param({"fault": "fail"}, "MicaFailed", id="no"),
        pytest.param({"fault": "split"}, "", id="single-bytes"),
        pytest.param({"fault": "late", "seconds": 0.05}, "", id="a-little-late"),
    ],
)
def test_every_failure_has_its_reason_and_none_looks_like_success(
    micad: Micad, rule: dict[str, object], reason: str
) -> None:
    mica = client(micad)
    mica.create(message(micad))
    micad.faults(rule)
    try:
        mica.stop("g")
        seen = ""
    except MicaError as error:
        seen = error.refusal.reason
    assert seen == reason


def test_a_daemon_that_is_not_there_and_one_that_died_are_told_apart(tmp_path: Path) -> None:
    mica = Mica(str(tmp_path))
    with pytest.raises(MicaError) as absent:
        mica.stop("g")
    assert absent.value.refusal.reason == "NoSocket"
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(tmp_path / "g.socket"))
    stale.close()
    with pytest.raises(MicaError) as died:
        mica.stop("g")
    assert died.value.refusal.reason == "StaleSocket"
    assert "g.socket" in died.value.refusal.message


@pytest.mark.parametrize(
    "pieces", [[b"half a reply MICA-"], [b"MICA-SUCCESS", b"MICA-FAILED"], [b"text", b"MICA-FAILED"]]
)
def test_only_the_last_marker_counts(tmp_path: Path, pieces: list[bytes]) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "g.socket"))
    listener.listen()

    def serve() -> None:
        connection, _ = listener.accept()
        connection.recv(31)
        for piece in pieces:
            connection.send(piece)
        connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    with pytest.raises(MicaError):
        Mica(str(tmp_path)).stop("g")
    thread.join()
    listener.close()
