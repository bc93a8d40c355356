"""``hcs simulate`` and ``hcs offers``: the same answers from a file, a router's snapshot and a cluster."""

import msgspec
import pytest
import yaml
from tests.cli.room import NODES, Hcs, manifest

from hcs.cli.fleets import RouterSnapshot
from hcs.cli.jobs import EXAMPLE
from hcs.model.devices import NodeInventory
from hcs.model.pods import Pod


@pytest.fixture
def offline(tmp_path) -> Hcs:
    """Commands that have no cluster."""
    return Hcs(tmp_path / "no-kubeconfig")


@pytest.fixture
def jobs(tmp_path):
    def written(text: str) -> str:
        path = tmp_path / "jobs.yaml"
        path.write_text(text)
        return str(path)

    return written


def test_the_example_is_a_file_that_works(offline, jobs):
    example = offline.text("simulate", "--example")
    assert example.strip() == EXAMPLE.strip()
    pods = yaml.safe_load(EXAMPLE)["jobs"][:1]
    report = offline.data("simulate", "--fleet", "demo", "--jobs", jobs(yaml.safe_dump({"jobs": pods})))
    assert (report["placed"], report["pods"], report["seconds"]) == (4, 4, 600 + 3 * 30 + 7200)
    assert {row["arrived"] for row in report["rows"]} == {600.0, 630.0, 660.0, 690.0}


def test_equal_pods_are_one_line(offline, jobs):
    text = offline.text(
        "simulate",
        "--fleet",
        "demo",
        "-f",
        jobs("jobs: [{name: a, count: 2, asks: {cards: 2}, notes: {models: 910B2}}]"),
    )
    assert text.splitlines()[1].split()[:3] == ["a", "2", "Running"]
    assert "2 of 2 pods got a place" in text


def test_manifests_are_admitted_and_multiplied(offline, jobs):
    pod = manifest("x", {"vram": "16Gi"}, scheduler="default-scheduler")
    job = {"kind": "Job", "metadata": {"name": "j"}, "spec": {"parallelism": 3, "template": pod}}
    bad = manifest("typo", {"vram": "16GB"})
    report = offline.data("simulate", "--fleet", "demo", "-f", jobs(yaml.safe_dump_all([job, bad])))
    assert [(row["pod"], row["state"]) for row in report["rows"]] == [
        ("j-1", "Running"),
        ("j-2", "Running"),
        ("j-3", "Running"),
        ("typo", "Refused"),
    ]
    assert report["rows"][3]["why"].startswith("MalformedQuantity: ")


def test_a_manifest_beside_the_jobs_file(offline, jobs, tmp_path):
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(manifest("x", {"vram": "4Gi"}, scheduler="")))
    report = offline.data(
        "simulate", "--fleet", "demo", "-f", jobs("jobs: [{manifest: pod.yaml, count: 2, duration: 1h}]")
    )
    assert [(row["pod"], row["ended"]) for row in report["rows"]] == [("x-1", 3600.0), ("x-2", 3600.0)]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is empty"),
        ("foo", "document 1 is a str"),
        ("a: 1", "neither jobs: nor kind:"),
        ("jobs: 3", "Expected `array`"),
        ("jobs: [{name: x}]", "job x: it asks for nothing"),
        ("jobs: [{name: x, count: 0, asks: {vram: 1Gi}}]", "count is 0"),
        ("jobs: [{name: x, count: 150000, asks: {vram: 1Gi}}, {count: 150000, asks: {cards: 1}}]", "more than 200000"),
        ("jobs: [{name: x, asks: {vram: 1Gi}, arrive: soon}]", "cannot read 'soon' as a time"),
        ("jobs: [{name: x, asks: {vram: 1Gi}, duration: -5}]", "cannot read -5.0 as a time"),
        ("jobs: [{name: x, ask: {vram: 1Gi}}]", "unknown field `ask`"),
        ("jobs: [{manifest: missing.yaml}]", "No such file"),
        ("jobs: [{manifest: x.yaml, asks: {vram: 1Gi}}]", "manifest stands beside asks"),
        ("kind: ConfigMap", "no pod in"),
        ("{", "while parsing"),
    ],
)
def test_a_bad_jobs_file_is_told_in_one_sentence(offline, jobs, text, why):
    result = offline("simulate", "--fleet", "demo", "--jobs", jobs(text))
    assert (result.exit_code, result.stdout) == (2, "")
    assert why in result.stderr
    assert len(result.stderr.splitlines()) == 3


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ((), "there is nothing to simulate"),
        (("--jobs", "x", "--fleet", "demo", "--policy", "magic"), "there is no policy magic"),
        (("--snapshot", "missing.json"), "cannot read the snapshot"),
    ],
)
def test_a_command_that_makes_no_sense(offline, arguments, what):
    result = offline("simulate", *arguments)
    assert result.exit_code == 2
    assert what in result.stderr


def test_two_fleets_at_once(offline, jobs):
    good = jobs("jobs: [{name: x, asks: {vram: 1Gi}}]")
    assert offline("simulate", "--jobs", good, "--fleet", "demo", "--snapshot", "x").exit_code == 2
    assert offline("simulate", "--jobs", good, "--fleet", "missing.yaml").exit_code == 2


def test_a_snapshot_is_replayed_with_the_pods_that_waited(offline, tmp_path):
    inventories = tuple(NodeInventory(name, devices) for name, (devices, _) in NODES.items())
    waiting = tuple(
        msgspec.convert(manifest(name, {"vram": vram}, models="L40S"), Pod)
        for name, vram in (("small", "8Gi"), ("large", "47Gi"))
    )
    path = tmp_path / "snapshot.json"
    path.write_bytes(msgspec.json.encode(RouterSnapshot(inventories, waiting=waiting)))
    report = offline.data("simulate", "--snapshot", str(path))
    assert [(row["pod"], row["state"], row["node"]) for row in report["rows"]] == [
        ("default/small", "Running", "gpu-b"),
        ("default/large", "Running", "gpu-b"),
    ]


def test_the_cluster_as_it_is(on_room, jobs):
    report = on_room.data(
        "simulate", "-f", jobs("jobs: [{name: x, asks: {cards: 2}, notes: {models: A100-SXM4-80GB}}]")
    )
    assert (report["nodes"], report["waiting"]) == (4, 1)
    assert "CardsTaken" in report["rows"][0]["why"]


def test_offers_of_a_file(offline):
    rows = offline.data("offers", "--vram", "16Gi", "--fp16-tflops", "100", "--fleet", "demo")["offers"]
    assert {row["model"]: (row["copies"], row["cards"]) for row in rows} == {
        "A100-SXM4-80GB": (6, 1),
        "L40S": (6, 1),
        "Ascend910B2": (12, 1),
        "MLU370-X8": (1, 3),
    }
    text = offline.text("offers", "--model", "A100-SXM4-80GB", "--cards", "2", "--fleet", "demo")
    assert "1 A100-SXM4-80GB = " in text
    assert text.splitlines()[2].split()[:3] == ["nvidia", "A100-SXM4-80GB*", "1"]


def test_offers_on_a_cluster_count_what_is_held(on_room):
    rows = {row["model"]: row for row in on_room.data("offers", "--vram", "16Gi")["offers"]}
    assert rows["A100-SXM4-80GB"]["copies"] == 2  # 40 of 80 Gi of one card are held, the other card is owned


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        ((), 2, "nothing is asked for"),
        (("--vram", "900Gi"), 2, "VramBeyondAnyCard"),
        (("--vram", "16GB"), 2, "MalformedQuantity"),
        (("--vram", "1Gi", "--vendor", "nvida"), 2, "did you mean nvidia"),
    ],
)
def test_offers_that_cannot_be_asked_for(offline, arguments, code, why):
    result = offline("offers", *arguments, "--fleet", "demo")
    assert (result.exit_code, result.stdout) == (code, "")
    assert why in result.stderr


def test_why_says_what_lacks_least(on_room):
    text = on_room.text("why", "wants")
    assert "nearest  gpu-a has no free NVIDIA A100-SXM4-80GB of the 2 it would take" in text
    reasons = [refusal["reason"] for refusal in on_room.data("why", "wants")["refusals"]]
    assert reasons[0] == "CardsTaken"
    assert reasons[-1] == "NotManaged"
