"""kubectl against the sandbox, as a process: what ``hcs sandbox up`` promises to people.

Set ``KUBECTL`` to try another one, e.g. an old release.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.clusters import Object
from tests.contract.harness import STRATEGIC_PATCH, Api, binding, done, unique
from tests.contract.test_custom_resources import DEFINITION, DEFINITIONS, card

from hcs.sandbox.apiserver import kubeconfig

PROGRAM = os.environ.get("KUBECTL") or shutil.which("kubectl")
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no kubectl")
Run = Callable[..., str]


@pytest.fixture
def api(sandbox_api: Api) -> Api:
    return sandbox_api


@pytest.fixture
def run(api: Api, tmp_path: Path, space: str) -> Run:
    """Runs kubectl in the test's namespace and gives its output."""
    config = tmp_path / "kubeconfig"
    config.write_text(kubeconfig(api.url, api.authority, "admin-token"))
    environment = {"KUBECONFIG": str(config), "HOME": str(tmp_path), "PATH": os.environ["PATH"]}

    def kubectl(*words: str, stdin: str = "", ok: bool = True) -> str:
        command = [str(PROGRAM), "-n", space.rpartition("/")[2], *words]
        result = subprocess.run(command, env=environment, input=stdin, capture_output=True, text=True, timeout=60)
        assert (result.returncode == 0) is ok, result.stdout + result.stderr
        return result.stdout if ok else result.stderr

    return kubectl


MANIFEST = """
apiVersion: v1
kind: Pod
metadata:
  name: train
  labels: {app: train}
spec:
  containers:
  - name: main
    image: registry.example/train:1
    command: [python, train.py]
    env: [{name: A, value: "1"}]
    resources: {limits: {ai.compute/vram: 16Gi}}
"""


def running(api: Api, pods: str, name: str) -> Object:
    """Play the scheduler and the kubelet for one pod."""
    api.post(f"{pods}/{name}/binding", binding(name, "n1"))
    state = {"name": "main", "ready": True, "restartCount": 2, "image": "i", "imageID": "", "state": {"running": {}}}
    ready = [{"type": "Ready", "status": "True"}]
    status = {"phase": "Running", "podIP": "127.0.0.1", "conditions": ready, "containerStatuses": [state]}
    return done(api.patch(f"{pods}/{name}/status", {"status": status}, STRATEGIC_PATCH))


def columns(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_apply_is_idempotent_and_changes(run: Run) -> None:
    assert "created" in run("apply", "-f", "-", stdin=MANIFEST)
    assert "unchanged" in run("apply", "-f", "-", stdin=MANIFEST)
    changed = MANIFEST.replace("train:1", "train:2").replace("{app: train}", "{app: train, team: x}")
    assert "configured" in run("apply", "-f", "-", stdin=changed)
    seen = json.loads(run("get", "pod", "train", "-o", "json"))
    assert seen["spec"]["containers"][0]["image"] == "registry.example/train:2"
    assert seen["metadata"]["labels"] == {"app": "train", "team": "x"}
    fewer = changed.replace(", team: x", "")
    assert "configured" in run("apply", "-f", "-", stdin=fewer)
    assert json.loads(run("get", "pod", "train", "-o", "json"))["metadata"]["labels"] == {"app": "train"}


def test_a_mistake_is_told_at_apply(run: Run) -> None:
    wrong = MANIFEST.replace("16Gi", "500m")
    assert "must be an integer" in run("apply", "-f", "-", stdin=wrong, ok=False)


def test_get_shows_the_columns_people_know(run: Run, api: Api, pods: str) -> None:
    run("apply", "-f", "-", stdin=MANIFEST)
    header, row = columns(run("get", "pods"))
    assert header == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert row[:4] == ["train", "0/1", "Pending", "0"]
    running(api, pods, "train")
    header, row = columns(run("get", "pods", "-o", "wide"))
    assert " ".join(header) == "NAME READY STATUS RESTARTS AGE IP NODE NOMINATED NODE READINESS GATES"
    assert row[:4] == ["train", "1/1", "Running", "2"]
    assert row[5:7] == ["127.0.0.1", "n1"]
    assert run("get", "pods", "-l", "app=other").strip() == ""
    assert run("get", "pods", "-o", "name").strip() == "pod/train"
    assert (
        run("get", "po", "--field-selector", "spec.nodeName=n1", "-o", "jsonpath={.items[0].metadata.name}") == "train"
    )


def test_describe_tells_the_story(run: Run, api: Api, space: str, pods: str) -> None:
    run("apply", "-f", "-", stdin=MANIFEST)
    made = api.read(f"{pods}/train")
    about = {"kind": "Pod", "name": "train", "namespace": space.rpartition("/")[2], "uid": made["metadata"]["uid"]}
    event = {
        "metadata": {"name": "train.1"}, "involvedObject": about, "reason": "Routed", "message": "to n1, card 0",
        "type": "Normal", "count": 1, "source": {"component": "hcs-router"},
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    api.create(f"{space}/events", event)
    text = run("describe", "pod", "train")
    assert "ai.compute/vram:  16Gi" in text
    assert "Routed" in text
    assert "to n1, card 0" in text
    header, row = columns(run("get", "events"))[:2]
    assert header == ["LAST", "SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert row[1:4] == ["Normal", "Routed", "pod/train"]


def test_wait_and_delete(run: Run, api: Api, pods: str) -> None:
    run("apply", "-f", "-", stdin=MANIFEST)
    running(api, pods, "train")
    assert "condition met" in run("wait", "--for=condition=Ready", "pod/train", "--timeout=10s")
    run("delete", "pod", "train", "--wait=false")
    assert "Terminating" in run("get", "pods")
    run("delete", "pod", "train", "--grace-period=0", "--force")
    assert "not found" in run("get", "pod", "train", ok=False)
    run("apply", "-f", "-", stdin=MANIFEST)
    assert "deleted" in run("delete", "-f", "-", stdin=MANIFEST)


def test_logs(run: Run, api: Api, space: str, pods: str) -> None:
    run("apply", "-f", "-", stdin=MANIFEST)
    assert "does not have a host assigned" in run("logs", "train", ok=False)
    pod = running(api, pods, "train")
    folder = api.authority.parent / "logs" / f"{space.rpartition('/')[2]}_train_{pod['metadata']['uid']}"
    folder.mkdir(parents=True)
    (folder / "main.log").write_text("".join(f"step {n}\n" for n in range(5)))
    assert run("logs", "train").splitlines() == [f"step {n}" for n in range(5)]
    assert run("logs", "train", "-c", "main", "--tail=2").splitlines() == ["step 3", "step 4"]
    done(api.patch(f"{pods}/train/status", {"status": {"phase": "Succeeded"}}))
    assert run("logs", "-f", "train", "--tail=1") == "step 4\n"


def test_custom_resources(run: Run, api: Api, tmp_path: Path) -> None:
    if api.get("/apis/contract.example/v1/cards").status_code == 404:
        definition = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", **DEFINITION}
        run("apply", "-f", "-", stdin=json.dumps(definition))
    run("wait", "--for=condition=Established", "crd/cards.contract.example", "--timeout=10s")
    name = unique("card")
    run("apply", "-f", "-", stdin=json.dumps(card(name, size=7)))
    header, row = columns(run("get", "cd", name))
    assert (header, row[:2]) == (["NAME", "SIZE", "READY"], [name, "7"])
    assert columns(run("get", "cards", "-o", "wide"))[0] == ["NAME", "SIZE", "READY", "LINKS"]
    assert f"card.contract.example/{name}" in run("get", "hcs", "-o", "name"), "the category finds it"
    run("patch", "card", name, "--type=merge", "-p", '{"spec":{"size":8}}')
    assert "unlucky" in run("patch", "card", name, "--type=merge", "-p", '{"spec":{"size":13}}', ok=False)
    run("delete", "card", name)
    api.delete(f"{DEFINITIONS}/cards.contract.example")


def test_nodes_and_verbs_of_operators(run: Run, api: Api) -> None:
    name = unique("node")
    ready = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
    api.create("/api/v1/nodes", {"metadata": {"name": name}, "status": {"conditions": ready}})
    run("cordon", name)
    assert columns(run("get", "node", name))[1][:2] == [name, "Ready,SchedulingDisabled"]
    run("uncordon", name)
    run("taint", "node", name, "ai.compute/managed=:NoSchedule")
    run("label", "node", name, "rack=r1")
    run("annotate", "node", name, "note=x")
    seen = json.loads(run("get", "node", name, "-o", "json"))
    assert seen["spec"]["taints"][0]["key"] == "ai.compute/managed"
    assert seen["metadata"]["labels"]["rack"] == "r1"
    run("delete", "node", name)


def test_things_made_by_hand(run: Run) -> None:
    """``kubectl create`` of some kinds speaks protobuf, which the sandbox does not; ``apply`` always works."""
    for words in (
        ("configmap", "c", "--from-literal=a=b"),
        ("secret", "generic", "s", "--from-literal=a=b"),
        ("job", "j", "--image=x:1"),
        ("quota", "q", "--hard=requests.ai.compute/vram=20Gi"),
    ):
        manifest = run("create", *words, "--dry-run=client", "-o", "yaml")
        run("apply", "-f", "-", stdin=manifest)
    assert columns(run("get", "jobs"))[1][0] == "j"
    assert "requests.ai.compute/vram: 0/20Gi" in run("get", "quota", "q")
    assert {"configmaps", "pods", "jobs"} <= {row[0] for row in columns(run("api-resources"))}
    assert "emulated" in run("version")
