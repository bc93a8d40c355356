"""Admission writes what nobody should have to write, once, and refuses nonsense with a sentence."""

import copy
import string
from typing import Any

import jsonpatch
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.injector.pods_for_admission import pod

from hcs.injector.mutation import mutate
from hcs.injector.patches import difference
from hcs.injector.settings import Settings
from hcs.model import names
from hcs.model.pods import Pod
from hcs.model.refusals import RefusedError
from hcs.model.requests import read_request
from hcs.ura.catalogue import load_catalogue

CATALOGUE = load_catalogue()
SITE = Settings(pull_secrets=("site-registry",))


def admitted(raw: dict[str, Any], settings: Settings = SITE) -> dict[str, Any]:
    before = copy.deepcopy(raw)
    changed = mutate(raw, CATALOGUE, settings)
    assert raw == before, "the pod that came in is not touched"
    return changed


def refused(raw: dict[str, Any], settings: Settings = SITE) -> dict[str, str]:
    """Reasons and sentences of a refusal."""
    with pytest.raises(RefusedError) as caught:
        mutate(raw, CATALOGUE, settings)
    return {refusal.reason: refusal.message for refusal in caught.value.refusals}


def test_a_share_is_charged_scheduled_and_tolerated() -> None:
    changed = admitted(pod({names.VRAM: "16Gi", names.ACU: "40", "cpu": "1"}, requests={"cpu": "500m"}))
    [container] = changed["spec"]["containers"]
    compute = {
        "ai.compute/vram": "16Gi",
        "ai.compute/acu": "40",
        "ai.compute/cards": "1",
        "ai.compute/total-cards": "1",
        "ai.compute/total-vram": str(16 << 30),
        "ai.compute/total-acu": "40",
    }
    assert container["resources"] == {"limits": {"cpu": "1", **compute}, "requests": {"cpu": "500m", **compute}}
    assert changed["spec"]["schedulerName"] == names.SCHEDULER
    assert changed["spec"]["tolerations"][-1] == {"key": names.MANAGED_TAINT, "operator": "Exists"}
    assert changed["spec"]["imagePullSecrets"] == [{"name": "site-registry"}]
    assert changed["metadata"]["annotations"] == {names.REQUIRED_PLUGINS: '["hcs"]'}


@pytest.mark.parametrize(
    ("limits", "annotations", "charge"),
    [
        pytest.param(
            {names.VRAM: "40Gi", names.CARDS: "4"},
            {},
            {"total-cards": "4", "total-vram": str(160 << 30)},
            id="several-cards-count-several-times",
        ),
        pytest.param({names.FP16_TFLOPS: "624"}, {}, {"total-acu": "200"}, id="tflops-are-charged-in-acu-alone"),
        pytest.param({names.TOTAL_ACU: "250"}, {}, {"total-acu": "250"}, id="total-acu-is-its-own-charge"),
        pytest.param(
            {names.CARDS: "1"}, {names.SHARING: "exclusive"}, {"total-cards": "1"}, id="a-whole-card-of-any-size"
        ),
    ],
)
def test_what_is_asked_is_what_a_quota_counts(
    limits: dict[str, str], annotations: dict[str, str], charge: dict[str, str]
) -> None:
    [container] = admitted(pod(limits, annotations=annotations))["spec"]["containers"]
    for kind in ("limits", "requests"):
        written = container["resources"][kind]
        totals = {key: written[key] for key in names.CHARGED if key in written}
        assert totals == {f"ai.compute/{key}": value for key, value in charge.items()}


@pytest.mark.parametrize(
    "resources",
    [
        pytest.param({"limits": {names.VRAM: "16Gi"}}, id="limits-alone"),
        pytest.param({"requests": {names.VRAM: "16Gi"}}, id="requests-alone"),
        pytest.param({"limits": {names.VRAM: "16Gi"}, "requests": None}, id="requests-null"),
        pytest.param({"limits": {names.VRAM: "16Gi"}, "requests": {names.VRAM: "16384Mi"}}, id="equal-differently"),
    ],
)
def test_limits_and_requests_end_up_with_the_same_amounts(resources: dict[str, Any]) -> None:
    [container] = admitted(pod(container={"resources": resources}))["spec"]["containers"]
    written = container["resources"]
    assert written["limits"].keys() == written["requests"].keys()
    assert names.VRAM in written["limits"]


def test_a_pod_without_annotations_volumes_or_tolerations_gets_them_whole() -> None:
    raw = pod(annotations={names.CODE_IMAGE: "code:1"})
    del raw["spec"]["tolerations"]
    changed = admitted(raw)
    assert changed["spec"]["volumes"] == [
        {"name": "hcs-code", "image": {"reference": "code:1", "pullPolicy": "IfNotPresent"}}
    ]
    [container] = changed["spec"]["containers"]
    assert container["volumeMounts"] == [{"name": "hcs-code", "mountPath": "/workspace/code", "readOnly": True}]
    assert container["workingDir"] == "/workspace"
    assert jsonpatch.apply_patch(raw, difference(raw, changed)) == changed


def test_only_containers_that_ask_get_the_code_layer() -> None:
    raw = pod(annotations={names.CODE_IMAGE: "code:1"}, container={"workingDir": "/mine"})
    raw["spec"]["containers"].append({"name": "sidecar", "image": "proxy:1"})
    main, sidecar = admitted(raw)["spec"]["containers"]
    assert main["workingDir"] == "/mine", "what the user chose stays"
    assert sidecar == {"name": "sidecar", "image": "proxy:1"}


def test_a_controllers_pod_without_a_name_is_admitted_like_any_other() -> None:
    raw = pod()
    raw["metadata"] = {"generateName": "train-"}
    changed = admitted(raw)
    assert changed["metadata"]["generateName"] == "train-"
    assert "name" not in changed["metadata"]


def test_a_toleration_of_one_effect_only_is_not_enough() -> None:
    narrow = {"key": names.MANAGED_TAINT, "operator": "Exists", "effect": "NoSchedule"}
    assert len(admitted(pod(tolerations=[narrow]))["spec"]["tolerations"]) == 2


def test_another_listed_scheduler_is_kept() -> None:
    settings = Settings(schedulers=("hcs-scheduler", "night-scheduler"))
    changed = admitted(pod(schedulerName="night-scheduler"), settings)
    assert changed["spec"]["schedulerName"] == "night-scheduler"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({}, {"": '["hcs"]'}, id="none"),
        pytest.param({"": '["audit"]'}, {"": '["audit","hcs"]'}, id="others-are-kept"),
        pytest.param({"": "- audit\n- 10-hcs\n"}, {"": "- audit\n- 10-hcs\n"}, id="named-with-its-index"),
        pytest.param(
            {"/container.main": "[]"}, {"": '["hcs"]', "/container.main": '["hcs"]'}, id="a-narrower-list-overrides"
        ),
    ],
)
def test_our_node_plugin_is_required_wherever_plugins_are_listed(before: dict[str, str], after: dict[str, str]) -> None:
    annotations = {f"{names.REQUIRED_PLUGINS}{suffix}": value for suffix, value in before.items()}
    changed = admitted(pod(annotations=annotations))
    assert changed["metadata"]["annotations"] == {
        f"{names.REQUIRED_PLUGINS}{suffix}": value for suffix, value in after.items()
    }


def limits(**amounts: str) -> dict[str, str]:
    return {f"ai.compute/{key.replace('_', '-')}": amount for key, amount in amounts.items()}


def annotated(**values: str) -> dict[str, str]:
    return {f"ai.compute/{key.replace('_', '-')}": value for key, value in values.items()}


@pytest.mark.parametrize(
    ("raw", "reason", "says"),
    [
        # Malformed quantities.
        pytest.param(pod(limits(vram="16 GB")), "MalformedQuantity", "512Mi or 16Gi", id="a-quantity-with-a-space"),
        pytest.param(pod(limits(vram="16GB")), "MalformedQuantity", "unknown unit", id="no-such-unit"),
        pytest.param(pod(limits(vram="0.5")), "MalformedQuantity", "whole number", id="half-a-byte"),
        pytest.param(pod(limits(vram="-1Gi")), "MalformedQuantity", "negative", id="negative"),
        pytest.param(pod(limits(cards="many")), "MalformedQuantity", "cards", id="no-number"),
        pytest.param(pod(limits(vram="9" * 70)), "MalformedQuantity", "16Gi", id="too-many-digits"),
        pytest.param(pod(limits(vram="1Ei")), "MalformedQuantity", "more than memory", id="beyond-any-memory"),
        pytest.param(pod(limits(vram="1e999")), "MalformedQuantity", "more than memory", id="an-exponent"),
        pytest.param(pod(limits(fp16_tflops="1k5")), "MalformedQuantity", "fp16-tflops", id="a-total"),
        # Contradictory requests.
        pytest.param(pod(limits(vram="16Gi", cards="0")), "ZeroCards", "at least 1", id="no-cards"),
        pytest.param(pod(limits(vram="0")), "ZeroAmount", "at least 1", id="no-memory"),
        pytest.param(pod(limits(vram="16Gi", cards="2000")), "TooManyCards", "split", id="more-cards-than-a-node"),
        pytest.param(
            pod(limits(vram="16Gi", cards="2"), annotations=annotated(sharing="shared")),
            "ShareOfSeveralCards",
            "always whole",
            id="shares-of-several-cards",
        ),
        pytest.param(pod(limits(acu="40")), "MissingVram", "memory quota", id="a-share-without-memory"),
        pytest.param(
            pod(limits(fp16_tflops="100", int8_tops="100")), "ContradictoryTotals", "one of them", id="two-totals"
        ),
        pytest.param(
            pod(limits(fp16_tflops="100", cards="2")), "ContradictoryTotals", "by itself", id="a-total-and-a-count"
        ),
        pytest.param(
            pod(limits(vram="16Gi", cards="2", total_cards="1")),
            "ContradictoryTotals",
            "leave it out",
            id="undercharged",
        ),
        pytest.param(
            pod(limits(fp16_tflops="312", total_acu="1")),
            "ContradictoryTotals",
            "leave it out",
            id="undercharged-by-total",
        ),
        pytest.param(
            pod(limits(total_acu="100", total_vram="1Gi")), "ContradictoryTotals", "HCS writes it", id="charged-twice"
        ),
        pytest.param(pod(limits(total_vram="16Gi")), "NothingAsked", "charged totals", id="a-charge-without-request"),
        pytest.param(
            pod(limits(vram="16Gi"), requests=limits(vram="1Gi")),
            "RequestsDifferFromLimits",
            "under limits",
            id="less-requested-than-used",
        ),
        pytest.param(
            pod(limits(vram="16Gi"), requests=limits(vram="lots")),
            "RequestsDifferFromLimits",
            "'lots'",
            id="garbage-in-requests",
        ),
        pytest.param(
            pod(annotations=annotated(vendors="ascend", models="H100-SXM5")),
            "ContradictoryVendor",
            "nvidia",
            id="a-model-of-another-vendor",
        ),
        pytest.param(
            pod(limits(vram="300Gi"), annotations=annotated(vendors="ascend")),
            "VramBeyondAnyCard",
            "ascend/",
            id="a-vendor-without-such-a-card",
        ),
        pytest.param(pod(annotations=annotated(vendors="nvidea")), "UnknownVendor", "nvidia", id="no-such-vendor"),
        pytest.param(pod(annotations=annotated(models="H1000")), "UnknownModel", "H100", id="no-such-model"),
        pytest.param(
            pod(annotations=annotated(workload="games")), "UnknownValue", "pretrain", id="no-such-workload-class"
        ),
        pytest.param(pod(annotations=annotated(portable="yes")), "UnknownValue", "true, false", id="not-true-or-false"),
        pytest.param(pod(annotations=annotated(gang="a", gang_size="many")), "GangSize", "number", id="a-gang-of-many"),
        # Annotations: unknown, forged, oversized.
        pytest.param(pod(annotations=annotated(vendor="nvidia")), "UnknownAnnotation", "vendors?", id="a-misspelling"),
        pytest.param(pod(annotations=annotated(frobnicate="1")), "UnknownAnnotation", "known ones", id="an-invention"),
        pytest.param(
            pod(annotations={"ai.compute/entrypoint.acme": "run"}), "UnknownVendor", "acme", id="entry-point-of-nobody"
        ),
        *(
            pytest.param(pod(annotations={key: "{}"}), "ReservedAnnotation", "HCS alone", id=f"forged-{key[11:]}")
            for key in sorted(names.OUR_ANNOTATIONS)
        ),
        pytest.param(
            pod({}, annotations={names.ALLOCATION: "{}"}), "ReservedAnnotation", "remove", id="forged-and-nothing-asked"
        ),
        pytest.param(pod(annotations=annotated(runtime="x" * 1025)), "OversizedAnnotation", "1024", id="a-long-value"),
        pytest.param(
            pod(annotations={f"ai.compute/{'x' * 400}": "1"}),
            "OversizedAnnotation",
            "name",
            id="a-long-annotation-name",
        ),
        pytest.param(
            pod(annotations=annotated(vendors=",".join(["nvidea"] * 33))),
            "OversizedAnnotation",
            "33 words",
            id="many-words",
        ),
        pytest.param(
            pod(annotations={f"ai.compute/x{i}": "" for i in range(65)}),
            "TooManyAnnotations",
            "64",
            id="many-annotations",
        ),
        pytest.param(
            pod({f"ai.compute/x{i}": "1" for i in range(200)}), "TooManyResources", "256", id="many-resources"
        ),
        pytest.param(pod({f"ai.compute/{'x' * 400}": "1"}), "UnknownResource", "name of", id="a-long-resource-name"),
        pytest.param(pod(limits(vrm="16Gi")), "UnknownResource", "vram?", id="a-misspelt-resource"),
        pytest.param(
            pod({}, annotations=annotated(vendors="nvidia")),
            "NothingAsked",
            "no container",
            id="choices-without-request",
        ),
        pytest.param(
            pod(annotations=annotated(checkpoint="/data/../../etc")), "BadCheckpointPath", "without ..", id="a-way-out"
        ),
        pytest.param(
            pod(annotations=annotated(code_image="code:1 --privileged")), "BadImage", "reference", id="no-image"
        ),
        # The rest of the pod.
        pytest.param(pod(nodeName="node-1"), "PresetNode", "nodeSelector", id="placed-beforehand"),
        pytest.param(pod(schedulerName="other"), "UnlistedScheduler", "hcs-scheduler", id="a-scheduler-without-us"),
        pytest.param(
            pod(initContainers=[{"name": "warm", "resources": {"limits": limits(vram="100Gi")}}]),
            "InitContainerCompute",
            "as much there",
            id="compute-for-an-init-container",
        ),
        pytest.param(
            pod(annotations={names.REQUIRED_PLUGINS: "hcs"}), "MalformedPluginList", '["hcs"]', id="plugins-not-a-list"
        ),
        pytest.param(
            pod(annotations={names.REQUIRED_PLUGINS: "[" * 256}),
            "MalformedPluginList",
            "list",
            id="plugins-deeply-nested",
        ),
        pytest.param(
            pod(annotations={f"{names.REQUIRED_PLUGINS}/container.c{i}": "[]" for i in range(65)}),
            "TooManyAnnotations",
            "64",
            id="many-plugin-lists",
        ),
        pytest.param(
            pod(annotations=annotated(code_image="code:1"), volumes=[{"name": "hcs-code", "emptyDir": {}}]),
            "ReservedVolume",
            "hcs-code",
            id="our-volume-taken",
        ),
        pytest.param(
            pod(
                annotations=annotated(code_image="code:1"),
                container={"volumeMounts": [{"name": "mine", "mountPath": "/workspace/code/"}]},
            ),
            "ReservedMount",
            "mine",
            id="our-mount-taken",
        ),
        pytest.param({"spec": {"containers": "none"}}, "MalformedPod", "containers", id="not-a-pod-at-all"),
        pytest.param(pod({names.VRAM: True}), "MalformedPod", "bool", id="a-quantity-that-is-neither"),
    ],
)
def test_nonsense_is_refused_with_a_sentence(raw: dict[str, Any], reason: str, says: str) -> None:
    found = refused(raw)
    assert reason in found
    assert says in found[reason]


def test_everything_wrong_is_said_at_once() -> None:
    found = refused(
        pod(limits(vram="lots"), annotations={**annotated(vendor="nvidia"), names.ALLOCATION: "{}"}, nodeName="node-1")
    )
    assert set(found) == {"MalformedQuantity", "UnknownAnnotation", "ReservedAnnotation", "PresetNode"}


def test_what_is_too_much_is_not_read_at_all() -> None:
    """Else each of the words would be compared with each name we know."""
    many = ",".join(f"vendor{i}" for i in range(100_000))
    assert set(refused(pod(annotations=annotated(vendors=many, models=many)))) == {"OversizedAnnotation"}


# Properties. The strategies make requests that are mostly sensible, some not; a refusal is an answer too.

_amounts = st.sampled_from(["0", "1", "2", "8", "40", "100", "16Gi", "24Gi", "1.5Gi", "80G", "x", "-1", 4, 2.0])
_resources = st.dictionaries(
    st.sampled_from([*names.REQUESTED, *names.CHARGED, "cpu", "memory", "nvidia.com/gpu"]), _amounts, max_size=3
)
_annotations = st.dictionaries(
    st.sampled_from([*sorted(names.USER_ANNOTATIONS), names.ALLOCATION, names.REQUIRED_PLUGINS, "team"]),
    st.sampled_from(
        [
            "nvidia",
            "ascend,nvidia",
            "exclusive",
            "shared",
            "auto",
            "true",
            "decode",
            "pytorch-2.6",
            "code:1",
            '["audit"]',
        ]
    ),
    max_size=3,
)
_asking = st.sampled_from(
    [
        {names.VRAM: "16Gi"},
        {names.VRAM: "16Gi", names.ACU: "20"},
        {names.VRAM: "40Gi", names.CARDS: "2"},
        {names.CARDS: "8"},
        {names.FP16_TFLOPS: "500"},
        {names.INT8_TOPS: "1000", names.VRAM: "24Gi"},
        {names.TOTAL_ACU: "150"},
        {names.TOTAL_ACU: "150", names.VRAM: "24Gi"},
    ]
)
_sensible = st.fixed_dictionaries(
    {},
    optional={
        names.VENDORS: st.sampled_from(["nvidia", "nvidia, ascend"]),
        names.SHARING: st.just("exclusive"),
        names.WORKLOAD: st.sampled_from(["gemm", "pretrain"]),
        names.SUBSTITUTION: st.sampled_from(["never", "ask", "auto"]),
        names.CODE_IMAGE: st.just("code:1"),
        names.CHECKPOINT: st.just("/data/checkpoints"),
        names.REQUIRED_PLUGINS: st.sampled_from(['["audit"]', "[]", "[10-hcs]"]),
        "team": st.text(string.printable, max_size=5),
    },
)


@st.composite
def _pods(draw: st.DrawFn, resources: Any, annotations: Any) -> dict[str, Any]:
    containers = []
    for index in range(draw(st.integers(1, 3))):
        kinds = draw(
            st.fixed_dictionaries({}, optional={"limits": resources, "requests": resources})
            | resources.map(lambda amounts: {"limits": amounts, "requests": amounts})
        )
        containers.append({"name": f"c{index}", "image": "i", "resources": kinds})
    raw = pod(annotations=draw(st.none() | annotations))
    raw["spec"]["containers"] = containers
    for field in draw(st.sets(st.sampled_from(["tolerations", "schedulerName"]))):
        del raw["spec"][field]
    return raw


def outcome(raw: dict[str, Any]) -> dict[str, Any] | None:
    try:
        return mutate(raw, CATALOGUE, SITE)
    except RefusedError:
        return None


def hold(raw: dict[str, Any]) -> dict[str, Any] | None:
    """What must hold of any pod; the changed pod when it was admitted."""
    changed = outcome(raw)
    if changed is None:
        return None
    assert mutate(changed, CATALOGUE, SITE) == changed, "a second call changes nothing"
    patch = msgspec.json.decode(msgspec.json.encode(difference(raw, changed)))
    assert jsonpatch.apply_patch(raw, patch) == changed, "the patch that travels does the whole of it"
    request = read_request(msgspec.convert(raw, Pod))
    assert read_request(msgspec.convert(changed, Pod)) == request, "the totals do not change what is asked"
    if request is None:
        assert changed == raw
    return changed


@given(_pods(_resources, _annotations))
def test_any_pod_is_admitted_the_same_twice_or_refused(raw: dict[str, Any]) -> None:
    hold(raw)


@given(_pods(_asking, _sensible))
def test_a_sensible_pod_is_admitted_the_same_twice(raw: dict[str, Any]) -> None:
    hold(raw)


@given(_asking, _sensible)
def test_a_sensible_request_of_one_container_is_admitted(limits: dict[str, str], annotations: dict[str, str]) -> None:
    changed = hold(pod(limits, annotations=annotations))
    assert changed is not None
    assert changed["spec"]["schedulerName"] == names.SCHEDULER


@given(
    _pods(
        st.dictionaries(st.sampled_from(["cpu", "memory", "nvidia.com/gpu", "ai.computer/vram"]), _amounts),
        st.dictionaries(st.text(string.ascii_lowercase + "./", max_size=12), st.text(max_size=8)),
    )
)
def test_a_pod_that_asks_nothing_is_left_alone(raw: dict[str, Any]) -> None:
    assert mutate(raw, CATALOGUE, SITE) == raw
