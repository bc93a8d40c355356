"""Guests under a real containerd: its shim calls ``hcs-rtos`` as it calls runc. micad and the hypervisor are emulated.

Only this can find out whether exit codes, consoles, errors and clean-up reach people through containerd.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from tests.ocirt.containerd import Containerd, missing
from tests.ocirt.scene import Scene
from tests.sandbox.micad.emulator import Micad, until

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=f"no real containerd: {missing()}"),
    pytest.mark.xdist_group("containerd"),
]


class Place:
    """containerd, micad and what lies between."""

    def __init__(self, home: Path) -> None:
        self.micad = Micad()
        self.micad.begin()
        self.scene = Scene(home, self.micad, daemon_grace=600)
        self.containerd = Containerd(self.scene)

    def close(self) -> None:
        self.containerd.close()
        self.scene.close()
        self.micad.close()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(tmp_path_factory.mktemp("containerd"))
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _mended(place: Place) -> Iterator[None]:
    yield
    place.micad.faults()
    if place.micad.process is None:
        place.micad.begin()


def begin(place: Place, container: str, *flags: str, **options: object) -> subprocess.Popen[bytes]:
    """Run a container in the foreground, with its streams in our hands."""
    bundle = place.scene.bundle(container, **options)  # type: ignore[arg-type]
    command = ["ctr", "-a", str(place.containerd.address), *place.containerd.run_arguments(container, bundle, *flags)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def hears(process: subprocess.Popen[bytes], text: bytes) -> bytes:
    """Read until the guest has said something."""
    assert process.stdout is not None
    said = b""
    while text not in said:
        piece = os.read(process.stdout.fileno(), 4096)
        assert piece, said
        said += piece
    return said


def says(process: subprocess.Popen[bytes], text: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(text)
    process.stdin.flush()


def ended(process: subprocess.Popen[bytes]) -> int:
    assert process.stdin is not None
    assert process.stdout is not None
    code = process.wait(60)
    process.stdin.close()
    process.stdout.close()
    return code


def remove(place: Place, container: str) -> None:
    until(lambda: place.containerd.status(container) in ("STOPPED", ""))
    place.containerd.ctr("task", "rm", "-f", container, check=False)
    place.containerd.ctr("container", "rm", container)


def test_two_guests_run_at_once_and_their_exit_codes_are_theirs(place: Place) -> None:
    one, other = begin(place, "one", "--rm"), begin(place, "other", "--rm")
    hears(one, b"booted one")
    hears(other, b"booted other")
    says(one, b"hello\n")
    hears(one, b"got hello")
    says(one, b"exit 7\n")
    says(other, b"exit 0\n")
    assert ended(one) == 7
    assert ended(other) == 0
    assert place.scene.left() == []
    assert not list(place.micad.sockets.glob("o*.socket"))


def test_an_update_reaches_the_hypervisor_and_a_refused_one_is_told(place: Place) -> None:
    guest = begin(place, "updated", resources={"cpu": {"cpus": "0-3"}, "memory": {"limit": 64 << 20}})
    hears(guest, b"booted")
    change = {"cpu": {"quota": 50000, "period": 100000, "shares": 2048}, "memory": {"limit": 128 << 20}}
    place.containerd.update("updated", change)
    sent = [line.removesuffix(" (updated)") for line in place.micad.commands() if line.endswith("(updated)")]
    new = place.scene.home / "change.json"
    new.write_text(json.dumps(change))
    planned = subprocess.run(
        [
            *(*place.scene.program()[:2], "hcs", "rtos", "plan", "--pcpus", "4", "--memory-mb", "2048"),
            *("--update", str(place.scene.home / "updated/config.json"), str(new)),
        ],
        capture_output=True,
        text=True,
    )
    assert sent == planned.stdout.splitlines() == ["set cpucapacity 50", "set memory 128", "set cpuweight 512"]
    with pytest.raises(grpc.RpcError) as refused:
        place.containerd.update("updated", {"cpu": {"cpus": "7"}})
    assert "the host has none of these CPUs" in str(refused.value.details())  # type: ignore[attr-defined]
    place.containerd.ctr("task", "kill", "-s", "TERM", "updated")
    assert ended(guest) == 143
    remove(place, "updated")


def test_the_relay_runs_in_the_control_group_of_its_container(place: Place) -> None:
    guest = begin(place, "grouped")
    hears(guest, b"booted")
    pid = place.scene.state("grouped")["pid"]
    groups = Path(f"/proc/{pid}/cgroup").read_text()
    assert f"/hcs-test-{os.getpid()}/grouped" in groups
    assert str(pid) in place.containerd.ctr("task", "ps", "grouped").stdout
    refused = place.containerd.ctr("task", "exec", "--exec-id", "x", "grouped", "sh", check=False)
    assert "a guest runs one program" in refused.stderr
    place.containerd.ctr("task", "kill", "-s", "KILL", "grouped")
    assert ended(guest) == 137
    remove(place, "grouped")


def test_a_terminal_reaches_the_guest(place: Place) -> None:
    master, slave = os.openpty()
    bundle = place.scene.bundle("seen", terminal=True)
    arguments = place.containerd.run_arguments("seen", bundle, "--rm", "--tty", terminal=True)
    process = subprocess.Popen(
        ["ctr", "-a", str(place.containerd.address), *arguments], stdin=slave, stdout=slave, stderr=slave
    )
    os.close(slave)
    said = b""
    while b"booted seen" not in said:
        said += os.read(master, 4096)
    os.write(master, b"exit 4\n")
    assert process.wait(60) == 4
    os.close(master)


def test_a_refusal_reaches_people_in_words(place: Place) -> None:
    bundle = place.scene.bundle("wrong", resources={"memory": {"limit": 1 << 20}})
    refused = place.containerd.ctr(*place.containerd.run_arguments("wrong", bundle, "--rm"), check=False)
    assert refused.returncode != 0
    assert "a guest needs at least 2 MiB" in refused.stderr
    assert place.scene.left() == []


def test_a_daemon_killed_in_the_middle_costs_its_guest_and_nothing_else(place: Place) -> None:
    guest = begin(place, "middle")
    hears(guest, b"booted")
    place.micad.kill()
    refused = place.containerd.ctr("task", "kill", "-s", "KILL", "middle", check=False)
    assert "nobody listens" in refused.stderr
    assert place.containerd.status("middle") == "RUNNING"
    stale = place.containerd.ctr(
        *place.containerd.run_arguments("stale", place.scene.bundle("stale"), "--rm"), check=False
    )
    assert "nobody listens" in stale.stderr
    place.micad.begin()
    assert ended(guest) == 255
    remove(place, "middle")
    again = begin(place, "again", "--rm")
    hears(again, b"booted again")
    says(again, b"exit 0\n")
    assert ended(again) == 0
    assert place.scene.left() == []
