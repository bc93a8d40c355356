"""How objects end: grace, finalizers, eviction, owners, namespaces."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.clusters import Object, eventually
from tests.contract.harness import ON_THE_SANDBOX, Api, binding, done, pod, refused


def until_cached(api: Api, path: str, look: Callable[[Object], Any]) -> None:
    """Wait until the server's cache shows a write: a deletion decides on its grace by what the cache holds."""
    eventually(lambda: look(done(api.get(f"{path}?resourceVersion=0"))))


def test_a_pod_without_a_node_goes_at_once(api: Api, pods: str) -> None:
    api.create(pods, pod("a"))
    last = done(api.delete(f"{pods}/a"))
    assert last["kind"] == "Pod"
    assert api.get(f"{pods}/a").status_code == 404


def test_a_pod_on_a_node_waits_for_its_kubelet(api: Api, pods: str) -> None:
    api.create(pods, pod("a", spec={"terminationGracePeriodSeconds": 20}))
    done(api.post(f"{pods}/a/binding", binding("a", "n1")))
    until_cached(api, f"{pods}/a", lambda found: found["spec"].get("nodeName"))
    first = done(api.delete(f"{pods}/a"))["metadata"]
    assert first["deletionGracePeriodSeconds"] == 20
    assert first["generation"] == 2
    until_cached(api, f"{pods}/a", lambda found: found["metadata"].get("deletionGracePeriodSeconds") == 20)
    shorter = done(api.delete(f"{pods}/a", {"gracePeriodSeconds": 5}))["metadata"]
    assert (shorter["deletionGracePeriodSeconds"], shorter["generation"]) == (5, 2)
    until_cached(api, f"{pods}/a", lambda found: found["metadata"].get("deletionGracePeriodSeconds") == 5)
    longer = done(api.delete(f"{pods}/a", {"gracePeriodSeconds": 60}))["metadata"]
    assert longer["deletionGracePeriodSeconds"] == 5
    done(api.delete(f"{pods}/a", {"gracePeriodSeconds": 0}))
    assert api.get(f"{pods}/a").status_code == 404


def test_a_finished_pod_goes_at_once(api: Api, pods: str) -> None:
    api.create(pods, pod("a", spec={"nodeName": "n1"}))
    done(api.patch(f"{pods}/a/status", {"status": {"phase": "Succeeded"}}))
    until_cached(api, f"{pods}/a", lambda found: found["status"]["phase"] == "Succeeded")
    api.delete(f"{pods}/a")
    assert api.get(f"{pods}/a").status_code == 404


def test_the_uid_guards_a_deletion(api: Api, pods: str) -> None:
    made = api.create(pods, pod("a"))
    body = refused(api.delete(f"{pods}/a", {"preconditions": {"uid": "other"}}), 409, "Conflict")
    assert "the UID in the precondition (other) does not match the UID in record" in body["message"]
    done(api.delete(f"{pods}/a", {"preconditions": {"uid": made["metadata"]["uid"]}}))


def test_on_the_way_out_no_finalizer_is_added(api: Api, pods: str) -> None:
    api.create(pods, pod("a", finalizers=["a.example/hold"]))
    done(api.delete(f"{pods}/a"))
    more = {"metadata": {"finalizers": ["a.example/hold", "a.example/more"]}}
    body = refused(api.patch(f"{pods}/a", more), 422, "Invalid")
    assert "no new finalizers can be added if the object is being deleted" in body["message"]
    done(api.patch(f"{pods}/a", {"metadata": {"finalizers": None}}))
    assert api.get(f"{pods}/a").status_code == 404


def test_a_collection_is_deleted_by_label(api: Api, pods: str) -> None:
    for name, labels in (("a", {"x": "1"}), ("b", {"x": "1"}), ("c", {})):
        api.create(pods, pod(name, labels=labels))
    gone = done(api.delete(pods, labelSelector="x=1"))
    assert sorted(item["metadata"]["name"] for item in gone["items"]) == ["a", "b"]
    assert [item["metadata"]["name"] for item in api.read(pods)["items"]] == ["c"]


def eviction(name: str, **options: object) -> Object:
    body: Object = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    return {**body, "deleteOptions": options} if options else body


def test_an_eviction_is_a_deletion(api: Api, pods: str) -> None:
    uid = api.create(pods, pod("a", spec={"nodeName": "n1"}))["metadata"]["uid"]
    answer = api.post(f"{pods}/a/eviction", eviction("a", gracePeriodSeconds=3, preconditions={"uid": uid}))
    assert answer.status_code == 201
    assert answer.json() == {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
    assert api.read(f"{pods}/a")["metadata"]["deletionGracePeriodSeconds"] == 3
    refused(api.post(f"{pods}/none/eviction", eviction("none")), 404, "NotFound")


def test_a_disruption_budget_holds_evictions_back(api: Api, space: str, pods: str) -> None:
    budgets = f"/apis/policy/v1/namespaces/{space.rpartition('/')[2]}/poddisruptionbudgets"
    api.create(pods, pod("a", labels={"app": "a"}, spec={"nodeName": "n1"}))
    running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    done(api.patch(f"{pods}/a/status", {"status": running}))
    selector = {"matchLabels": {"app": "a"}}
    api.create(budgets, {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": selector}})
    answer = api.post(f"{pods}/a/eviction", eviction("a"))
    body = refused(answer, 429, "TooManyRequests")
    assert body["message"] == "Cannot evict pod as it would violate the pod's disruption budget."
    assert answer.headers["retry-after"] == "10"
    counts = {"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1}
    done(api.patch(f"{budgets}/b/status", {"status": {**counts, "expectedPods": 1}}))
    body = refused(api.post(f"{pods}/a/eviction", eviction("a")), 429, "TooManyRequests")
    assert body["details"]["causes"][0]["message"] == (
        "The disruption budget b needs 1 healthy pods and has 1 currently"
    )
    done(api.patch(f"{budgets}/b/status", {"status": {"disruptionsAllowed": 1}}))
    assert api.post(f"{pods}/a/eviction", eviction("a")).status_code == 201
    assert api.read(f"{budgets}/b")["status"]["disruptionsAllowed"] == 0


def owned(name: str, owner: Object, **more: object) -> Object:
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }
    return {"metadata": {"name": name, "ownerReferences": [{**reference, **more}]}}


@ON_THE_SANDBOX  # a real server leaves it to kube-controller-manager, which does not run here
@pytest.mark.parametrize("propagation", ["Background", "Foreground", "Orphan"])
def test_dependents_follow_their_owner(api: Api, space: str, propagation: str) -> None:
    maps = f"{space}/configmaps"
    owner = api.create(maps, {"metadata": {"name": "owner"}})
    child = api.create(maps, owned("child", owner, blockOwnerDeletion=True))
    api.create(maps, owned("grandchild", child))
    start = api.version()
    done(api.delete(f"{maps}/owner", propagationPolicy=propagation))
    eventually(lambda: api.get(f"{maps}/owner").status_code == 404)
    if propagation == "Orphan":
        assert "ownerReferences" not in api.read(f"{maps}/child")["metadata"]
        assert api.get(f"{maps}/grandchild").status_code == 200
        return
    eventually(lambda: api.get(f"{maps}/grandchild").status_code == 404)
    events = api.events(maps, start, 4 if propagation == "Foreground" else 3)
    gone = [event["object"]["metadata"]["name"] for event in events if event["type"] == "DELETED"]
    assert gone.index("child") < gone.index("owner") if propagation == "Foreground" else gone[0] == "owner"


@ON_THE_SANDBOX  # the same
def test_a_namespace_takes_its_contents_along(api: Api, space: str, pods: str) -> None:
    api.create(pods, pod("a"))
    api.create(pods, pod("b", spec={"nodeName": "n1"}))
    api.create(f"{space}/configmaps", {"metadata": {"name": "c"}})
    assert done(api.delete(space))["status"]["phase"] == "Terminating"
    eventually(lambda: api.get(f"{pods}/a").status_code == 404)
    assert api.read(f"{pods}/b")["metadata"]["deletionTimestamp"], "its kubelet has to let it go"
    body = refused(api.post(pods, pod("late")), 403, "Forbidden")
    assert "because it is being terminated" in body["message"]
    done(api.delete(f"{pods}/b", {"gracePeriodSeconds": 0}))
    eventually(lambda: api.get(space).status_code == 404)


def test_nothing_is_made_in_a_namespace_that_is_not_there(api: Api) -> None:
    body = refused(api.post("/api/v1/namespaces/nowhere/pods", pod("a")), 404, "NotFound")
    assert body["message"] == 'namespaces "nowhere" not found'


def test_a_lease_is_a_lock(api: Api, space: str) -> None:
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{space.rpartition('/')[2]}/leases"
    body: Object = {"metadata": {"name": "leader"}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15}}
    held = api.create(leases, body)
    refused(api.post(leases, body), 409, "AlreadyExists")
    held["spec"]["holderIdentity"] = "b"
    done(api.put(f"{leases}/leader", held))
    refused(api.put(f"{leases}/leader", held), 409, "Conflict")


def test_a_job_labels_its_pods(api: Api, space: str) -> None:
    jobs = f"/apis/batch/v1/namespaces/{space.rpartition('/')[2]}/jobs"
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x:1"}]}}
    made = api.create(jobs, {"metadata": {"name": "j"}, "spec": {"template": template}})
    uid = made["metadata"]["uid"]
    assert made["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert made["spec"]["template"]["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "j"
    assert (made["spec"]["completions"], made["spec"]["parallelism"], made["spec"]["backoffLimit"]) == (1, 1, 6)
    del template["spec"]["restartPolicy"]
    body = refused(api.post(jobs, {"metadata": {"name": "k"}, "spec": {"template": template}}), 422, "Invalid")
    assert 'Required value: valid values: "OnFailure", "Never"' in body["message"]


def test_a_node_keeps_its_status_at_creation(api: Api) -> None:
    capacity = {"cpu": "4", "memory": "16384Mi"}
    made = api.create("/api/v1/nodes", {"metadata": {"name": "contract-1"}, "status": {"capacity": capacity}})
    assert made["status"]["capacity"] == {"cpu": "4", "memory": "16Gi"}
    assert made["status"]["allocatable"] == made["status"]["capacity"]
    done(api.patch("/api/v1/nodes/contract-1", {"spec": {"unschedulable": True}, "status": {"capacity": {"cpu": "8"}}}))
    after = api.read("/api/v1/nodes/contract-1")
    assert (after["spec"]["unschedulable"], after["status"]["capacity"]["cpu"]) == (True, "4")
    done(api.delete("/api/v1/nodes/contract-1"))
