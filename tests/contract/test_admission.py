"""Webhooks, admission policies and quota: what the injector and the annotation policy lean on."""

import base64
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.clusters import Object, eventually, free_port
from tests.contract.harness import Api, Webhook, binding, done, pod, refused, unique

from hcs.process.certificates import Authority

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
Install = Callable[..., Webhook]


def patch(*operations: Object) -> Object:
    return {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(operations).encode()).decode()}


def label(key: str) -> Callable[[Object], Object]:
    """An answer that adds a label, whatever was there before."""

    def answer(request: Object) -> Object:
        labels = {**(request["object"]["metadata"].get("labels") or {}), key: "1"}
        return patch({"op": "add", "path": "/metadata/labels", "value": labels})

    return answer


def test_a_webhook_sees_a_complete_pod_and_changes_it(api: Api, pods: str, hook: Install) -> None:
    init = {
        "name": "i",
        "image": "x",
        "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    }
    made = hook(
        lambda _: patch(
            {"op": "add", "path": "/spec/initContainers", "value": [init]},
            {"op": "add", "path": "/spec/schedulingGates", "value": [{"name": "ai.compute/gang"}]},
            {"op": "replace", "path": "/spec/schedulerName", "value": "hcs-scheduler"},
        )
    )
    result = api.create(pods, pod("train-1"), fieldManager="test", fieldValidation="Strict")
    (request,) = made.requests
    namespace = pods.split("/")[4]
    assert request["kind"] == {"group": "", "version": "v1", "kind": "Pod"}
    assert request["resource"] == {"group": "", "version": "v1", "resource": "pods"}
    assert (request["name"], request["namespace"], request["operation"]) == ("train-1", namespace, "CREATE")
    assert request["userInfo"]["username"] == "admin"
    assert set(request["userInfo"]["groups"]) == {"system:masters", "system:authenticated"}
    assert (request["oldObject"], request["dryRun"]) == (None, False)
    assert request["options"] == {
        "kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "test", "fieldValidation": "Strict",
    }  # fmt: skip
    seen = request["object"]
    assert seen["metadata"].keys() - {"managedFields"} == {"name", "namespace"}
    assert seen["status"] == {}
    assert seen["spec"]["priority"] == 0
    assert len(seen["spec"]["tolerations"]) == 2
    assert made.paths == ["/mutate?timeout=10s"]
    added = result["spec"]["initContainers"][0]
    assert added["terminationMessagePath"] == "/dev/termination-log", "defaults come after the webhook too"
    assert added["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] == "v1"
    assert result["spec"]["schedulerName"] == "hcs-scheduler"
    assert result["status"]["conditions"][0]["reason"] == "SchedulingGated"


def test_a_generated_name_is_not_known_yet(api: Api, pods: str, hook: Install) -> None:
    made = hook(lambda _: {})
    api.create(pods, pod("", generateName="job-"))
    (request,) = made.requests
    assert "name" not in request
    assert request["object"]["metadata"]["generateName"] == "job-"


def test_webhooks_run_in_order_of_their_configurations(api: Api, pods: str, hook: Install) -> None:
    first = unique("order")
    later = hook(label("b"), name=f"{first}-b")
    earlier = hook(label("a"), name=f"{first}-a")
    result = api.create(pods, pod("p"))
    assert result["metadata"]["labels"] == {"a": "1", "b": "1"}
    assert "labels" not in earlier.requests[0]["object"]["metadata"]
    assert later.requests[0]["object"]["metadata"]["labels"] == {"a": "1"}


def test_a_second_look_when_asked_for(api: Api, pods: str, hook: Install) -> None:
    first = unique("again")
    earlier = hook(lambda _: {}, name=f"{first}-a", reinvocationPolicy="IfNeeded")
    hook(label("b"), name=f"{first}-b")
    api.create(pods, pod("p"))
    seen = [request["object"]["metadata"].get("labels") for request in earlier.requests]
    assert seen == [None, {"b": "1"}]


@pytest.mark.parametrize(
    ("answer", "code", "message"),
    [
        ({"allowed": False}, 400, "denied the request without explanation"),
        ({"allowed": False, "status": {"message": "no room"}}, 400, "denied the request: no room"),
        (
            {"allowed": False, "status": {"message": "no room", "code": 422, "reason": "Invalid"}},
            422,
            "denied the request: no room",
        ),
        (patch({"op": "remove", "path": "/spec/none"}), 500, "Internal error occurred: "),
        ({"patch": "W10="}, 500, "webhook returned response.patch but not response.patchType"),
        ({"uid": "other"}, 500, "received invalid webhook response: expected response.uid="),
        (patch({"op": "add", "path": "/spec/containers/0/image", "value": ""}), 422, "image: Required value"),
    ],
)
def test_refusals(api: Api, pods: str, hook: Install, answer: Object, code: int, message: str) -> None:
    hook(lambda _: answer)
    response = api.post(pods, pod("p"))
    assert response.status_code == code
    assert message in response.json()["message"]
    assert api.get(f"{pods}/p").status_code == 404


def test_a_denial_names_the_webhook(api: Api, pods: str, hook: Install) -> None:
    name = unique("deny")
    hook(lambda _: {"allowed": False, "status": {"message": "0 cards make no sense"}}, name=name)
    body = api.post(pods, pod("p")).json()
    assert body["message"] == f'admission webhook "{name}.contract.example" denied the request: 0 cards make no sense'


def test_warnings_reach_the_client(api: Api, pods: str, hook: Install) -> None:
    hook(lambda _: {"warnings": ["careful"]})
    assert api.post(pods, pod("p")).headers["warning"] == '299 - "careful"'


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
def test_a_webhook_that_is_down(api: Api, pods: str, hook: Any, policy: str) -> None:
    name = unique("down")
    authority = Authority.create("test").pair.certificate
    hook.configuration(f"https://127.0.0.1:{free_port()}", authority, name=name, failurePolicy=policy)
    response = api.post(pods, pod("p"))
    if policy == "Ignore":
        assert response.status_code == 201
        return
    body = refused(response, 500, "InternalError")
    assert body["message"].startswith(
        f'Internal error occurred: failed calling webhook "{name}.contract.example": failed to call webhook: Post '
    )
    assert body["message"].endswith("connect: connection refused")


def test_a_webhook_that_is_too_slow(api: Api, pods: str, hook: Install) -> None:
    release = threading.Event()
    hook(lambda _: {"warnings": [] if release.wait(20) else ["late"]}, timeoutSeconds=1)
    body = refused(api.post(pods, pod("p")), 500, "InternalError")
    release.set()
    assert body["message"].endswith("context deadline exceeded")


def test_a_certificate_of_somebody_else(api: Api, pods: str, hook: Any) -> None:
    made = Webhook(lambda _: {})
    try:
        hook.configuration(made.url, Authority.create("stranger").pair.certificate)
        body = refused(api.post(pods, pod("p")), 500, "InternalError")
    finally:
        made.close()
    assert "tls: failed to verify certificate" in body["message"]
    assert made.requests == []


OURS = (
    "object.spec.containers.exists(c, has(c.resources) && has(c.resources.limits) && "
    "c.resources.limits.exists(k, k.startsWith('ai.compute/')))"
)


def test_match_conditions_keep_other_pods_away(api: Api, pods: str, hook: Install) -> None:
    made = hook(lambda _: {}, matchConditions=[{"name": "ours", "expression": OURS}])
    api.create(pods, pod("other", container={"resources": {"limits": {"cpu": "1"}}}))
    api.create(pods, pod("plain"))
    api.create(pods, pod("ours", container={"resources": {"limits": {"ai.compute/vram": "1Gi"}}}))
    assert [request["name"] for request in made.requests] == ["ours"]


@pytest.mark.parametrize(
    ("conditions", "policy", "code", "calls"),
    [
        (["object.spec.none == 1"], "Fail", 403, 0),
        (["object.spec.none == 1"], "Ignore", 201, 0),
        (["object.spec.none == 1", "false"], "Fail", 201, 0),
        (["request.userInfo.username == 'admin'", "request.operation == 'CREATE'"], "Fail", 201, 1),
    ],
)
def test_match_conditions_that_fail(
    api: Api, pods: str, hook: Install, conditions: list[str], policy: str, code: int, calls: int
) -> None:
    named = [{"name": f"c{index}", "expression": text} for index, text in enumerate(conditions)]
    made = hook(lambda _: {}, matchConditions=named, failurePolicy=policy)
    response = api.post(pods, pod("p"))
    assert (response.status_code, len(made.requests)) == (code, calls)
    if code == 403:
        assert "expression 'object.spec.none == 1' resulted in error: no such key: none" in response.json()["message"]


def test_object_selectors(api: Api, pods: str, hook: Install) -> None:
    made = hook(lambda _: {}, objectSelector={"matchExpressions": [{"key": "skip", "operator": "DoesNotExist"}]})
    api.create(pods, pod("a", labels={"skip": "1"}))
    api.create(pods, pod("b"))
    assert [request["name"] for request in made.requests] == ["b"]


def test_subresources_and_deletions_are_seen_when_named(api: Api, pods: str, hook: Install) -> None:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods", "pods/*"]}
    made = hook(lambda _: {}, rules=[rule])
    api.create(pods, pod("p"))
    done(api.post(f"{pods}/p/binding", binding("p", "n1", annotations={"a": "b"})))
    done(api.patch(f"{pods}/p/status", {"status": {"phase": "Running"}}))
    done(api.patch(f"{pods}/p", {"metadata": {"labels": {"a": "b"}}}))
    done(api.delete(f"{pods}/p", gracePeriodSeconds=0))
    seen = [
        (r["operation"], r.get("subResource"), (r["object"] or {}).get("kind"), (r["oldObject"] or {}).get("kind"))
        for r in made.requests
    ]
    assert list(dict.fromkeys(seen)) == [  # a real server asks twice about a deletion without grace
        ("CREATE", None, "Pod", None),
        ("CREATE", "binding", "Binding", None),
        ("UPDATE", "status", "Pod", "Pod"),
        ("UPDATE", None, "Pod", "Pod"),
        ("DELETE", None, None, "Pod"),
    ]
    assert made.requests[1]["object"]["metadata"]["annotations"] == {"a": "b"}


def test_a_validating_webhook_sees_the_final_pod(api: Api, pods: str, hook: Install) -> None:
    hook(label("seen"))
    judge = hook(lambda _: {"allowed": False, "status": {"message": "not today"}}, kind="validating")
    assert "denied the request: not today" in api.post(pods, pod("p")).json()["message"]
    assert judge.requests[0]["object"]["metadata"]["labels"] == {"seen": "1"}
    assert judge.requests[0]["object"]["metadata"]["uid"]


ALLOCATION = "ai.compute/allocation"


def annotation(which: str) -> str:
    held = f"has({which}.metadata.annotations) && '{ALLOCATION}' in {which}.metadata.annotations"
    return f"{held} ? {which}.metadata.annotations['{ALLOCATION}'] : ''"


@pytest.fixture
def policy(api: Api, space: str) -> Iterator[Callable[..., None]]:
    """Installs an admission policy for the test's namespace, and waits until the server honours it."""
    names: list[str] = []

    def install(spec: Object, probe: Callable[[], int], resources: list[str] | None = None) -> str:
        name = unique("policy")
        names.append(name)
        rule = {
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
            "resources": resources or ["pods"],
        }  # fmt: skip
        selector = {"matchLabels": {"contract": space.rpartition("/")[2]}}
        constraints = {"resourceRules": [rule], "namespaceSelector": selector}
        api.create(POLICIES, {"metadata": {"name": name}, "spec": {"matchConstraints": constraints, **spec}})
        bound = {"policyName": name, "validationActions": ["Deny"]}
        api.create(BINDINGS, {"metadata": {"name": name}, "spec": bound})
        eventually(lambda: probe() != 201)
        return name

    yield install
    for name in names:
        api.delete(f"{BINDINGS}/{name}")
        api.delete(f"{POLICIES}/{name}")


def test_only_some_may_write_an_annotation(api: Api, pods: str, policy: Callable[..., str]) -> None:
    alice = api.as_user("alice-token")
    spec = {
        "variables": [
            {"name": "before", "expression": f"oldObject == null ? '' : ({annotation('oldObject')})"},
            {"name": "after", "expression": annotation("object")},
        ],
        "validations": [
            {
                "expression": "variables.before == variables.after || request.userInfo.username == 'admin'",
                "message": f"{ALLOCATION} is written by HCS alone",
            }
        ],
    }
    forged = pod("p", annotations={ALLOCATION: "{}"})
    name = policy(spec, lambda: alice.post(pods, forged, dryRun="All").status_code)
    body = refused(alice.post(pods, forged), 422, "Invalid")
    assert body["message"] == (
        f"pods \"p\" is forbidden: ValidatingAdmissionPolicy '{name}' with binding '{name}' denied request: "
        f"{ALLOCATION} is written by HCS alone"
    )
    done(alice.post(pods, pod("p")))
    write = {"metadata": {"annotations": {ALLOCATION: "{}"}}}
    refused(alice.patch(f"{pods}/p", write), 422, "Invalid")
    done(api.patch(f"{pods}/p", write))
    done(alice.patch(f"{pods}/p", {"metadata": {"labels": {"note": "1"}}}))
    refused(alice.patch(f"{pods}/p", {"metadata": {"annotations": {ALLOCATION: None}}}), 422, "Invalid")


def test_a_policy_over_bindings(api: Api, pods: str, policy: Callable[..., str]) -> None:
    alice = api.as_user("alice-token")
    api.create(pods, pod("p"))
    api.create(pods, pod("probe"))
    spec = {
        "validations": [
            {
                "expression": "request.userInfo.username == 'admin'",
                "messageExpression": "'not for ' + request.userInfo.username + ': ' + object.target.name",
                "reason": "Forbidden",
            }
        ]
    }
    policy(
        spec,
        lambda: alice.post(f"{pods}/probe/binding", binding("probe", "n"), dryRun="All").status_code,
        ["pods/binding"],
    )
    body = refused(alice.post(f"{pods}/p/binding", binding("p", "n1")), 403, "Forbidden")
    assert body["message"].endswith("denied request: not for alice: n1")
    done(api.post(f"{pods}/p/binding", binding("p", "n1")))


def test_a_policy_that_cannot_be_evaluated_denies(api: Api, pods: str, policy: Callable[..., str]) -> None:
    policy(
        {"validations": [{"expression": "object.spec.none == 1"}]},
        lambda: api.post(pods, pod("x"), dryRun="All").status_code,
    )
    body = refused(api.post(pods, pod("p")), 422, "Invalid")
    assert "expression 'object.spec.none == 1' resulted in error: no such key: none" in body["message"]


def test_expressions_are_compiled_when_written(api: Api) -> None:
    name = unique("broken")
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "object.("}]}
    body = refused(api.post(POLICIES, {"metadata": {"name": name}, "spec": spec}), 422, "Invalid")
    assert "spec.validations[0].expression: Invalid value" in body["message"]
    assert "compilation failed" in body["message"]


def test_a_quota_counts_our_resources(api: Api, space: str, pods: str) -> None:
    hard = {"requests.ai.compute/vram": "20Gi", "pods": "3"}
    api.create(f"{space}/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    if api.is_real:  # without a controller manager nobody writes the quota's status, which the real server goes by
        used = dict.fromkeys(hard, "0")
        done(api.patch(f"{space}/resourcequotas/q/status", {"status": {"hard": hard, "used": used}}))

    def asking(name: str, amount: str) -> Object:
        return pod(name, container={"resources": {"limits": {"ai.compute/vram": amount}}})

    eventually(lambda: api.post(pods, asking("probe", "30Gi"), dryRun="All").status_code == 403)
    done(api.post(pods, asking("a", "16Gi")))
    body = refused(api.post(pods, asking("b", "16Gi")), 403, "Forbidden")
    assert body["message"] == (
        'pods "b" is forbidden: exceeded quota: q, requested: requests.ai.compute/vram=16Gi, '
        "used: requests.ai.compute/vram=16Gi, limited: requests.ai.compute/vram=20Gi"
    )
    done(api.post(pods, asking("b", "4Gi")))

    def counted() -> bool:
        now = api.read(f"{space}/resourcequotas/q")["status"]["used"]
        return bool(now == {"requests.ai.compute/vram": "20Gi", "pods": "2"})

    eventually(counted)
