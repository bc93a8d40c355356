"""Creating and changing pods: names, defaults, resource amounts, and which fields may still change."""

from typing import Any

import pytest
from tests.contract.harness import JSON_PATCH, STRATEGIC_PATCH, Api, done, pod, refused

GATE = {"schedulingGates": [{"name": "ai.compute/gang"}]}
IMMUTABLE = "pod updates may not change fields other than `spec.containers[*].image`"


def vram(amount: Any) -> dict[str, Any]:
    return {"resources": {"limits": {"ai.compute/vram": amount}}}


def test_a_name_is_generated(api: Api, pods: str) -> None:
    first, second = (api.create(pods, pod("", generateName="job-"))["metadata"]["name"] for _ in range(2))
    assert first != second
    assert all(name.startswith("job-") and len(name) == 9 for name in (first, second))


def test_a_name_is_taken_once(api: Api, pods: str) -> None:
    api.create(pods, pod("a"))
    body = refused(api.post(pods, pod("a")), 409, "AlreadyExists")
    assert body["message"] == 'pods "a" already exists'
    assert body["details"] == {"name": "a", "kind": "pods"}


def test_a_new_pod_is_completed(api: Api, pods: str) -> None:
    made = api.create(pods, pod("a", container={"image": "x"}))
    spec = made["spec"]
    assert made["metadata"]["generation"] == 1
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert (spec["schedulerName"], spec["restartPolicy"], spec["priority"]) == ("default-scheduler", "Always", 0)
    assert spec["containers"][0]["imagePullPolicy"] == "Always", "an image without a tag is the latest"
    assert [t["tolerationSeconds"] for t in spec["tolerations"]] == [300, 300]


@pytest.mark.parametrize(
    ("written", "stored"),
    [("16Gi", "16Gi"), ("16G", "16G"), ("1.5Gi", "1536Mi"), ("100e3", "100e3"), (16, "16"), ("16384Mi", "16Gi")],
)
def test_amounts_of_our_resources_are_accepted_and_respelled(api: Api, pods: str, written: Any, stored: str) -> None:
    made = api.create(pods, pod("a", container=vram(written)))
    resources = made["spec"]["containers"][0]["resources"]
    assert resources == {"limits": {"ai.compute/vram": stored}, "requests": {"ai.compute/vram": stored}}


@pytest.mark.parametrize(("written", "shown"), [("500m", "500m"), ("0.5", "500m"), ("1Ei", "1Ei")])
def test_amounts_that_cannot_be_counted_are_refused(api: Api, pods: str, written: str, shown: str) -> None:
    body = refused(api.post(pods, pod("x", container=vram(written))), 422, "Invalid")
    causes = [(cause["field"], cause["message"]) for cause in body["details"]["causes"]]
    assert causes == [
        (f"spec.containers[0].resources.{kind}[ai.compute/vram]", f'Invalid value: "{shown}": must be an integer')
        for kind in ("limits", "requests")
    ]
    assert body["message"].startswith('Pod "x" is invalid: [spec.containers[0].resources.limits[ai.compute/vram]')


def test_a_word_is_no_amount(api: Api, pods: str) -> None:
    body = refused(api.post(pods, pod("x", container=vram("1GiB"))), 400, "BadRequest")
    assert "quantities must match the regular expression" in body["message"]


@pytest.mark.parametrize(
    ("resources", "text"),
    [
        ({"requests": {"ai.compute/vram": "1"}}, "Limit must be set for non overcommitable resources"),
        (
            {"requests": {"ai.compute/vram": "1"}, "limits": {"ai.compute/vram": "2"}},
            "must be equal to ai.compute/vram limit of 2",
        ),
        ({"requests": {"cpu": "1"}, "limits": {"cpu": "500m"}}, "must be less than or equal to cpu limit of 500m"),
        ({"limits": {"vram": "1"}}, "must be a standard resource type or fully qualified"),
        ({"limits": {"ai.compute/vram": "-1"}}, "must be greater than or equal to 0"),
    ],
)
def test_requests_and_limits_must_agree(api: Api, pods: str, resources: dict[str, Any], text: str) -> None:
    body = refused(api.post(pods, pod("x", container={"resources": resources})), 422, "Invalid")
    assert text in body["message"]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (pod("A_b"), "a lowercase RFC 1123 subdomain"),
        (pod("x", container={"image": ""}), "spec.containers[0].image: Required value"),
        (pod("x", spec={"containers": []}), "spec.containers: Required value"),
        (pod("x", labels={"ok": "not ok!"}), "metadata.labels: Invalid value"),
        (pod("x", annotations={"not a key": ""}), "metadata.annotations: Invalid value"),
        (pod("x", annotations={"a": "x" * 262_200}), "metadata.annotations: Too long"),
        (pod("x", spec={"resources": {"requests": {"ai.compute/vram": "1"}}}), "spec.resources.requests"),
        (pod("x", container={"volumeMounts": [{"name": "v", "mountPath": "/v"}]}), 'Not found: "v"'),
        (pod("x", spec={**GATE, "nodeName": "n"}), "cannot be set until all schedulingGates have been cleared"),
        (pod("x", finalizers=["nope"]), "name is neither a standard finalizer name nor is it fully qualified"),
    ],
)
def test_nonsense_is_refused(api: Api, pods: str, body: dict[str, Any], text: str) -> None:
    assert text in refused(api.post(pods, body), 422, "Invalid")["message"]


def test_fields_nobody_knows_are_dropped_or_refused(api: Api, pods: str) -> None:
    odd = pod("a", spec={"vendor": "x"})
    answer = api.post(pods, odd)
    assert answer.headers["warning"] == '299 - "unknown field \\"spec.vendor\\""'
    assert "vendor" not in done(answer)["spec"]
    body = refused(api.post(pods, odd, fieldValidation="Strict"), 400, "BadRequest")
    assert body["message"].endswith('strict decoding error: unknown field "spec.vendor"')


def test_a_value_of_the_wrong_type_is_refused(api: Api, pods: str) -> None:
    body = refused(api.post(pods, pod("x", container={"env": [{"name": "A", "value": 1}]})), 400, "BadRequest")
    assert (
        "cannot unmarshal number into Go struct field EnvVar.spec.containers.env.value of type string"
        in (body["message"])
    )


def test_while_gated_images_selectors_and_tolerations_may_change(api: Api, pods: str) -> None:
    api.create(pods, pod("g", spec=GATE))
    patch = {
        "metadata": {"annotations": {"ai.compute/route-reason": "waiting"}},
        "spec": {"nodeSelector": {"a": "b"}, "containers": [{"name": "c", "image": "registry.example/b:1"}]},
    }
    changed = done(api.patch(f"{pods}/g", patch, STRATEGIC_PATCH))
    assert changed["spec"]["containers"][0]["image"] == "registry.example/b:1"
    assert changed["metadata"]["generation"] == 2
    added = [{"op": "add", "path": "/spec/tolerations/-", "value": {"key": "ai.compute/managed", "operator": "Exists"}}]
    assert len(done(api.patch(f"{pods}/g", added, JSON_PATCH))["spec"]["tolerations"]) == 3
    pin = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [pin]}}}
    done(api.patch(f"{pods}/g", {"spec": {"affinity": affinity}}))
    body = refused(api.patch(f"{pods}/g", {"spec": {"nodeSelector": {"a": "c"}}}), 422, "Invalid")
    assert "only additions to spec.nodeSelector are allowed (no mutations or deletions)" in body["message"]
    done(api.patch(f"{pods}/g", {"spec": {"schedulingGates": None}}))
    assert (
        IMMUTABLE in refused(api.patch(f"{pods}/g", {"spec": {"nodeSelector": {"z": "1"}}}), 422, "Invalid")["message"]
    )


CHANGES: dict[str, dict[str, Any]] = {
    "env": {"containers": [{"name": "c", "env": [{"name": "A", "value": "b"}]}]},
    "command": {"containers": [{"name": "c", "command": ["true"]}]},
    "pull policy": {"containers": [{"name": "c", "imagePullPolicy": "Never"}]},
    "resources": {"containers": [{"name": "c", **vram("1"), "resources": {"limits": {"cpu": "1"}}}]},
    "volumes": {"volumes": [{"name": "v", "emptyDir": {}}]},
    "scheduler": {"schedulerName": "other"},
    "runtime class": {"runtimeClassName": "nvidia"},
    "node": {"nodeName": "n"},
}


@pytest.mark.parametrize("change", list(CHANGES))
def test_everything_else_is_fixed(api: Api, pods: str, change: str) -> None:
    api.create(pods, pod("g", spec=GATE))
    body = refused(api.patch(f"{pods}/g", {"spec": CHANGES[change]}, STRATEGIC_PATCH), 422, "Invalid")
    assert IMMUTABLE in body["message"]
    assert body["details"]["causes"][0]["field"] == "spec"


def test_containers_and_gates_are_not_added(api: Api, pods: str) -> None:
    api.create(pods, pod("g", spec=GATE))
    added = {"spec": {"containers": [{"name": "d", "image": "x:1"}]}}
    body = refused(api.patch(f"{pods}/g", added, STRATEGIC_PATCH), 422, "Invalid")
    assert "pod updates may not add or remove containers" in body["message"]
    two = {"spec": {"schedulingGates": [{"name": "ai.compute/gang"}, {"name": "ai.compute/two"}]}}
    body = refused(api.patch(f"{pods}/g", two), 422, "Invalid")
    assert body["message"] == (
        'Pod "g" is invalid: spec.schedulingGates[1].name: Forbidden: only deletion is allowed, '
        "but found new scheduling gate 'ai.compute/two'"
    )


def test_a_change_of_nothing_is_no_event(api: Api, pods: str) -> None:
    made = api.create(pods, pod("a", labels={"x": "1"}))
    for kind in ("application/merge-patch+json", STRATEGIC_PATCH):
        same = done(api.patch(f"{pods}/a", {"metadata": {"labels": {"x": "1"}}}, kind))
        assert same["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    again = done(api.put(f"{pods}/a", made))
    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def test_the_optimistic_lock(api: Api, pods: str) -> None:
    made = api.create(pods, pod("a"))
    mine = {**made, "metadata": {**made["metadata"], "labels": {"who": "me"}}}
    yours = {**made, "metadata": {**made["metadata"], "labels": {"who": "you"}}}
    done(api.put(f"{pods}/a", mine))
    body = refused(api.put(f"{pods}/a", yours), 409, "Conflict")
    assert body["message"] == (
        'Operation cannot be fulfilled on pods "a": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    old = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"], "labels": {"who": "you"}}}
    refused(api.patch(f"{pods}/a", old), 409, "Conflict")
    assert api.read(f"{pods}/a")["metadata"]["labels"] == {"who": "me"}


def test_status_and_spec_are_apart(api: Api, pods: str) -> None:
    api.create(pods, pod("a"))
    done(api.patch(f"{pods}/a", {"status": {"phase": "Failed"}}))
    assert api.read(f"{pods}/a")["status"]["phase"] == "Pending"
    change = {
        "metadata": {"annotations": {"note": "1"}},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "other"}]},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "nominatedNodeName": "n2"},
    }
    after = done(api.patch(f"{pods}/a/status", change, STRATEGIC_PATCH))
    assert after["spec"]["containers"][0]["image"] == "registry.example/a:1"
    assert "nodeName" not in after["spec"]
    assert (after["status"]["phase"], after["status"]["podIPs"]) == ("Running", [{"ip": "10.0.0.1"}])
    assert after["metadata"]["annotations"] == {"note": "1"}, "pods take metadata with their status"


def test_conditions_merge_by_type_only_in_a_strategic_patch(api: Api, pods: str) -> None:
    api.create(pods, pod("a", spec=GATE))
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    merged = done(api.patch(f"{pods}/a/status", ready, STRATEGIC_PATCH))["status"]["conditions"]
    assert [condition["type"] for condition in merged] == ["Ready", "PodScheduled"]
    replaced = done(api.patch(f"{pods}/a/status", ready))["status"]["conditions"]
    assert [condition["type"] for condition in replaced] == ["Ready"]


def test_kubectls_directives(api: Api, pods: str) -> None:
    api.create(pods, pod("a", finalizers=["a.example/1", "a.example/2"], labels={"x": "1", "y": "2"}))
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a.example/1"], "labels": {"x": None}}}
    meta = done(api.patch(f"{pods}/a", patch, STRATEGIC_PATCH))["metadata"]
    assert (meta["finalizers"], meta["labels"]) == (["a.example/2"], {"y": "2"})
    patch = {"metadata": {"labels": {"$patch": "replace", "z": "3"}, "finalizers": None}}
    meta = done(api.patch(f"{pods}/a", patch, STRATEGIC_PATCH))["metadata"]
    assert (meta.get("finalizers"), meta["labels"]) == (None, {"z": "3"})


@pytest.mark.parametrize(
    ("patch", "code", "reason"),
    [
        ([{"op": "test", "path": "/metadata/name", "value": "other"}], 422, "Invalid"),
        ([{"op": "remove", "path": "/metadata/annotations/none"}], 422, "Invalid"),
        ({"op": "remove"}, 400, "BadRequest"),
    ],
)
def test_json_patches_that_do_not_fit(api: Api, pods: str, patch: Any, code: int, reason: str) -> None:
    api.create(pods, pod("a"))
    refused(api.patch(f"{pods}/a", patch, JSON_PATCH), code, reason)


def test_a_patch_type_nobody_knows(api: Api, pods: str) -> None:
    api.create(pods, pod("a"))
    refused(api.patch(f"{pods}/a", {}, "application/json"), 415, "UnsupportedMediaType")


def test_apply_makes_and_merges(api: Api, pods: str) -> None:
    wish = pod("a", labels={"x": "1"})
    made = api.patch(f"{pods}/a", wish, "application/apply-patch+yaml", fieldManager="one")
    assert made.status_code == 201
    more = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"y": "2"}}}
    after = done(api.patch(f"{pods}/a", more, "application/apply-patch+yaml", fieldManager="two"))
    assert after["metadata"]["labels"] == {"x": "1", "y": "2"}
    refused(api.patch(f"{pods}/a", wish, "application/apply-patch+yaml"), 422, "Invalid")


def test_a_dry_run_changes_nothing(api: Api, pods: str) -> None:
    assert api.post(pods, pod("a"), dryRun="All").status_code == 201
    assert api.get(f"{pods}/a").status_code == 404


@pytest.mark.parametrize(
    ("path", "code"),
    [("{space}/pods/none", 404), ("{space}/nones", 404), ("/apis/none.example/v1", 404), ("/api/v1/nodes/none", 404)],
)
def test_what_is_not_there(api: Api, space: str, path: str, code: int) -> None:
    assert api.get(path.format(space=space)).status_code == code


def test_a_body_that_is_too_large(api: Api, pods: str) -> None:
    refused(api.post(pods, pod("a", annotations={"x": "y" * 3_200_000})), 413, "RequestEntityTooLarge")


def test_strangers_are_not_let_in(api: Api, pods: str) -> None:
    refused(api.as_user("nonsense").get(pods), 401, "Unauthorized")
