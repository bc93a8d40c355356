"""Our custom resources are served as written: established, pruned, defaulted, and closed to nonsense."""

from typing import Any

import pytest
from tests.clusters import Cluster, eventually
from tests.config.configured import manifests

from hcs.model.devices import DEFAULT_WORKLOAD, WORKLOADS

MERGE = {"Content-Type": "application/merge-patch+json"}
DEVICE = {"id": "GPU-1", "index": 0, "vendor": "nvidia", "model": "A100-SXM4-80GB", "vram": 80 << 30}


def path(plural: str, name: str = "") -> str:
    return f"/apis/ai.compute/v1alpha1/{plural}" + (f"/{name}" if name else "")


@pytest.fixture
def served(cluster: Cluster) -> Cluster:
    for plural in ("computenodes", "exchangerates", "runtimeprofiles"):
        eventually(lambda plural=plural: cluster.admin.get(path(plural)).status_code == 200)
    return cluster


def create(cluster: Cluster, plural: str, kind: str, name: str, **content: Any) -> Any:
    body = {"apiVersion": "ai.compute/v1alpha1", "kind": kind, "metadata": {"name": name}, **content}
    return cluster.admin.post(path(plural), json=body)


@pytest.mark.parametrize(
    "definition",
    manifests("crds/computenodes.yaml", "crds/exchangerates.yaml", "crds/runtimeprofiles.yaml"),
    ids=lambda item: item["metadata"]["name"],
)
def test_every_definition_is_established(served: Cluster, definition: dict[str, Any]) -> None:
    name = definition["metadata"]["name"]
    found = served.admin.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}").json()
    conditions = {condition["type"]: condition["status"] for condition in found["status"]["conditions"]}
    assert conditions["Established"] == conditions["NamesAccepted"] == "True"
    assert "NonStructuralSchema" not in conditions


def test_a_nodes_wish_and_its_truth_are_written_apart(served: Cluster) -> None:
    made = create(served, "computenodes", "ComputeNode", "node-1", status={"devices": [DEVICE]})
    assert made.status_code == 201
    assert "status" not in made.json(), "status is written through its own subresource"
    reported = {"metadata": {"name": "ignored"}, "spec": {"quarantine": []}, "status": {"devices": [DEVICE], "mood": 1}}
    found = served.admin.patch(
        path("computenodes", "node-1/status"), json={"status": reported["status"]}, headers=MERGE
    )
    assert found.status_code == 200
    [device] = found.json()["status"]["devices"]
    assert device == {**DEVICE, "verdict": "Unknown"}, "nobody looked yet"
    assert "mood" not in found.json()["status"], "fields nobody declared are pruned"
    wish = {"spec": {"quarantine": [{"device": "GPU-1", "reason": "Smoke"}]}, "status": None}
    found = served.admin.patch(path("computenodes", "node-1"), json=wish, headers=MERGE).json()
    assert found["spec"]["quarantine"] == [{"device": "GPU-1", "reason": "Smoke", "by": "person"}]
    assert found["status"]["devices"], "the wish's writer cannot touch the truth"


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"quarantine": [{"device": "GPU-1"}]}, id="no-reason"),
        pytest.param({"quarantine": [{"device": "GPU-1", "reason": "too hot"}]}, id="reason-is-a-sentence"),
        pytest.param({"quarantine": [{"device": "", "reason": "Smoke"}]}, id="no-device"),
        pytest.param({"quarantine": [{"device": "a", "reason": "A"}, {"device": "a", "reason": "B"}]}, id="twice"),
    ],
)
def test_a_quarantine_that_makes_no_sense_is_refused(served: Cluster, spec: dict[str, Any]) -> None:
    assert create(served, "computenodes", "ComputeNode", "node-2", spec=spec).status_code == 422


@pytest.mark.parametrize(
    ("rate", "code"),
    [
        pytest.param({"workload": DEFAULT_WORKLOAD, "milliacu": 100_000, "source": "measured"}, 201, id="measured"),
        pytest.param({"workload": DEFAULT_WORKLOAD, "milliacu": 0, "source": "measured"}, 422, id="nothing"),
        pytest.param({"workload": "games", "milliacu": 1, "source": "measured"}, 422, id="no-such-class"),
        pytest.param(
            {"workload": DEFAULT_WORKLOAD, "milliacu": 1, "source": "derived"}, 422, id="derived-is-no-source"
        ),
        pytest.param({"workload": DEFAULT_WORKLOAD, "milliacu": 1.5, "source": "measured"}, 422, id="not-whole"),
    ],
)
def test_a_sites_own_rate_must_be_a_rate(
    served: Cluster, rate: dict[str, Any], code: int, request: pytest.FixtureRequest
) -> None:
    spec = {"vendor": "nvidia", "model": "A100-SXM4-80GB", "rates": [rate]}
    reply = create(
        served, "exchangerates", "ExchangeRate", f"rate-{request.node.callspec.id.split('-')[-1]}", spec=spec
    )
    assert reply.status_code == code, reply.text


def test_every_workload_class_can_have_a_rate() -> None:
    [definition] = manifests("crds/exchangerates.yaml")
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert schema["properties"]["rates"]["items"]["properties"]["workload"]["enum"] == list(WORKLOADS)


def test_a_profile_keeps_whatever_a_new_vendor_needs(served: Cluster) -> None:
    spec = {"vendor": "newcomer", "env": {"NEW_VISIBLE": "{ids}"}, "mounts": [{"host": "/opt/new"}]}
    made = create(served, "runtimeprofiles", "RuntimeProfile", "newcomer", spec=spec)
    assert made.status_code == 201, made.text
    assert made.json()["spec"] == spec
    assert create(served, "runtimeprofiles", "RuntimeProfile", "nobody", spec={}).status_code == 422
