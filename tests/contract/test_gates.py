"""Gates opened one by one, nodes nominated, and patches that must not come too late: what gangs and offers lean on."""

from tests.contract.harness import MERGE_PATCH, STRATEGIC_PATCH, Api, binding, done, pod, refused

OURS, THEIRS = "ai.compute/gang", "example.com/other"
GATES = {"schedulingGates": [{"name": THEIRS}, {"name": OURS}]}


def opened(gate: str) -> dict[str, object]:
    return {"spec": {"schedulingGates": [{"$patch": "delete", "name": gate}]}}


def test_one_gate_is_opened_and_those_of_others_stay(api: Api, pods: str) -> None:
    made = api.create(pods, pod("a", spec=GATES))
    uid = made["metadata"]["uid"]
    notes = {"ai.compute/note": "offer"}
    body = {"metadata": {"uid": uid, "annotations": notes}, **opened(OURS)}
    changed = done(api.patch(f"{pods}/a", body, STRATEGIC_PATCH))
    assert changed["spec"]["schedulingGates"] == [{"name": THEIRS}]
    assert changed["metadata"]["annotations"]["ai.compute/note"] == "offer"
    refused(api.post(f"{pods}/a/binding", binding("a", "n1", uid=uid)), 409, "Conflict")
    free = done(api.patch(f"{pods}/a", opened(THEIRS), STRATEGIC_PATCH))
    assert not free["spec"].get("schedulingGates")


def test_opening_a_gate_twice_changes_nothing(api: Api, pods: str) -> None:
    api.create(pods, pod("a", spec=GATES))
    first = done(api.patch(f"{pods}/a", opened(OURS), STRATEGIC_PATCH))
    again = done(api.patch(f"{pods}/a", opened(OURS), STRATEGIC_PATCH))
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_a_gate_cannot_be_shut_again(api: Api, pods: str) -> None:
    api.create(pods, pod("a", spec=GATES))
    done(api.patch(f"{pods}/a", opened(OURS), STRATEGIC_PATCH))
    body = {"spec": {"schedulingGates": [{"name": OURS}]}}
    refused(api.patch(f"{pods}/a", body, STRATEGIC_PATCH), 422, "Invalid")


def test_a_patch_meant_for_another_pod_of_the_name_is_refused(api: Api, pods: str) -> None:
    api.create(pods, pod("a", spec=GATES))
    body = {"metadata": {"uid": "00000000-0000-0000-0000-000000000000"}, **opened(OURS)}
    assert api.patch(f"{pods}/a", body, STRATEGIC_PATCH).status_code in (409, 422)
    assert len(api.read(f"{pods}/a")["spec"]["schedulingGates"]) == 2


def test_a_node_is_nominated_and_the_nomination_taken_back(api: Api, pods: str) -> None:
    uid = api.create(pods, pod("a"))["metadata"]["uid"]
    body = {"metadata": {"uid": uid}, "status": {"nominatedNodeName": "n1"}}
    assert done(api.patch(f"{pods}/a/status", body, MERGE_PATCH))["status"]["nominatedNodeName"] == "n1"
    body = {"metadata": {"uid": uid}, "status": {"nominatedNodeName": None}}
    assert "nominatedNodeName" not in done(api.patch(f"{pods}/a/status", body, MERGE_PATCH))["status"]


def test_an_old_version_in_a_patch_is_a_conflict(api: Api, pods: str) -> None:
    """So a record is taken off a pod only while it is not bound."""
    made = api.create(pods, pod("a", annotations={"ai.compute/note": "x"}))
    uid, version = made["metadata"]["uid"], made["metadata"]["resourceVersion"]
    done(api.post(f"{pods}/a/binding", binding("a", "n1", uid=uid)))
    body = {"metadata": {"resourceVersion": version, "annotations": {"ai.compute/note": None}}}
    refused(api.patch(f"{pods}/a", body, MERGE_PATCH), 409, "Conflict")
    assert api.read(f"{pods}/a")["metadata"]["annotations"]["ai.compute/note"] == "x"
