"""``hcs rtos`` as people call it."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.ocirt.scene import Scene
from tests.rtos.compact import document, load
from tests.sandbox.micad.emulator import in_thread, until
from typer.testing import CliRunner

from hcs.cli.main import build
from hcs.mica.settings import FILE_VARIABLE

KEYS = [
    *("cpu_weight", "cpu_capacity", "cpuset", "vcpus", "max_vcpus", "memory_mb", "min_memory_mb", "threshold_mb"),
    *("limit_mb", "warnings"),
]


def hcs(*arguments: str, stdin: str = "", **environment: str) -> Any:
    return CliRunner().invoke(build(), ["rtos", *arguments], input=stdin, env=environment, prog_name="hcs")


def test_the_compact_form_comes_from_stdin_and_json_has_these_keys() -> None:
    found = hcs("plan", "-", "--json", stdin='{"cpu": {"shares": 2048}, "ann": {"max_vcpu_num": 4}}')
    assert found.exit_code == 0
    plan = json.loads(found.stdout)
    assert list(plan) == KEYS
    assert (plan["cpu_weight"], plan["max_vcpus"], plan["limit_mb"], plan["cpuset"]) == (512, 4, None, "")


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in load("refused.yaml")[:12]])
def test_a_refusal_exits_with_2_and_is_json_on_stdout(row: dict[str, Any]) -> None:
    for flags in ((), ("--json",)):
        found = hcs("plan", "-", *flags, stdin=json.dumps(document(row["in"])))
        assert found.exit_code == 2
        answer = json.loads(found.stdout)
        assert list(answer) == ["refused", "message"]
        assert answer["refused"] == row["reason"]


@pytest.mark.parametrize("text", ["", "[", "{", "- a\n- b", "\t:", "words", "[" * 3000, '{"cpu": {"shares": 1e999}}'])
def test_no_document_gives_a_traceback(text: str) -> None:
    found = hcs("plan", "-", stdin=text)
    assert found.exit_code == 2
    assert json.loads(found.stdout)["refused"].startswith("Malformed")


def test_warnings_come_in_words() -> None:
    found = hcs("plan", "-", stdin='{"cpu": {"quota": 5, "cpus": "0-1"}}')
    assert "warning: quota_without_period: there is a CPU quota without a period" in found.stdout
    assert "warning: capacity_unreachable: " in found.stdout


def test_every_conversion_is_explained() -> None:
    asked = {
        "cpu": {"shares": 5000, "quota": 33333, "period": 100000, "cpus": "3,1"},
        "mem": {"limit": 8 << 20, "reservation": 64 << 20},
        "host": {"pcpus": 4, "total_memory_mb": 2048},
    }
    text = hcs("plan", "-", "--explain", stdin=json.dumps(asked)).stdout
    for words in (
        "floor(shares 5000 / 4) = 1250",
        "floor(quota 33333 x 100 / period 100000) = 33; at most 200 (100 x 2 CPUs of the set), so 33",
        "'3,1' sorted, merged and without blanks is 1,3",
        "memory.reservation: 64 (floor of 67108864 bytes); lowered to the limit, 8",
        "max(2 x 8, 32) = 32",
        "floor(8388608 bytes / 1048576) = 8",
        "container to pCPUs 1:2",
    ):
        assert words in text


def test_a_pod_of_several_containers_has_a_sandbox(tmp_path: Path) -> None:
    pod = tmp_path / "pod.yaml"
    pod.write_text(
        "kind: Service\n---\nkind: Pod\nspec: {containers: [{name: a, resources: {limits: {memory: 64Mi}}},"
        " {name: b, resources: {limits: {cpu: 2, memory: 32Mi}}}]}\n"
    )
    found = json.loads(hcs("plan", str(pod), "--json").stdout)
    assert list(found["containers"]) == ["a", "b"]
    assert list(found["containers"]["a"]) == KEYS
    assert found["sandbox"]["memory_mb"] == 96
    assert "sandbox: 2 vCPUs" in hcs("plan", str(pod)).stdout


def test_an_update_prints_its_commands_in_order(tmp_path: Path) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text('{"cpu": {"cpus": "0-3", "quota": 300000, "period": 100000}, "mem": {"limit": 67108864}}')
    new.write_text('{"cpu": {"cpus": "0-1"}, "memory": {"limit": 268435456}}')
    found = hcs("plan", "--update", str(old), str(new))
    wanted = ["set cpucapacity 200", "set maxmemory 256", "set memory 256", "set cpu 0-1"]
    assert found.stdout.splitlines() == wanted
    data = json.loads(hcs("plan", "--json", "--update", str(old), str(new)).stdout)
    assert data["commands"] == wanted
    assert data["result"]["threshold_mb"] == 256


@pytest.mark.parametrize(
    "arguments", [["plan"], ["plan", "-", "--update", "a", "b"], ["plan", "/nowhere"], ["plan", "--update", "-", "-"]]
)
def test_a_wrong_call_is_told_in_three_lines(arguments: list[str]) -> None:
    found = hcs(*arguments)
    assert found.exit_code == 2
    assert found.stdout == ""
    assert [line[:6] for line in found.stderr.splitlines()] == ["error:", "  why:", "  try:"]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Scene]:
    with in_thread(boot_seconds=0.0) as micad:
        xl = tmp_path / "xl"
        xl.write_text(f'#!/bin/sh\nEMULATED_XEN={micad.state} exec {sys.executable} -m hcs.sandbox.micad.xl "$@"\n')
        xl.chmod(0o755)
        scene = Scene(tmp_path, micad, xl=str(xl), pcpus=2, shared_cpu_pool=True)
        yield scene
        scene.close()


def on(scene: Scene, *arguments: str) -> Any:
    found = hcs(*arguments, "--root", str(scene.root), **{FILE_VARIABLE: str(scene.config)})
    assert found.exit_code == 0, found.output
    return found


def test_weights_and_capacities_follow_the_load(node: Scene) -> None:
    for name in ("idle", "busy"):
        spin = "#!/bin/sh\nwhile :; do :; done\n" if name == "busy" else "#!/bin/sh\nexec sleep 100\n"
        resources = {"cpu": {"quota": 100000, "period": 100000}}
        node.create(name, node.bundle(name, resources=resources, firmware=spin))
        node.run("start", name)
    (node.home / "load.json").write_text('{"idle": 2, "busy": 100}')
    shown = on(node, "rebalance", "--load", str(node.home / "load.json"))
    assert node.micad.commands() == []
    assert "idle" in shown.stdout
    (node.home / "load.json").write_text('{"idle": 85, "busy": 100}')
    node.config.write_text(node.config.read_text().replace("pcpus = 2", "pcpus = 1"))
    done = json.loads(on(node, "rebalance", "--apply", "--json", "--load", str(node.home / "load.json")).stdout)
    (node.home / "load.json").write_text('{"idle": 2, "busy": 100}')
    done = json.loads(on(node, "rebalance", "--apply", "--json", "--load", str(node.home / "load.json")).stdout)
    assert "idle: set cpucapacity 10" in done["done"]
    assert node.record("idle")["given"]["cpu_capacity"] == 10
    sent = [f"{line.partition(' (')[2][:-1]}: {line.partition(' (')[0]}" for line in node.micad.commands()]
    assert sent[-len(done["done"]) :] == done["done"]
    watched = json.loads(on(node, "rebalance", "--json", "--seconds", "0.3").stdout)["guests"]
    used = {one["guest"]: one["used"] for one in watched}
    assert used["busy"] > used["idle"]
    until(lambda: "hcs_rtos_guest_cpu_seconds_total" in on(node, "metrics").stdout)
    assert "busy" in on(node, "guests").stdout


def test_a_guest_can_be_held_by_the_hypervisors_tool(node: Scene) -> None:
    node.create("g", node.bundle())
    node.run("start", "g")
    node.run("pause", "g")
    assert node.state("g")["status"] == "paused"
    assert node.run("pause", "g", check=False).returncode == 1
    node.run("resume", "g")
    assert node.state("g")["status"] == "running"
    assert node.micad.xl()[-2:] == ["xl pause g", "xl unpause g"]


def test_a_pool_is_shown_and_mended(node: Scene) -> None:
    for name, cpus in (("a", "0"), ("b", "1")):
        annotations = {"runtime.enable_vcpus_pinning": "true", "io.kubernetes.cri.sandbox-id": "pod"}
        node.create(name, node.bundle(name, resources={"cpu": {"cpus": cpus}}, annotations=annotations))
        config = json.loads((node.root / name / "state.json").read_text())
        config["sandbox"] = "pod"
        (node.root / name / "state.json").write_text(json.dumps(config))
    for name in "ab":
        node.run("start", name)
    found = json.loads(on(node, "pool", "--json").stdout)
    assert found["pools"] == [{"sandbox": "pod", "cpus": "0-1", "guests": ["a", "b"], "commands": []}]
    record = json.loads((node.root / "b" / "state.json").read_text())
    record["given"]["cpuset"] = "1"
    (node.root / "b" / "state.json").write_text(json.dumps(record))
    assert "b: set cpu 0-1" in on(node, "pool", "--apply").stdout
    assert node.micad.commands()[-1] == "set cpu 0-1 (b)"
