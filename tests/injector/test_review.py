"""The webhook speaks admission.k8s.io/v1 to the letter, and lets through what is none of its business."""

import base64
from typing import Any

import jsonpatch
import msgspec
import pytest
from tests.injector.pods_for_admission import pod, review
from tests.samples import recorded, sample

from hcs.injector.review import MAX_MESSAGE, ReviewError, Verdict, answer
from hcs.injector.settings import Settings
from hcs.model import names
from hcs.ura.catalogue import load_catalogue


def reviewed(body: Any) -> Verdict:
    return answer(msgspec.json.encode(body), load_catalogue(), Settings())


def patched(raw: dict[str, Any], verdict: Verdict) -> dict[str, Any]:
    response = verdict.reply["response"]
    assert response["patchType"] == "JSONPatch"
    changed: dict[str, Any] = jsonpatch.apply_patch(raw, msgspec.json.decode(base64.b64decode(response["patch"])))
    return changed


def test_a_mutation_travels_as_a_json_patch_under_the_requests_uid() -> None:
    verdict = reviewed(review(pod()))
    assert verdict.outcome == "mutated"
    assert verdict.reply["apiVersion"] == "admission.k8s.io/v1"
    assert verdict.reply["kind"] == "AdmissionReview"
    assert verdict.reply["response"]["uid"] == review(None)["request"]["uid"]
    assert verdict.reply["response"]["allowed"] is True
    assert patched(pod(), verdict)["spec"]["schedulerName"] == names.SCHEDULER


def test_a_second_call_has_nothing_left_to_patch() -> None:
    changed = patched(pod(), reviewed(review(pod())))
    again = reviewed(review(changed))
    assert again.outcome == "untouched"
    assert "patch" not in again.reply["response"]
    assert "patchType" not in again.reply["response"]


def test_a_dry_run_is_answered_the_same() -> None:
    assert reviewed(review(pod(), dryRun=True)).reply == reviewed(review(pod())).reply


def test_a_refusal_carries_reason_and_sentence_and_no_patch() -> None:
    response = reviewed(review(pod({names.VRAM: "16GB"}))).reply["response"]
    assert response["allowed"] is False
    assert "patch" not in response
    assert response["status"]["reason"] == "MalformedQuantity"
    assert response["status"]["code"] == 400
    assert response["status"]["message"].startswith("MalformedQuantity: container main, ai.compute/vram:")


def test_many_refusals_are_cut_to_what_a_terminal_shows() -> None:
    limits = {f"ai.compute/{'x' * 60}{i}": "1" for i in range(100)}
    message = reviewed(review(pod(limits))).reply["response"]["status"]["message"]
    assert len(message) == MAX_MESSAGE
    assert message.endswith("...")


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(review({"kind": "Binding", "metadata": {}}, kind="Binding", subResource="binding"), id="binding"),
        pytest.param(review(None, operation="DELETE"), id="deletion"),
        pytest.param(review(pod({names.VRAM: "x"}), operation="UPDATE"), id="update"),
        pytest.param(review(pod({names.VRAM: "x"}), subResource="ephemeralcontainers"), id="subresource"),
        pytest.param(review({"kind": "Deployment"}, kind="Deployment"), id="another-kind"),
        pytest.param(
            review({}, kind="Pod") | {"request": {**review({})["request"], "kind": {"group": "x.io", "kind": "Pod"}}},
            id="another-group",
        ),
    ],
)
def test_what_is_not_a_pods_creation_passes_untouched(other: dict[str, Any]) -> None:
    verdict = reviewed(other)
    assert verdict.outcome == "not-ours"
    assert verdict.reply["response"] == {"uid": other["request"]["uid"], "allowed": True}


@pytest.mark.parametrize(
    ("metadata", "request_name", "shown"),
    [
        pytest.param({"name": "train-1", "namespace": "default"}, "train-1", "lab/train-1", id="request-knows-best"),
        pytest.param({"generateName": "train-"}, "", "lab/train-*", id="named-by-a-controller"),
        pytest.param({}, "", "lab/*", id="nameless"),
    ],
)
def test_whose_pod_it_is_can_be_told_before_it_has_a_name(
    metadata: dict[str, str], request_name: str, shown: str
) -> None:
    raw = pod() | {"metadata": metadata}
    verdict = reviewed(review(raw, name=request_name, namespace="lab"))
    assert (verdict.pod, verdict.user) == (shown, "alice")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        pytest.param(b"", "not JSON", id="empty"),
        pytest.param(b"{", "not JSON", id="cut-short"),
        pytest.param(b"\xff\xfe", "not JSON", id="not-text"),
        pytest.param(b"[" * 100_000, "not JSON", id="deeply-nested"),
        pytest.param(b"[]", "admission.k8s.io/v1", id="a-list"),
        pytest.param(b'{"apiVersion":"admission.k8s.io/v1beta1"}', "admission.k8s.io/v1", id="an-old-version"),
        pytest.param(b'{"apiVersion":"admission.k8s.io/v1"}', "uid", id="no-request"),
        pytest.param(b'{"apiVersion":"admission.k8s.io/v1","request":{"uid":7}}', "uid", id="uid-no-text"),
        pytest.param(b'{"apiVersion":"admission.k8s.io/v1","request":{"uid":"u"}}', "what is done", id="no-kind"),
        pytest.param(msgspec.json.encode(review(None)), "not a Pod", id="no-object"),
        pytest.param(
            msgspec.json.encode(review(pod())).replace(b'"status":{}', b'"unknown":' + b"[" * 900 + b"]" * 900),
            "nested|not JSON",
            id="a-pod-nested-too-deeply",
        ),
    ],
)
def test_a_malformed_review_is_told_what_was_expected(body: bytes, says: str) -> None:
    with pytest.raises(ReviewError, match=says):
        answer(body, load_catalogue(), Settings())


@recorded
def test_a_recorded_review_of_a_pod_is_answered() -> None:
    creation = sample("admissionreview-pod-create.json")
    verdict = reviewed(creation["request_body"])
    assert verdict.outcome == "mutated"
    assert verdict.reply["response"].keys() == creation["reply_body_that_worked"]["response"].keys()
    changed = patched(creation["request_body"]["request"]["object"], verdict)
    assert changed["spec"]["containers"][0]["resources"]["limits"]["ai.compute/total-acu"] == "40"


@recorded
def test_a_recorded_review_of_a_binding_passes_untouched() -> None:
    binding = sample("admissionreview-pod-binding.json")
    assert reviewed(binding["request_body"]).reply == binding["reply_body_that_worked"]
