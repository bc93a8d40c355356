"""What a Job manifest asks of the queue: numbers as people write them, and a sentence for every mistake."""

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcs.model.refusals import RefusedError
from hcs.wide.entries import Submission
from hcs.wide.jobs import Blob
from hcs.wide.submissions import ANNOTATIONS, Asked, read_submission

GIB = 1 << 30
ONE, TWO = "1" * 64, "2" * 64
NOW = 1_900_000_000_000  # March 2030


def job(*, spec: dict[str, Any] | None = None, pod: dict[str, Any] | None = None, **annotations: Any) -> dict[str, Any]:
    """A Job that asks for one card of 16 GiB; ``spec`` goes to the Job, ``pod`` to its container's limits."""
    container = {
        "name": "main",
        "image": "train:1",
        "resources": {"limits": {"ai.compute/vram": "16Gi", **(pod or {})}},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "annotations": annotations},
        "spec": {"template": {"spec": {"containers": [container], "restartPolicy": "Never"}}, **(spec or {})},
    }


def read(manifest: dict[str, Any]) -> Submission:
    return read_submission(manifest, NOW).submission


def reasons(manifest: dict[str, Any]) -> list[str]:
    with pytest.raises(RefusedError) as refused:
        read_submission(manifest, NOW)
    return [refusal.reason for refusal in refused.value.refusals]


def cautioned(manifest: dict[str, Any]) -> list[str]:
    return [caution.reason for caution in read_submission(manifest, NOW).cautions]


def test_everything_a_job_can_say() -> None:
    manifest = job(
        spec={"parallelism": 2},
        pod={"ai.compute/cards": 4, "cpu": "1500m", "memory": "4Gi"},
        model_name="resnet50",
        data_size=50_000,
        epoch=90,
        batch_size=100,
        deadline="2030-06-01T00:00:00+00:00",
        priority="7",
        inputs=f"sha256:{ONE}=150Gi, sha256:{TWO}=2Gi",
        idempotency_key="mine",
    )
    manifest["spec"]["template"]["metadata"] = {"annotations": {"ai.compute/models": "V100, A100"}}
    manifest["metadata"]["namespace"] = "vision"
    assert read_submission(manifest, NOW) == Asked(
        Submission(
            name="train",
            namespace="vision",
            model="resnet50",
            batch=100.0,
            steps=45_000.0,
            samples=50_000.0,
            epochs=90.0,
            cards=8,
            pods=2,
            memory=16 * GIB,
            kinds=("V100", "A100"),
            cpu=1500,
            host_memory=4 * GIB,
            priority=7,
            deadline=1_906_502_400_000,
            inputs=(Blob(f"sha256:{ONE}", 150 * GIB), Blob(f"sha256:{TWO}", 2 * GIB)),
        ),
        cautions=(),
        key="mine",
    )


def test_an_input_that_no_store_could_fetch_is_told() -> None:
    assert cautioned(job(model_name="m", data_size=1, epoch=1, inputs=f"sha256:{'0' * 63}=1")) == ["InputNotMovable"]


@pytest.mark.parametrize("value", [20, "20", 20.0, " 20 ", "2e1", "+20", "20.", "020"])
def test_a_number_may_be_quoted_or_not(value: Any) -> None:
    found = read(job(model_name="m", data_size=value, epoch=value, batch_size=value))
    assert (found.samples, found.epochs, found.batch, found.steps) == (20.0, 20.0, 20.0, 20.0)


@pytest.mark.parametrize(
    ("text", "mebibytes"), [("20Gi", 20480), ("20GiB", 20480), ("512 Mi", 512), ("1048576k", 1000)]
)
def test_data_given_as_a_size_is_counted_in_mebibytes(text: str, mebibytes: int) -> None:
    manifest = job(model_name="m", data_size=text, epoch=2)
    assert read(manifest).steps == 2 * mebibytes
    assert cautioned(manifest) == ["DataSizeInBytes"]


@pytest.mark.parametrize(
    "value", [0, -1, "-5", "nan", "inf", 1e300, "1e300", 10**18, "1" + "0" * 30, "ten", True, "1,000", "", "0.0", [1]]
)
def test_absurd_amounts_are_refused(value: Any) -> None:
    found = reasons(job(data_size=value or "0", epoch=value or "0", batch_size=value or "0"))
    assert found == ["BadDataSize", "BadEpoch", "BadBatchSize"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("6h", 21_600_000),
        ("2d12h", 216_000_000),
        ("90m", 5_400_000),
        ("1.5h", 5_400_000),
        ("2030-03-17T17:46:41Z", 1000),
    ],
)
def test_a_deadline_is_a_moment_or_a_time_from_now(text: str, expected: int) -> None:
    assert read(job(deadline=text)).deadline == NOW + expected


@pytest.mark.parametrize(
    "text",
    [
        "yesterday",
        "6",
        6,
        "0s",
        "2020-01-01T00:00:00Z",
        "2030-06-01T00:00:00",
        "9999-12-31T00:00:00Z",
        "99999w",
        "1..5h",
    ],
)
def test_a_deadline_nobody_could_keep_is_refused(text: Any) -> None:
    assert reasons(job(deadline=text)) == ["BadDeadline"]


@pytest.mark.parametrize(("value", "expected"), [("-3", -3), (5.0, 5), (10**9, 10**9)])
def test_a_priority_is_a_whole_number(value: Any, expected: int) -> None:
    assert read(job(priority=value)).priority == expected


@pytest.mark.parametrize("value", ["high", 1.5, 10**10, True, "1e3"])
def test_any_other_priority_is_refused(value: Any) -> None:
    assert reasons(job(priority=value)) == ["BadPriority"]


@pytest.mark.parametrize("text", ["imagenet", "=2Gi", "a=-1", "a=2Gi a=3Gi", "a/../b=1", "a=lots", 5, "a=1Pi,b=1Pi"])
def test_inputs_that_cannot_be_read_are_refused(text: Any) -> None:
    assert reasons(job(inputs=text)) == ["BadInputs"]


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        pytest.param({"ai.compute/cards": 10**9}, "TooManyCards", id="a-billion-cards"),
        pytest.param({"ai.compute/vram": "-1"}, "MalformedQuantity", id="negative-memory"),
        pytest.param({"ai.compute/vrma": "1Gi"}, "UnknownResource", id="misspelt"),
        pytest.param({"cpu": "many"}, "MalformedQuantity", id="cpu"),
        pytest.param({"cpu": 10**8}, "MalformedQuantity", id="too-much-cpu"),
        pytest.param({"memory": "1Zi"}, "MalformedQuantity", id="host-memory"),
    ],
)
def test_needs_no_cluster_could_meet_are_refused(pod: dict[str, Any], reason: str) -> None:
    assert reasons(job(pod=pod)) == [reason]


def test_many_pods_of_many_cards_are_too_many() -> None:
    assert reasons(job(spec={"parallelism": 5000}, pod={"ai.compute/cards": 100})) == ["TooManyCards"]
    assert reasons(job(spec={"parallelism": 0})) == ["BadParallelism"]


@pytest.mark.parametrize(
    ("spec", "pods"),
    [({"parallelism": 8, "completions": 2}, 2), ({"parallelism": 2, "completions": 8}, 2), ({"completions": 8}, 1)],
)
def test_no_more_pods_run_at_once_than_there_is_work_for(spec: dict[str, int], pods: int) -> None:
    asked = read_submission(job(spec=spec), NOW).submission
    assert (asked.pods, asked.cards) == (pods, pods)


def test_a_total_is_not_planned() -> None:
    manifest = job()
    manifest["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"ai.compute/fp16-tflops": 100}}
    assert reasons(manifest) == ["TotalNotPlanned"]


def test_cards_of_one_vendors_plugin_are_counted_and_said() -> None:
    manifest = job()
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    container["resources"] = {"limits": {"nvidia.com/gpu": 2, "rdma/hca": 1}}
    assert read(manifest).cards == 2
    assert "VendorResource" in cautioned(manifest)
    container["resources"] = {"limits": {"huawei.com/Ascend910": "x"}}
    assert reasons(manifest) == ["MalformedQuantity"]


def test_what_is_not_said_costs_something_and_is_told() -> None:
    manifest = job()
    del manifest["spec"]["template"]["spec"]["containers"][0]["resources"]
    manifest["spec"]["template"]["spec"]["priorityClassName"] = "urgent"
    asked = read_submission(manifest, NOW)
    assert (asked.submission.model, asked.submission.steps, asked.submission.cards) == ("", None, 1)
    assert [caution.reason for caution in asked.cautions] == [
        "NoModelName",
        "UnknownWork",
        "PriorityClassUnknown",
        "NothingAsked",
    ]


@pytest.mark.parametrize(
    ("key", "meant"), [("model-name", "model_name"), ("epochs", "epoch"), ("batchsize", "batch_size")]
)
def test_a_misspelt_annotation_is_told(key: str, meant: str) -> None:
    (caution,) = [
        caution for caution in read_submission(job(**{key: "1"}), NOW).cautions if caution.reason == "UnknownAnnotation"
    ]
    assert f"did you mean {meant}?" in caution.message


def test_annotations_may_be_on_the_pod_template_but_not_say_two_things() -> None:
    manifest = job()
    manifest["spec"]["template"]["metadata"] = {"annotations": {"model_name": "m", "epoch": 3}}
    assert (read(manifest).model, read(manifest).epochs) == ("m", 3.0)
    manifest["metadata"]["annotations"] = {"epoch": "3"}
    assert read(manifest).epochs == 3.0
    manifest["metadata"]["annotations"] = {"epoch": "4"}
    assert reasons(manifest) == ["ContradictoryAnnotations"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param({"kind": "Pod"}, "NotAJob", id="pod"),
        pytest.param({"kind": "List", "items": []}, "NotAJob", id="list"),
        pytest.param({"apiVersion": "batch/v1beta1"}, "NotAJob", id="older-api"),
        pytest.param({"metadata": {}}, "NoName", id="no-name"),
        pytest.param({"metadata": None}, "NoName", id="no-metadata"),
        pytest.param({"metadata": {"name": "x" * 64}}, "BadName", id="long-name"),
        pytest.param({"metadata": {"name": "Train"}}, "BadName", id="capital"),
        pytest.param({"metadata": {"name": "a", "namespace": "b/c"}}, "BadName", id="namespace"),
        pytest.param({"metadata": {"name": 5}}, "MalformedJob", id="name-that-is-a-number"),
        pytest.param({"metadata": {"name": "a", "labels": {"b": 1}}}, "MalformedJob", id="label-that-is-a-number"),
        pytest.param({"metadata": {"name": "a", "annotations": [1]}}, "MalformedJob", id="annotations-as-list"),
        pytest.param({"spec": None}, "NoPodTemplate", id="no-spec"),
        pytest.param({"spec": {"template": {}}}, "NoContainer", id="no-container"),
        pytest.param({"spec": {"template": {"spec": {"containers": [{"name": "a"}]}}}}, "NoContainer", id="no-image"),
        pytest.param({"spec": {"template": {"spec": {"containers": [5]}}}}, "MalformedJob", id="container-5"),
        pytest.param({"spec": {"template": {"spec": [1]}}}, "MalformedJob", id="spec-as-list"),
        pytest.param({"spec": 5}, "MalformedJob", id="spec-5"),
    ],
)
def test_what_is_no_job_is_refused(change: dict[str, Any], reason: str) -> None:
    assert reasons({**job(), **change}) == [reason]


def test_all_mistakes_are_told_at_once() -> None:
    manifest = job(epoch=-1, deadline="soon", pod={"ai.compute/cards": 10**9})
    manifest["metadata"]["name"] = "Train"
    assert reasons(manifest) == ["BadName", "TooManyCards", "BadEpoch", "BadDeadline"]


def test_a_generated_name_will_do() -> None:
    assert read({**job(), "metadata": {"generateName": "train-"}}).name == "train"


def test_reading_changes_nothing() -> None:
    manifest = {**job(epoch=3), "metadata": None}
    before = copy.deepcopy(manifest)
    reasons(manifest)
    assert manifest == before


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
PLACES = [
    ("metadata",),
    ("metadata", "name"),
    ("metadata", "namespace"),
    ("metadata", "labels"),
    ("metadata", "annotations"),
    ("spec",),
    ("spec", "parallelism"),
    ("spec", "completions"),
    ("spec", "template"),
    ("spec", "template", "metadata"),
    ("spec", "template", "spec"),
    ("spec", "template", "spec", "containers"),
    ("spec", "template", "spec", "priorityClassName"),
    *(("metadata", "annotations", key) for key in ANNOTATIONS),
]


@given(st.lists(st.tuples(st.sampled_from(PLACES), values), min_size=1, max_size=3), values)
def test_anything_anywhere_is_taken_or_refused_with_a_sentence(
    changes: list[tuple[tuple[str, ...], Any]], resource: Any
) -> None:
    manifest = job(pod={"ai.compute/cards": resource})
    for path, value in changes:
        at: Any = manifest
        for step in path[:-1]:
            at = at.get(step) if isinstance(at, dict) else None
        if isinstance(at, dict):
            at[path[-1]] = value
    try:
        asked = read_submission(manifest, NOW)
    except RefusedError as error:
        for refusal in error.refusals:
            assert refusal.reason.isalpha()
            assert len(refusal.message) < 700
    else:
        assert msgspec.json.decode(msgspec.json.encode(asked), type=Asked) == asked
        assert asked.submission.cards >= 1
