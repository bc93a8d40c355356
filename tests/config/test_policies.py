"""The API server itself keeps our annotations ours and our pods ours, whether our webhook is up or not.

The pods here name no resource that the webhook's conditions match, or live in a namespace it spares, so that it is the
policies alone that are tried.
"""

import itertools
from typing import Any

import httpx2
import pytest
from tests.clusters import Cluster, eventually
from tests.config.configured import manifests

from hcs.model import names

PODS = "/api/v1/namespaces/default/pods"
SPARED = "/api/v1/namespaces/kube-system/pods"
MERGE = {"Content-Type": "application/merge-patch+json"}
OURS = sorted(names.OUR_ANNOTATIONS)
_numbers = itertools.count()


def pod(annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": f"train-{next(_numbers)}"}
    if annotations is not None:
        metadata["annotations"] = annotations
    container = {"name": "main", "image": "train:1", **spec.pop("container", {})}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": {"containers": [container], **spec}}


def asking(where: str = "limits", **spec: Any) -> dict[str, Any]:
    resources = {"limits": {names.VRAM: "16Gi"}, "requests": {names.VRAM: "16Gi"}}
    return pod(container={"resources": resources if where == "limits" else {where: resources[where]}}, **spec)


def refused(reply: httpx2.Response, says: str) -> None:
    assert reply.status_code == 403, reply.text
    assert says in reply.json()["message"]


@pytest.fixture
def guarded(cluster: Cluster) -> Cluster:
    """The server, once its policies are in force."""

    def refuses(body: dict[str, Any]) -> bool:
        return cluster.admin.post(SPARED, params={"dryRun": "All"}, json=body).status_code == 403

    eventually(lambda: refuses(asking(schedulerName="other")) and refuses(pod({names.ALLOCATION: "{}"})))
    return cluster


@pytest.fixture
def path(guarded: Cluster) -> str:
    """The path of a fresh pod in the namespace that the webhook spares."""
    body = pod({})
    reply = guarded.as_user("alice").post(SPARED, json=body)
    assert reply.status_code == 201, reply.text
    return f"{SPARED}/{body['metadata']['name']}"


def test_the_policy_names_every_annotation_of_ours_and_no_other() -> None:
    policy = manifests("policies.yaml")[0]
    assert policy["metadata"]["name"] == "hcs-reserved-annotations"
    [validation] = [p["expression"] for p in policy["spec"]["validations"]]
    named = validation[: validation.index("]")].strip("[").replace("'", "").split(",")
    assert sorted(word.strip() for word in named) == OURS
    assert all(name.removeprefix("ai.compute/") in policy["spec"]["validations"][0]["message"] for name in OURS)


@pytest.mark.parametrize("user", ["alice", "admin", "stranger"])
@pytest.mark.parametrize("key", OURS)
def test_nobody_else_creates_a_pod_with_an_annotation_of_ours(guarded: Cluster, user: str, key: str) -> None:
    """Not even an administrator, and not an account that only bears our account's name."""
    refused(guarded.as_user(user).post(SPARED, json=pod({key: ""})), "written by HCS alone")


@pytest.mark.parametrize("part", ["", "/status"])
def test_nobody_else_adds_changes_or_removes_one(guarded: Cluster, path: str, part: str) -> None:
    alice = guarded.as_user("alice")

    def write(value: str | None) -> httpx2.Response:
        body = {"metadata": {"annotations": {names.ALLOCATION: value}}}
        return alice.patch(f"{path}{part}", json=body, headers=MERGE)

    refused(write("{}"), "written by HCS alone")
    refused(write(""), "written by HCS alone")
    body = {"metadata": {"annotations": {names.ALLOCATION: "{}"}}}
    granted = guarded.as_user("router").patch(path, json=body, headers=MERGE)
    assert granted.status_code == 200, granted.text
    refused(write("{ }"), "written by HCS alone")
    refused(write(None), "written by HCS alone")
    assert write("{}").status_code == 200, "the same value is no change"
    other = alice.patch(f"{path}{part}", json={"metadata": {"annotations": {"team": "a"}}}, headers=MERGE)
    assert other.status_code == 200, "everything else stays everybody's"


def binding(path: str, **metadata: Any) -> dict[str, Any]:
    name = path.rpartition("/")[2]
    return {
        "kind": "Binding",
        "apiVersion": "v1",
        "metadata": {"name": name, **metadata},
        "target": {"kind": "Node", "name": "node-1"},
    }


def test_nobody_else_smuggles_one_in_with_a_binding(guarded: Cluster, path: str) -> None:
    forged = binding(path, annotations={names.ALLOCATION: "{}"})
    refused(guarded.as_user("alice").post(f"{path}/binding", json=forged), "written by HCS alone")
    assert "nodeName" not in guarded.admin.get(path).json()["spec"]
    plain = guarded.as_user("alice").post(f"{path}/binding", json=binding(path))
    assert plain.status_code == 201, "other schedulers bind as ever"


def test_the_older_bindings_resource_is_no_back_door(guarded: Cluster, path: str) -> None:
    forged = binding(path, annotations={names.ALLOCATION: "{}"})
    reply = guarded.as_user("alice").post("/api/v1/namespaces/kube-system/bindings", json=forged)
    assert reply.status_code == (403 if guarded.kind == "real" else 404), "the sandbox does not serve it at all"
    assert "nodeName" not in guarded.admin.get(path).json()["spec"]


def test_the_router_binds_with_the_allocation(guarded: Cluster, path: str) -> None:
    reply = guarded.as_user("router").post(
        f"{path}/binding", json=binding(path, annotations={names.ALLOCATION: '{"version":"v1"}'})
    )
    assert reply.status_code == 201, reply.text
    bound = guarded.admin.get(path).json()
    assert bound["spec"]["nodeName"] == "node-1"
    assert bound["metadata"]["annotations"] == {names.ALLOCATION: '{"version":"v1"}'}


@pytest.mark.parametrize("where", ["containers", "initContainers"])
@pytest.mark.parametrize(
    ("spec", "says"),
    [
        pytest.param({"nodeName": "node-1", "schedulerName": names.SCHEDULER}, "nodeSelector", id="preset-node"),
        pytest.param({"schedulerName": "other"}, "scheduled by hcs-scheduler", id="another-scheduler"),
        pytest.param({}, "leave spec.schedulerName out", id="the-default-scheduler"),
    ],
)
def test_a_pod_that_asks_for_compute_comes_to_us(guarded: Cluster, where: str, spec: dict[str, str], says: str) -> None:
    """In a spared namespace too, where our webhook would not have said so before."""
    body = asking(**spec)
    if where == "initContainers":
        body["spec"]["initContainers"] = [{**body["spec"]["containers"][0], "name": "warm"}]
        del body["spec"]["containers"][0]["resources"]
    refused(guarded.admin.post(SPARED, json=body), says)


def test_a_pod_that_comes_to_us_is_let_in(guarded: Cluster) -> None:
    reply = guarded.as_user("alice").post(SPARED, json=asking(schedulerName=names.SCHEDULER))
    assert reply.status_code == 201, reply.text


def test_a_pod_that_asks_nothing_goes_where_it_likes(guarded: Cluster) -> None:
    body = pod(container={"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}, nodeName="node-1")
    assert guarded.as_user("alice").post(PODS, json=body).status_code == 201


def test_an_agent_deletes_pods_of_its_own_node_alone(guarded: Cluster) -> None:
    """What slipped through is deleted; a stolen token of one node's agent must not empty the others."""
    if guarded.kind != "real":
        return  # the sandbox's server knows no node of a token, and refuses; the real one is asked as the agent
    bodies = {node: pod({}, nodeName=node) for node in ("node-a", "node-b")}
    for body in bodies.values():
        assert guarded.admin.post(SPARED, json=body).status_code == 201

    def delete(where: str, token_of: str | None) -> httpx2.Response:
        extra = {} if token_of is None else {"Impersonate-Extra-authentication.kubernetes.io%2Fnode-name": token_of}
        return guarded.admin.delete(
            f"{SPARED}/{bodies[where]['metadata']['name']}",
            params={"gracePeriodSeconds": "0"},
            headers={
                "Impersonate-User": "system:serviceaccount:hcs-system:hcs-agent",
                "Impersonate-Group": "system:serviceaccounts:hcs-system",
                **extra,
            },
        )

    eventually(lambda: delete("node-b", "node-a").status_code == 403)
    refused(delete("node-b", "node-a"), "an agent deletes pods of its own node only")
    refused(delete("node-a", None), "an agent deletes pods of its own node only")
    assert delete("node-a", "node-a").status_code == 200
    assert guarded.admin.delete(
        f"{SPARED}/{bodies['node-b']['metadata']['name']}", params={"gracePeriodSeconds": "0"}
    ).is_success, "nobody else is held back"


def test_an_owner_answers_an_offer_and_cannot_make_or_accept_one_in_our_name(guarded: Cluster, path: str) -> None:
    """The answer is a person's to write; the offer, and the record that it was accepted, are ours."""
    router, alice = guarded.as_user("router"), guarded.as_user("alice")
    offer = {"metadata": {"annotations": {names.SUBSTITUTION_OFFER: '{"version": "v1"}'}}}
    assert router.patch(path, json=offer, headers=MERGE).status_code == 200
    answer = {"metadata": {"annotations": {names.SUBSTITUTION_ANSWER: "accept 0123456789ab-1"}}}
    assert alice.patch(path, json=answer, headers=MERGE).status_code == 200
    forged = {"metadata": {"annotations": {names.SUBSTITUTION_OFFER: '{"version": "v1", "accepted": true}'}}}
    refused(alice.patch(path, json=forged, headers=MERGE), "written by HCS alone")
