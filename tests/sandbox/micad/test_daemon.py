"""The emulated daemon as any client would find it, spoken to with bare sockets."""

import os
import socket
import struct
import tty
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sandbox.micad.emulator import Micad, in_thread, until


@pytest.fixture
def micad() -> Iterator[Micad]:
    with in_thread(boot_seconds=0.0) as running:
        yield running


def ask(path: Path, raw: bytes) -> bytes:
    """One request with bare sockets; a reset behind the answer is no matter."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(10)
        connection.connect(str(path))
        connection.send(raw)
        received = b""
        try:
            while piece := connection.recv(4096):
                received += piece
        except ConnectionResetError:
            received += b"<reset>"
        return received


def create_bytes(name: bytes, path: str, *, ped: bytes = b"xen", cfg: bytes = b"/image") -> bytes:
    return struct.pack(
        "<66s256s16s256s?128sx6i512s512s",
        *(name, path.encode(), ped, cfg, False, b"0-1", 1, 4, 256, 50, 64, 128, b"", b""),
    )


def create(micad: Micad, name: str = "g", **options: bytes) -> bytes:
    raw = create_bytes(name.encode(), str(micad.firmware()), **options)
    return ask(micad.sockets / "mica-create.socket", raw)


def control(micad: Micad, words: bytes, name: str = "g") -> bytes:
    return ask(micad.sockets / f"{name}.socket", words)


def test_a_guest_lives_from_create_to_rm(micad: Micad) -> None:
    assert create(micad) == b"MICA-SUCCESS"
    assert control(micad, b"status") == b"%-30s%-20s%-20s" % (b"g", b"0-1", b"Offline") + b"MICA-SUCCESS"
    assert control(micad, b"start") == b"MICA-SUCCESS"
    assert control(micad, b"start") == b"MICA-FAILED"
    assert b"Running" in control(micad, b"status")
    assert control(micad, b"stop") == b"MICA-SUCCESS"
    assert control(micad, b"stop") == b"MICA-SUCCESS"
    assert control(micad, b"rm") == b"MICA-SUCCESS"
    until(lambda: not (micad.sockets / "g.socket").exists())
    until(lambda: not (micad.state / "xen" / "g-xen.cfg").exists())


def test_a_create_message_is_checked_and_never_measured(micad: Micad) -> None:
    socket_file = micad.sockets / "mica-create.socket"
    whole = create_bytes(b"a" * 66, str(micad.firmware()))
    assert ask(socket_file, whole + b"more") == b"MICA-SUCCESS<reset>"
    assert (micad.sockets / ("a" * 65 + ".socket")).exists()
    assert ask(socket_file, b"status") == b"No such file: MICA-FAILED"
    assert create(micad, "g") == b"MICA-SUCCESS"
    assert create(micad, "g") == b"g is already createdMICA-FAILED"
    assert create(micad, "h", cfg=b"") == b"MICA-FAILED"
    assert create(micad, "a/b") == b"MICA-FAILED"
    assert create(micad, "") == b"MICA-SUCCESS"
    assert (micad.sockets / ".socket").exists()


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (b"start now", b"Invalid command: start nowMICA-FAILED"),
        (b"status\n", b"Invalid command: status\nMICA-FAILED"),
        (b"pause", b"Invalid command: pauseMICA-FAILED"),
        (b"resume", b"Invalid command: resumeMICA-FAILED"),
        (b"set cpu", b"Invalid set command. Usage: set <key> <value>MICA-FAILED"),
        (b"set cpu 0 1", b"Invalid set command. Usage: set <key> <value>MICA-FAILED"),
        (b"set CPUCpacity 5", b"MICA-FAILED"),
        (b"set MaxMem 5", b"MICA-FAILED"),
        (b"set maxvcpu 5", b"MICA-FAILED"),
        (b"set  CPUWeight   512", b"MICA-SUCCESS"),
        (b"set memory 100\0", b"MICA-SUCCESS"),
        (b"set memory 200", b"MICA-FAILED"),
    ],
)
def test_words_match_whole_and_keys_are_the_real_ones(micad: Micad, words: bytes, answer: bytes) -> None:
    create(micad)
    control(micad, b"start")
    assert control(micad, words) == answer


def test_a_set_works_on_a_running_guest_alone(micad: Micad) -> None:
    create(micad)
    assert control(micad, b"set cpu 0") == b"MICA-FAILED"
    create(micad, "bare", ped=b"openamp")
    control(micad, b"start", "bare")
    assert control(micad, b"set cpu 0", "bare") == b"MICA-FAILED"


def test_what_is_too_long_is_cut_and_applied(micad: Micad) -> None:
    create(micad)
    control(micad, b"start")
    assert control(micad, b"set cpu 0,2,4,6,8,10,12,14,16,18") == b"MICA-SUCCESS<reset>"
    assert micad.xl()[-1] == "xl vcpu-pin g all 0,2,4,6,8,10,12,14,16,1"


def test_a_long_name_is_shown_shortened(micad: Micad) -> None:
    name = "abcdefghijklmnopqrstuvwxyz0123456789"
    create(micad, name)
    assert control(micad, b"status", name).startswith(b"abcdefghijkl...9    ")


def test_a_guest_runs_and_speaks_on_a_pts_with_echo_on(micad: Micad) -> None:
    create(micad)
    control(micad, b"start")
    until(lambda: b"rpmsg-tty(" in control(micad, b"status"))
    device = control(micad, b"status").partition(b"rpmsg-tty(")[2].partition(b")")[0].decode()
    console = os.open(device, os.O_RDWR | os.O_NOCTTY)
    attributes = tty.tcgetattr(console)
    assert attributes[3] & tty.ECHO
    tty.setraw(console)
    os.write(console, b"exit 3\n")
    said = b""
    while b"\x1b]7770;exit=3\x07" not in said:
        said += os.read(console, 100)
    os.close(console)
    assert b"Offline" in control(micad, b"status")
    assert not Path(device).is_symlink()


def test_only_a_query_notices_that_a_guest_powered_itself_off(micad: Micad) -> None:
    raw = create_bytes(b"g", str(micad.firmware("#!/bin/sh\nexit 0\n")))
    ask(micad.sockets / "mica-create.socket", raw)
    control(micad, b"start")
    until(lambda: b"Offline" in control(micad, b"status"))
    assert micad.xl()[-1] == "xl destroy g"


def test_the_directory_is_wiped_at_each_start() -> None:
    with in_thread() as first:
        stray = first.sockets / "old.socket"
        stray.touch()
        from hcs.sandbox.micad.daemon import Daemon

        Daemon(first.sockets, state=first.home / "other", links=first.home).close()
        assert not stray.exists()


@pytest.mark.parametrize(
    ("rule", "answer"),
    [
        ({"fault": "split"}, b"MICA-SUCCESS"),
        ({"fault": "late", "seconds": 0.05}, b"MICA-SUCCESS"),
        ({"fault": "fail", "text": "no luck"}, b"no luckMICA-FAILED"),
        ({"fault": "close"}, b""),
        ({"fault": "fail", "request": "start"}, b"MICA-SUCCESS"),
        ({"fault": "fail", "nth": 2}, b"MICA-SUCCESS"),
    ],
)
def test_things_go_wrong_as_told(micad: Micad, rule: dict[str, object], answer: bytes) -> None:
    create(micad)
    micad.faults(rule)
    assert control(micad, b"stop") == answer
    if "nth" in rule:
        assert control(micad, b"stop") == b"MICA-FAILED"
