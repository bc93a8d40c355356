"""``hcs-rtos`` as a program, on an emulated micad: its commands, and what it does when something fails."""

import hashlib
import json
import os
import subprocess
import tty
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.ocirt.scene import ConsoleSocket, Scene
from tests.sandbox.micad.emulator import as_process, in_thread, until

from hcs.mica.records import process_start
from hcs.rtos.configuration import Config
from hcs.rtos.hosts import Host
from hcs.rtos.planning import GuestPlan, plan
from hcs.rtos.resources import Resources


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with in_thread(boot_seconds=0.15) as micad:
        made = Scene(tmp_path, micad)
        yield made
        made.close()


def test_a_container_lives_as_oci_says(scene: Scene) -> None:
    pid_file = scene.home / "pid"
    bundle = scene.bundle(resources={"cpu": {"shares": 512, "cpus": "0-1"}, "memory": {"limit": 64 << 20}})
    reading, writing = os.pipe()
    out = scene.create("g", bundle, "--pid-file", str(pid_file), stdin=reading)
    os.close(reading)
    state = scene.state("g")
    assert (state["status"], state["id"], state["bundle"]) == ("created", "g", str(bundle))
    assert state["pid"] == int(pid_file.read_text())
    assert process_start(state["pid"])
    scene.run("start", "g")
    assert scene.state("g")["status"] == "running"
    assert json.loads(scene.run("ps", "--format", "json", "g").stdout) == [state["pid"]]
    until(lambda: "booted g" in out.read_text())
    os.write(writing, b"hello\n")
    until(lambda: "got hello" in out.read_text())
    assert out.read_bytes() == b"booted g\r\ngot hello\r\n"
    os.write(writing, b"exit 0\n")
    os.close(writing)
    scene.until("g", "stopped")
    scene.run("delete", "g")
    assert scene.run("state", "g", check=False).returncode == 1
    assert scene.left() == []
    assert not (scene.micad.sockets / "g.socket").exists()


def test_what_micad_is_told_is_what_was_planned(scene: Scene) -> None:
    resources = {
        "cpu": {"shares": 2048, "quota": 75000, "period": 100000, "cpus": "2,0"},
        "memory": {"limit": 64 << 20},
    }
    scene.create("g", scene.bundle(resources=resources))
    made = plan(
        Resources(shares=2048, quota=75000, period=100000, cpus="2,0", limit=64 << 20), {}, Config(), Host(4, 2048)
    )
    assert isinstance(made, GuestPlan)
    config = (scene.micad.state / "xen" / "g-xen.cfg").read_text().splitlines()
    assert config[2:] == [
        f"memory = {made.memory_mb}",
        f"vcpus = {made.vcpus}",
        f"maxvcpus = {made.max_vcpus}",
        f"maxmem = {made.threshold_mb}",
        f"cpu_weight = {made.cpu_weight}",
        f"cap = {made.cpu_capacity}",
        f'cpus = "{made.cpuset}"',
    ]


def test_an_update_sends_the_planned_commands_in_order_and_records_them(scene: Scene) -> None:
    scene.create("g", scene.bundle(resources={"cpu": {"cpus": "0-3"}, "memory": {"limit": 64 << 20}}))
    scene.run("start", "g")
    change = {"cpu": {"cpus": "0-1", "shares": 512}, "memory": {"limit": 256 << 20}}
    scene.run("update", "--resources", "-", "g", input=json.dumps(change))
    planner = [*scene.program()[:2], "hcs", "rtos", "plan", "--pcpus", "4", "--memory-mb", "2048"]
    (scene.home / "new.json").write_text(json.dumps(change))
    planned = subprocess.run(
        [*planner, "--update", str(scene.home / "bundle/config.json"), str(scene.home / "new.json")],
        capture_output=True,
        text=True,
    )
    commands = planned.stdout.splitlines()
    assert commands == [
        "set cpucapacity 200",
        "set maxmemory 256",
        "set memory 256",
        "set cpu 0-1",
        "set cpuweight 128",
    ]
    assert [line.removesuffix(" (g)") for line in scene.micad.commands()] == commands
    given = scene.record("g")["given"]
    assert given == {
        "cpu_capacity": 200,
        "cpu_weight": 128,
        "cpuset": "0-1",
        "vcpus": 1,
        "memory": {"memory_mb": 256, "threshold_mb": 256},
    }
    scene.run("update", "--resources", "-", "g", input=json.dumps(change))
    assert len(scene.micad.commands()) == len(commands)


def test_a_failed_step_is_an_error_and_what_succeeded_is_recorded(scene: Scene) -> None:
    scene.create("g", scene.bundle(resources={"memory": {"limit": 64 << 20}}))
    scene.run("start", "g")
    scene.micad.faults({"fault": "fail", "request": "set memory", "text": "no memory"})
    failed = scene.run("update", "--memory", str(256 << 20), "g", check=False)
    assert failed.returncode == 1
    assert "set memory 256" in failed.stderr
    assert "no memory" in failed.stderr
    assert scene.log()[-1].endswith("no memory")
    assert scene.record("g")["given"]["memory"] == {"memory_mb": 64, "threshold_mb": 256}
    scene.micad.faults()
    scene.run("update", "--memory", str(256 << 20), "g")
    assert scene.micad.commands()[-1] == "set memory 256 (g)"


def test_an_update_before_the_start_is_sent_with_it(scene: Scene) -> None:
    scene.create("g", scene.bundle(resources={"memory": {"limit": 64 << 20}}))
    scene.run("update", "--memory", str(32 << 20), "g")
    assert scene.micad.commands() == []
    scene.run("start", "g")
    assert scene.micad.commands() == ["set memory 32 (g)"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"cpu": {"cpus": "0,,2"}}, "cpuset"),
        ({"memory": {"limit": 1 << 20}}, "2 MiB"),
        ({"memory": {"limit": 4096 << 20}}, "2048 MiB"),
    ],
)
def test_a_refused_update_contacts_nobody(scene: Scene, change: dict[str, object], says: str) -> None:
    scene.create("g", scene.bundle())
    scene.run("start", "g")
    refused = scene.run("update", "--resources", "-", "g", input=json.dumps(change), check=False)
    assert refused.returncode == 1
    assert says in refused.stderr
    assert scene.micad.commands() == []


def test_kill_stops_the_guest_and_its_signal_is_the_exit_code(scene: Scene) -> None:
    out = scene.create("g", scene.bundle())
    scene.run("start", "g")
    until(lambda: "booted" in out.read_text())
    assert scene.run("kill", "g", "USR1", check=False).returncode == 1
    scene.micad.faults({"fault": "fail", "request": "stop", "text": "busy"})
    assert "busy" in scene.run("kill", "g", "KILL", check=False).stderr
    assert scene.state("g")["status"] == "running"
    scene.micad.faults()
    scene.run("kill", "g", "9")
    scene.until("g", "stopped")
    again = scene.run("kill", "g", "9", check=False)
    assert "container not running" in again.stderr
    scene.run("kill", "--all", "g", "9")
    assert scene.micad.xl()[-1] == "xl destroy g"


def test_a_running_container_is_deleted_only_with_force(scene: Scene) -> None:
    scene.create("g", scene.bundle())
    scene.run("start", "g")
    pid = scene.state("g")["pid"]
    assert "it is running" in scene.run("delete", "g", check=False).stderr
    scene.run("delete", "--force", "g")
    until(lambda: not process_start(pid))
    assert not (scene.micad.sockets / "g.socket").exists()
    scene.run("delete", "--force", "g")


def test_a_terminal_is_raw_and_carries_both_ways(scene: Scene) -> None:
    console = ConsoleSocket(scene.home / "console.sock")
    bundle = scene.bundle(terminal=True)
    scene.create("g", bundle, "--console-socket", str(console.path))
    master = console.master()
    assert not tty.tcgetattr(master)[3] & (tty.ECHO | tty.ICANON)
    scene.run("start", "g")
    seen = b""
    while b"booted g\r\n" not in seen:
        seen += os.read(master, 100)
    os.write(master, b"hi\n")
    while b"got hi\r\n" not in seen:
        seen += os.read(master, 100)
    assert seen == b"booted g\r\ngot hi\r\n"
    scene.run("delete", "--force", "g")
    os.close(master)


@pytest.mark.parametrize(
    ("link", "target", "says"),
    [
        pytest.param("app.elf", "/etc/hostname", "no 'app.elf'", id="absolute-link-begins-at-the-rootfs"),
        pytest.param("app.elf", "../../../../../../etc/passwd", "out of the rootfs", id="link-that-climbs"),
        pytest.param("app.elf", "app.elf", "too many links", id="link-to-itself"),
    ],
)
def test_firmware_stays_inside_the_rootfs(scene: Scene, link: str, target: str, says: str) -> None:
    bundle = scene.bundle(annotations={"container.firmware_path": link})
    (bundle / "rootfs" / link).symlink_to(target)
    refused = scene.run("create", "--bundle", str(bundle), "g", check=False)
    assert refused.returncode == 1
    assert says in refused.stderr
    assert scene.micad.commands("create") == []
    assert scene.left() == []


def test_firmware_is_verified_before_anything_is_sent(scene: Scene) -> None:
    right = hashlib.sha256((scene.bundle() / "rootfs/firmware.elf").read_bytes()).hexdigest()
    bundle = scene.bundle(annotations={"container.firmware_hash": "0" * 64})
    refused = scene.run("create", "--bundle", str(bundle), "g", check=False)
    assert right in refused.stderr
    assert scene.micad.commands("create") == []
    scene.create("g", scene.bundle(annotations={"container.firmware_hash": f"sha256:{right.upper()}"}))
    (bundle / "rootfs/firmware.elf").write_text("#!/bin/sh\necho changed\n")
    out = scene.home / "g.out"
    scene.run("start", "g")
    until(lambda: "booted g" in out.read_text())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        pytest.param({"annotations": {"container.max_vcpu_num": "zero"}}, "max_vcpu_num", id="annotation"),
        pytest.param({"annotations": {"ped.pedestal": "jailhouse"}}, "jailhouse", id="pedestal"),
        pytest.param({"resources": {"cpu": {"cpus": "9"}}}, "the host has none", id="cpus"),
        pytest.param({"resources": {"memory": {"limit": 1048575}}}, "2 MiB", id="limit"),
        pytest.param({"terminal": True}, "--console-socket", id="terminal-without-socket"),
        pytest.param({"annotations": {"ped.conf": "nothing.bin"}}, "nothing.bin", id="kernel-image"),
    ],
)
def test_a_container_that_cannot_be_as_asked_leaves_nothing(scene: Scene, change: dict[str, object], says: str) -> None:
    refused = scene.run("create", "--bundle", str(scene.bundle(**change)), "g", check=False)  # type: ignore[arg-type]
    assert refused.returncode == 1
    assert says in refused.stderr
    assert says in scene.log()[-1]
    assert scene.micad.commands("create") == []
    assert scene.left() == []


def test_a_create_whose_answer_was_lost_leaves_no_guest(scene: Scene) -> None:
    scene.micad.faults({"fault": "close", "request": "create"})
    refused = scene.run("create", "--bundle", str(scene.bundle()), "g", check=False)
    assert "without an answer" in refused.stderr
    assert scene.left() == []
    scene.micad.faults()
    scene.create("g", scene.bundle())


def test_a_pause_is_refused_where_no_hypervisor_can_hold_the_guest(scene: Scene) -> None:
    scene.create("g", scene.bundle())
    scene.run("start", "g")
    refused = scene.run("pause", "g", check=False)
    assert refused.returncode == 1
    assert "cannot hold a guest" in refused.stderr
    assert scene.state("g")["status"] == "running"


def test_exec_is_refused_with_its_reason(scene: Scene) -> None:
    refused = scene.run("exec", "--tty", "--pid-file", "x", "g", "sh", "-c", "ls", check=False)
    assert refused.returncode == 1
    assert "a guest runs one program" in refused.stderr


def test_a_pause_container_has_no_guest(scene: Scene) -> None:
    bundle = scene.bundle(annotations={"io.kubernetes.cri.container-type": "sandbox", "x/y": "z"})
    config = json.loads((bundle / "config.json").read_text())
    config["annotations"] = {"io.kubernetes.cri.container-type": "sandbox"}
    (bundle / "config.json").write_text(json.dumps(config))
    scene.create("pause", bundle)
    scene.run("start", "pause")
    assert scene.state("pause")["status"] == "running"
    assert scene.micad.commands("") == []
    scene.run("kill", "pause", "TERM")
    scene.until("pause", "stopped")
    scene.run("delete", "pause")


def test_guests_of_a_shared_pool_are_pinned_to_the_union(tmp_path: Path) -> None:
    with in_thread() as micad:
        scene = Scene(tmp_path, micad, shared_cpu_pool=True)
        for name, cpus in (("a", "0"), ("b", "2-3")):
            bundle = scene.bundle(name, resources={"cpu": {"cpus": cpus}})
            config = json.loads((bundle / "config.json").read_text())
            config["annotations"] = {
                "io.kubernetes.cri.sandbox-id": "pod",
                "org.openeuler.micrun.runtime.enable_vcpus_pinning": "true",
            }
            (bundle / "config.json").write_text(json.dumps(config))
            scene.create(name, bundle)
            scene.run("start", name)
        assert micad.commands() == ["set cpu 0,2-3 (a)"]
        assert 'cpus = "0,2-3"' in (micad.state / "xen/b-xen.cfg").read_text()
        scene.run("delete", "--force", "a")
        assert micad.commands()[-1] == "set cpu 2-3 (b)"
        scene.close()


def test_no_more_guests_than_the_site_allows(tmp_path: Path) -> None:
    with in_thread() as micad:
        scene = Scene(tmp_path, micad, max_client_number=1)
        scene.create("a", scene.bundle())
        refused = scene.run("create", "--bundle", str(scene.bundle()), "b", check=False)
        assert "max_client_number is 1" in refused.stderr
        scene.close()


def test_a_daemon_killed_in_the_middle_is_survived(tmp_path: Path) -> None:
    with as_process() as micad:
        scene = Scene(tmp_path, micad, daemon_grace=600)
        out = scene.create("g", scene.bundle())
        scene.run("start", "g")
        until(lambda: "booted" in out.read_text())
        micad.kill()
        assert scene.state("g")["status"] == "running"
        stale = scene.run("kill", "g", "KILL", check=False)
        assert stale.returncode == 1
        assert "nobody listens" in stale.stderr
        refused = scene.run("create", "--bundle", str(scene.bundle("other")), "h", check=False)
        assert "nobody listens" in refused.stderr
        assert scene.run("state", "h", check=False).returncode == 1
        micad.begin()
        scene.until("g", "stopped")
        assert any("it was restarted" in line for line in scene.log())
        scene.run("delete", "g")


def test_delete_with_force_survives_a_dead_daemon_and_says_so(tmp_path: Path) -> None:
    with as_process() as micad:
        scene = Scene(tmp_path, micad, daemon_grace=600)
        scene.create("g", scene.bundle())
        scene.run("start", "g")
        pid = scene.state("g")["pid"]
        micad.kill()
        scene.run("delete", "--force", "g")
        assert "may still run" in scene.log()[-1]
        assert scene.left() == []
        until(lambda: not process_start(pid))


@pytest.mark.parametrize(
    ("request_", "fault"),
    [
        ("create", "die-after"),
        ("set", "die-after"),
        *(pytest.param(request_, "die", marks=pytest.mark.nightly) for request_ in ("create", "start", "set", "rm")),
        *(pytest.param(request_, "die-after", marks=pytest.mark.nightly) for request_ in ("start", "rm")),
    ],
)
def test_a_daemon_that_dies_at_any_step_is_never_taken_for_success(tmp_path: Path, request_: str, fault: str) -> None:
    with as_process() as micad:
        scene = Scene(tmp_path, micad, daemon_grace=600)
        steps = {
            "create": ("create", "--bundle", str(scene.bundle()), "g"),
            "start": ("start", "g"),
            "set": ("update", "--cpu-share", "4096", "g"),
            "rm": ("delete", "g"),
        }
        micad.faults({"fault": fault, "request": request_})
        for name, command in steps.items():
            if name == "rm":
                scene.run("kill", "g", "KILL")
                scene.until("g", "stopped")
            if name == request_:
                failed = scene.run(*command, check=False)
                assert failed.returncode == 1
                assert "without an answer" in failed.stderr
                break
            if name == "create":
                scene.create("g", scene.bundle())
            else:
                scene.run(*command)
        if request_ == "set":
            assert scene.record("g")["given"]["cpu_weight"] == 256
        scene.run("delete", "--force", "g")
        assert scene.left() == []
        scene.close()
