"""What is sent to a cluster: the user's Job, held to what was decided."""

from typing import Any

import msgspec
import pytest

from hcs.cpn.jobmanifest import Overlay, job_manifest
from hcs.model.pods import Pod
from hcs.model.requests import read_request
from hcs.wide.entries import Entry, Placement
from hcs.wide.submissions import read_submission

GIB = 1 << 30


def entry_of(resources: dict[str, Any] | None = None, spec: dict[str, Any] | None = None, **fields: Any) -> Entry:
    manifest = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "labels": {"team": "a"}, "annotations": {"data_size": 20, "model_name": "bert"}},
        "spec": {
            "ttlSecondsAfterFinished": 5,
            "backoffLimit": 6,
            **(spec or {}),
            "template": {
                "metadata": {"annotations": {"note": "kept"}},
                "spec": {
                    "restartPolicy": "OnFailure",
                    "containers": [
                        {"name": "side", "image": "side:1"},
                        {"name": "main", "image": "train:1", "resources": resources or {}},
                    ],
                },
            },
        },
    }
    submission = read_submission(manifest, 0).submission
    return Entry("e1", manifest, submission, "Placing", 2, 0, 0, 1, **fields)


def placed(**fields: Any) -> Placement:
    return Placement(
        **{"cluster": "east", "kind": "A100", "decided": 0, "expected": 1, "upper": 2, "job": "cpn-e1-0", **fields}
    )


def made(entry: Entry, placement: Placement, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = job_manifest(entry, placement, "q", overlay=more.pop("overlay", Overlay()), **more)
    return found


def test_a_job_that_was_read_from_a_cluster_can_be_sent_again() -> None:
    """Labels that the Job controller put on its pods would tie it to the old one's UID."""
    entry = entry_of(spec={"podReplacementPolicy": "TerminatingOrFailed", "selector": {"matchLabels": {}}})
    old = {"controller-uid": "u", "batch.kubernetes.io/controller-uid": "u", "job-name": "j", "app": "train"}
    entry.manifest["spec"]["template"]["metadata"]["labels"] = old | {"batch.kubernetes.io/job-name": "j"}
    spec = made(entry, placed())["spec"]
    assert "podReplacementPolicy" not in spec, "beside a podFailurePolicy only its default is allowed"
    labels = set(spec["template"]["metadata"]["labels"])
    assert labels == {"app", "ai.compute/cpn-entry", "ai.compute/cpn-queue"}


def test_it_waits_fails_once_and_never_deletes_itself() -> None:
    spec = made(entry_of(), placed())["spec"]
    assert (spec["suspend"], spec["backoffLimit"]) == (True, 0)
    assert "ttlSecondsAfterFinished" not in spec, "it would end unseen while the controller is away"
    assert spec["template"]["spec"]["restartPolicy"] == "Never"
    actions = [rule["action"] for rule in spec["podFailurePolicy"]["rules"]]
    assert actions == ["Ignore", "FailJob"], "what a disruption took away the cluster makes again by itself"


def test_labels_lead_back_and_annotations_become_text() -> None:
    job = made(entry_of(), placed())
    ours = {"ai.compute/cpn-entry": "e1", "ai.compute/cpn-queue": "q"}
    assert job["metadata"]["labels"] == {"team": "a", **ours}
    assert job["metadata"]["annotations"] == {"data_size": "20", "model_name": "bert"}
    assert job["spec"]["template"]["metadata"]["labels"] == ours
    assert job["metadata"]["name"] == "cpn-e1-0"


@pytest.mark.parametrize(
    ("resources", "placement", "annotations", "limits"),
    [
        pytest.param(
            {}, {"memory": 3 * GIB, "shared": True}, "shared", {"ai.compute/vram": str(3 * GIB)}, id="a-share"
        ),
        pytest.param({}, {}, "exclusive", {"ai.compute/vram": str(GIB)}, id="unknown-memory-gets-the-whole-card"),
        pytest.param(
            {"limits": {"ai.compute/vram": "2Gi"}},
            {"memory": 5 * GIB},
            "exclusive",
            {"ai.compute/vram": str(5 * GIB)},
            id="more-than-was-too-little",
        ),
        pytest.param(
            {"limits": {"ai.compute/cards": "4"}},
            {"memory": GIB},
            None,
            {"ai.compute/cards": "4", "ai.compute/vram": str(GIB)},
            id="whole-cards",
        ),
        pytest.param(
            {"limits": {"nvidia.com/gpu": 1, "cpu": "4"}},
            {},
            "exclusive",
            {"cpu": "4", "ai.compute/vram": str(GIB)},
            id="a-vendors-name-becomes-ours",
        ),
    ],
)
def test_the_container_that_computes_asks_for_what_was_decided(
    resources: dict[str, Any], placement: dict[str, Any], annotations: str | None, limits: dict[str, str]
) -> None:
    entry = entry_of(resources)
    template = made(entry, placed(**placement))["spec"]["template"]
    at = 1 if resources else 0
    assert template["spec"]["containers"][at]["resources"]["limits"] == limits
    found = template["metadata"]["annotations"]
    assert found["ai.compute/models"] == "A100"
    assert found.get("ai.compute/sharing") == annotations
    request = read_request(msgspec.convert(template, Pod))
    assert request is not None, "a cluster's admission reads it"
    assert request.models == ("A100",)


def test_a_share_is_in_the_group_that_was_planned_and_in_no_other() -> None:
    entry = entry_of()
    entry.manifest["spec"]["template"].setdefault("metadata", {})["annotations"] = {
        "ai.compute/sharing-group": "theirs"
    }
    for placement, group in (
        (placed(shared=True, group="cpn-e0-0", memory=GIB), "default/cpn-e0-0"),
        (placed(group="cpn-e0-0"), ""),
        (placed(shared=True, memory=GIB), ""),  # placed before there were groups
    ):
        request = read_request(msgspec.convert(made(entry, placement)["spec"]["template"], Pod))
        assert request is not None
        assert request.group == group


def test_cards_are_those_of_each_pod() -> None:
    entry = entry_of({"limits": {"ai.compute/cards": "2"}}, {"parallelism": 3, "completions": 3})
    assert entry.submission.cards == 6
    limits = made(entry, placed())["spec"]["template"]["spec"]["containers"][1]["resources"]["limits"]
    assert limits["ai.compute/cards"] == "2"


def test_a_site_has_the_last_word_but_not_on_our_labels() -> None:
    overlay = Overlay(
        metadata={"annotations": {"hami.io/resource-pool": "poc"}, "labels": {"ai.compute/cpn-entry": "other"}},
        spec={"schedulerName": "theirs", "nodeSelector": {"pool": "a"}, "restartPolicy": "Never"},
        limits={"nvidia.com/gpu": "1", "ai.compute/vram": None},
    )
    template = made(entry_of(), placed(), overlay=overlay)["spec"]["template"]
    assert template["spec"]["schedulerName"] == "theirs"
    assert template["metadata"]["annotations"]["hami.io/resource-pool"] == "poc"
    assert template["metadata"]["labels"]["ai.compute/cpn-entry"] == "e1"
    assert template["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}


def test_host_memory_that_was_too_little_is_raised_where_it_was_limited() -> None:
    entry = entry_of({"limits": {"memory": "2Gi", "ai.compute/vram": "1Gi"}}, host_floor=3 * GIB)
    resources = made(entry, placed())["spec"]["template"]["spec"]["containers"][1]["resources"]
    assert resources["limits"]["memory"] == resources["requests"]["memory"] == str(3 * GIB)


def test_jobs_with_inputs_are_told_where_these_are() -> None:
    entry = entry_of()
    digest = "sha256:" + "0" * 64
    entry.manifest["metadata"]["annotations"]["inputs"] = f"{digest}=1Gi"
    entry = msgspec.structs.replace(entry, submission=read_submission(entry.manifest, 0).submission)
    for container in made(entry, placed(), store="http://blobs")["spec"]["template"]["spec"]["containers"]:
        assert {"name": "HCS_BLOB_STORE", "value": "http://blobs"} in container["env"]
        assert {"name": "HCS_INPUTS", "value": digest} in container["env"]


def test_equal_decisions_make_equal_manifests() -> None:
    assert made(entry_of(), placed()) == made(entry_of(), placed())
