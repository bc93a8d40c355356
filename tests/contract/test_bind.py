"""pods/binding: what the router's bind leans on."""

import pytest
from tests.clusters import eventually
from tests.contract.harness import Api, binding, done, pod, refused
from tests.samples import recorded, sample


def test_node_annotations_and_labels_arrive_in_one_event(api: Api, pods: str) -> None:
    api.create(pods, pod("p", labels={"app": "train"}, annotations={"note": "old", "kept": "yes"}))
    before = api.read(f"{pods}/p")
    answer = api.post(
        f"{pods}/p/binding",
        binding("p", "f1", uid=before["metadata"]["uid"], annotations={"note": "new", "a/b": "{}"}, labels={"v": "x"}),
    )
    assert answer.status_code == 201
    assert answer.json() == {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
    (event,) = api.events(pods, before["metadata"]["resourceVersion"], 1)
    bound = event["object"]
    assert event["type"] == "MODIFIED"
    assert bound["spec"]["nodeName"] == "f1"
    assert bound["metadata"]["annotations"] == {"note": "new", "a/b": "{}", "kept": "yes"}
    assert bound["metadata"]["labels"] == {"app": "train", "v": "x"}
    assert bound["metadata"]["generation"] == before["metadata"]["generation"]
    (condition,) = bound["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    assert bound["metadata"]["resourceVersion"] == api.read(f"{pods}/p")["metadata"]["resourceVersion"]


def test_a_bound_pod_stays_where_it_is(api: Api, pods: str) -> None:
    api.create(pods, pod("train-1"))
    done(api.post(f"{pods}/train-1/binding", binding("train-1", "f1", annotations={"a": "1"})))
    for node in ("f1", "f2"):
        body = refused(
            api.post(f"{pods}/train-1/binding", binding("train-1", node, annotations={"a": "2"})), 409, "Conflict"
        )
        assert body["message"] == (
            'Operation cannot be fulfilled on pods/binding "train-1": pod train-1 is already assigned to node "f1"'
        )
        assert body["details"] == {"name": "train-1", "kind": "pods/binding"}
    assert api.read(f"{pods}/train-1")["metadata"]["annotations"] == {"a": "1"}


def test_a_gated_pod_is_not_bound(api: Api, pods: str) -> None:
    api.create(pods, pod("g-0", spec={"schedulingGates": [{"name": "ai.compute/gang"}]}))
    body = refused(api.post(f"{pods}/g-0/binding", binding("g-0", "f1")), 409, "Conflict")
    assert body["message"] == (
        'Operation cannot be fulfilled on pods/binding "g-0": pod g-0 has non-empty .spec.schedulingGates'
    )


def test_a_pod_being_deleted_is_not_bound(api: Api, pods: str) -> None:
    api.create(pods, pod("d", finalizers=["contract.example/hold"]))
    api.delete(f"{pods}/d")
    body = refused(api.post(f"{pods}/d/binding", binding("d", "f1")), 409, "Conflict")
    assert body["message"].endswith("pod d is being deleted, cannot be assigned to a host")
    api.patch(f"{pods}/d", {"metadata": {"finalizers": None}})


def test_the_uid_guards_against_a_namesake(api: Api, pods: str) -> None:
    uid = api.create(pods, pod("p"))["metadata"]["uid"]
    wrong = "11111111-1111-1111-1111-111111111111"
    body = refused(api.post(f"{pods}/p/binding", binding("p", "f1", uid=wrong)), 409, "Conflict")
    key = f"/registry/pods/{pods.split('/')[4]}/p"
    assert body["message"] == (
        f'Operation cannot be fulfilled on pods "p": StorageError: invalid object, Code: 4, Key: {key}, '
        f"ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {wrong}, "
        f"UID in object meta: {uid}"
    )
    assert body["details"] == {"name": "p", "kind": "pods"}


def test_the_version_makes_a_bind_compare_and_swap(api: Api, pods: str) -> None:
    old = api.create(pods, pod("p"))["metadata"]["resourceVersion"]
    new = done(api.patch(f"{pods}/p", {"metadata": {"labels": {"touched": "1"}}}))["metadata"]["resourceVersion"]
    body = refused(api.post(f"{pods}/p/binding", binding("p", "f1", resourceVersion=old)), 409, "Conflict")
    assert f"ResourceVersion in precondition: {old}, ResourceVersion in object meta: {new}" in body["message"]
    assert api.post(f"{pods}/p/binding", binding("p", "f1", resourceVersion=new)).status_code == 201


def test_nobody_to_bind(api: Api, pods: str) -> None:
    body = refused(api.post(f"{pods}/nobody/binding", binding("nobody", "f1")), 404, "NotFound")
    assert body["message"] == 'pods "nobody" not found'
    assert body["details"] == {"name": "nobody", "kind": "pods"}


@pytest.mark.parametrize(
    "annotations",
    [
        pytest.param({"not a key!": "x"}, id="bad-key"),
        pytest.param({"ai.compute/allocation": "x" * 300_000}, id="too-large"),
    ],
)
def test_annotations_are_not_checked_by_bind_but_by_every_later_write(
    api: Api, pods: str, annotations: dict[str, str]
) -> None:
    api.create(pods, pod("p"))
    assert api.post(f"{pods}/p/binding", binding("p", "f1", annotations=annotations)).status_code == 201
    assert api.read(f"{pods}/p")["metadata"]["annotations"] == annotations
    status = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    refused(api.patch(f"{pods}/p/status", status), 422, "Invalid")
    refused(api.patch(f"{pods}/p", {"metadata": {"labels": {"a": "b"}}}), 422, "Invalid")


def test_the_target_must_be_a_named_node(api: Api, pods: str) -> None:
    api.create(pods, pod("p"))
    answer = api.post(f"{pods}/p/binding", binding("p", ""))
    assert (answer.status_code, answer.json()["message"]) == (500, "target.name: Required value")


def test_gates_open_and_the_pod_binds(api: Api, pods: str) -> None:
    created = api.create(pods, pod("g", spec={"schedulingGates": [{"name": "ai.compute/gang"}]}))
    (condition,) = created["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "SchedulingGated")
    opened = done(api.patch(f"{pods}/g", {"spec": {"schedulingGates": None}, "metadata": {"annotations": {"x": "y"}}}))
    assert "schedulingGates" not in opened["spec"]
    assert opened["metadata"]["generation"] == created["metadata"]["generation"] + 1
    assert api.post(f"{pods}/g/binding", binding("g", "f1")).status_code == 201
    assert eventually(lambda: api.read(f"{pods}/g")["spec"].get("nodeName")) == "f1"


@recorded
def test_the_recorded_conflicts_are_the_whole_set() -> None:
    """The samples this file restates; a new recording must be looked at."""
    names = sample("binding-conflicts.json").keys() - {"about"}
    assert names == {"already_assigned", "gated", "uid_of_an_earlier_pod", "being_deleted", "no_such_pod"}
