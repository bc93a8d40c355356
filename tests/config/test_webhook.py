"""The webhook as installed: it makes its own certificate, reaches our pods, and can hurt no other.

The injector runs with the rights of its own service account only.
"""

import base64
import functools
import itertools
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.clusters import Cluster, eventually
from tests.config.configured import InThread, manifests

from hcs.injector import app, certificates
from hcs.injector.settings import Settings
from hcs.kube.connection import connect
from hcs.model import names
from hcs.process.certificates import KeyPair
from hcs.process.serving import Endpoint, serve
from hcs.ura.catalogue import load_catalogue

SERVICE = "hcs-system/hcs-injector"
PLACE = certificates.Place("hcs-system", "hcs-injector", "hcs-injector-tls", "hcs-injector")
CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/hcs-injector"
SECRET = "/api/v1/namespaces/hcs-system/secrets/hcs-injector-tls"
PODS = "/api/v1/namespaces/default/pods"
JSON = {"Content-Type": "application/json-patch+json"}
_numbers = itertools.count()


def pod(
    resources: dict[str, Any] | None = None, annotations: dict[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "main", "image": "train:1"}
    if resources is not None:
        container["resources"] = resources
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": f"asked-{next(_numbers)}", "annotations": annotations or {}},
        "spec": {"containers": [container], **spec},
    }


ASKING = {"limits": {names.VRAM: "16Gi"}}


class Injector:
    """The webhook, serving on a port that stays the same over restarts."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._kubeconfig, self._folder = cluster.kubeconfig("injector", folder), folder
        with Endpoint().listen() as probe:
            self._port = probe.getsockname()[1]
        self.url = f"https://localhost:{self._port}"
        self._running: InThread | None = None

    async def _run(self, ready: Path) -> None:
        async with connect(str(self._kubeconfig)) as client:
            material = await certificates.ensure(client, PLACE, datetime.now(UTC))
            certificate, key = material.server.write(self._folder, "tls")
            await serve(
                app.build(load_catalogue(), Settings()),
                Endpoint(port=self._port, certificate=str(certificate), key=str(key)),
                tasks=[functools.partial(certificates.keep, client, PLACE, self._folder)],
                ready=ready,
            )

    def start(self) -> None:
        ready = self._folder / "ready"
        ready.unlink(missing_ok=True)
        self._running = InThread(lambda: self._run(ready))
        eventually(ready.exists)

    def stop(self) -> None:
        if self._running is not None:
            self._running.stop()
            self._running = None


@pytest.fixture(scope="module")
def injector(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Injector]:
    """The injector, up, and found by the API server."""
    injector = Injector(cluster, tmp_path_factory.mktemp("injector"))
    cluster.route(SERVICE, injector.url)
    if cluster.kind == "real":
        port = int(injector.url.rpartition(":")[2])
        patch = [{"op": "replace", "path": "/webhooks/0/clientConfig/service/port", "value": port}]
        assert cluster.admin.patch(CONFIGURATION, json=patch, headers=JSON).status_code == 200
    injector.start()
    yield injector
    injector.stop()


@pytest.fixture
def up(cluster: Cluster, injector: Injector) -> Cluster:
    eventually(lambda: cluster.admin.post(PODS, params={"dryRun": "All"}, json=pod(ASKING)).status_code == 201)
    return cluster


@pytest.fixture
def down(cluster: Cluster, injector: Injector) -> Iterator[Cluster]:
    """The API server knows the webhook, and nobody answers."""
    injector.stop()
    eventually(lambda: cluster.admin.post(PODS, params={"dryRun": "All"}, json=pod(ASKING)).status_code == 500)
    yield cluster
    injector.start()


def test_the_certificate_it_made_is_trusted_for_the_services_name(up: Cluster) -> None:
    data = up.admin.get(SECRET).json()["data"]
    [webhook] = up.admin.get(CONFIGURATION).json()["webhooks"]
    assert webhook["clientConfig"]["caBundle"] == data["trust.crt"]
    served = KeyPair(base64.b64decode(data["tls.crt"]), b"")
    assert "hcs-injector.hcs-system.svc" in served.alternative_names()


def test_a_persons_pod_is_completed(up: Cluster) -> None:
    reply = up.as_user("alice").post(PODS, json=pod(ASKING))
    assert reply.status_code == 201, reply.text
    made = reply.json()
    [container] = made["spec"]["containers"]
    for kind in ("limits", "requests"):
        # A real server writes quantities in their shortest form.
        assert container["resources"][kind][names.TOTAL_VRAM] in ("16Gi", str(16 << 30))
        assert container["resources"][kind][names.CARDS] == "1"
    assert made["spec"]["schedulerName"] == names.SCHEDULER
    assert {"key": names.MANAGED_TAINT, "operator": "Exists"} in made["spec"]["tolerations"]


def test_a_controllers_pod_without_a_name_is_completed(up: Cluster) -> None:
    body = pod(ASKING)
    body["metadata"] = {"generateName": "train-"}
    reply = up.as_user("alice").post(PODS, json=body)
    assert reply.status_code == 201, reply.text
    assert reply.json()["spec"]["schedulerName"] == names.SCHEDULER


@pytest.mark.parametrize(
    ("body", "says"),
    [
        pytest.param(
            pod({"limits": {names.VRAM: "16Gi", names.CARDS: "0"}}), "ZeroCards: container main", id="no-cards"
        ),
        pytest.param(
            pod(None, {"ai.compute/vendor": "nvidia"}), "did you mean ai.compute/vendors?", id="annotation-alone"
        ),
        pytest.param(pod({"requests": {names.VRAM: "300Ti"}}), "VramBeyondAnyCard", id="requests-alone"),
        pytest.param(pod(ASKING, {names.ALLOCATION: "{}"}), "ReservedAnnotation", id="forged"),
        pytest.param(pod(ASKING, nodeName="node-1"), "PresetNode", id="placed-beforehand"),
        pytest.param(
            pod(None, initContainers=[{"name": "warm", "image": "i", "resources": ASKING}]),
            "InitContainer",
            id="init-container",
        ),
    ],
)
def test_a_person_is_told_what_to_mend(up: Cluster, body: dict[str, Any], says: str) -> None:
    reply = up.as_user("alice").post(PODS, json=body)
    assert reply.status_code == 400, reply.text
    assert 'admission webhook "pods.injector.ai.compute" denied the request' in reply.json()["message"]
    assert says in reply.json()["message"]


def test_while_it_is_down_our_pods_are_refused_and_others_never_notice(down: Cluster) -> None:
    alice = down.as_user("alice")
    for ours in (pod(ASKING), pod({"requests": {names.VRAM: "1"}}), pod(None, {"ai.compute/vendors": "nvidia"})):
        reply = alice.post(PODS, json=ours)
        assert reply.status_code == 500, reply.text
        assert 'failed calling webhook "pods.injector.ai.compute"' in reply.json()["message"]
    for other in (
        pod(),
        pod({}),
        pod({"limits": {"cpu": "1", "nvidia.com/gpu": "1"}, "requests": {"cpu": "1"}}),
        pod(None, {"team.ai.compute/vram": "1", "ai.computer": "1"}),
        pod(None, initContainers=[{"name": "warm", "image": "i", "resources": {"requests": {"cpu": "1"}}}]),
    ):
        reply = alice.post(PODS, json=other)
        assert reply.status_code == 201, reply.text


def test_the_policies_hold_while_it_is_down(down: Cluster) -> None:
    spared = "/api/v1/namespaces/hcs-system/pods"
    reply = down.as_user("alice").post(spared, json=pod(None, {names.ALLOCATION: "{}"}))
    assert reply.status_code == 403, "in a namespace that the webhook spares, to see the policy alone"


def test_it_serves_again_after_a_restart_with_the_certificate_of_before(up: Cluster, injector: Injector) -> None:
    before = up.admin.get(SECRET).json()["data"]
    injector.stop()
    injector.start()
    assert up.admin.get(SECRET).json()["data"] == before
    eventually(lambda: up.admin.post(PODS, params={"dryRun": "All"}, json=pod(ASKING)).status_code == 201)


def test_a_lost_secret_is_made_anew_and_trusted(up: Cluster, injector: Injector) -> None:
    """As after an ``apply`` that empties it: the API server is told of the new authority."""
    before = up.admin.get(SECRET).json()["data"]
    emptied = up.admin.patch(SECRET, json=[{"op": "remove", "path": "/data"}], headers=JSON)
    assert emptied.status_code == 200, emptied.text
    injector.stop()
    injector.start()
    assert up.admin.get(SECRET).json()["data"]["ca.crt"] != before["ca.crt"]
    eventually(lambda: up.admin.post(PODS, params={"dryRun": "All"}, json=pod(ASKING)).status_code == 201)


def test_the_match_conditions_and_the_policy_ask_the_same_question() -> None:
    webhook = next(item for item in manifests("webhook.yaml") if item["kind"] == "MutatingWebhookConfiguration")
    [condition] = webhook["webhooks"][0]["matchConditions"]
    scheduled = next(p for p in manifests("policies.yaml") if p["metadata"]["name"] == "hcs-scheduled-by-hcs")
    [asks] = scheduled["spec"]["matchConditions"]
    assert condition["expression"].endswith(asks["expression"])
