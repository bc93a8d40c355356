"""What pods ask for, as a table: each case is a pod and what is read from it, or why it is refused."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcs.model import names
from hcs.model.locality import FabricRule, Locality
from hcs.model.pods import Container, ObjectMeta, Pod, PodSpec, Resources
from hcs.model.quantities import GIB
from hcs.model.refusals import Refusal, RefusedError
from hcs.model.requests import (
    MAX_CARDS,
    ComputeRequest,
    ContainerRequest,
    Total,
    asks_for_compute,
    charges,
    check_annotations,
    read_request,
)

Asked = dict[str, str | int | float]


def pod(*containers: Asked, annotations: dict[str, str] | None = None, init: Asked | None = None) -> Pod:
    """A pod whose containers ``c0``, ``c1`` … ask for these amounts, in limits and requests alike; short names."""

    def build(name: str, asked: Asked) -> Container:
        amounts = {f"ai.compute/{key}" if "/" not in key and key != "cpu" else key: v for key, v in asked.items()}
        return Container(name=name, resources=Resources(limits=amounts, requests=amounts))

    return Pod(
        metadata=ObjectMeta(
            name="p", annotations={f"ai.compute/{key}": value for key, value in (annotations or {}).items()}
        ),
        spec=PodSpec(
            containers=[build(f"c{index}", asked) for index, asked in enumerate(containers)],
            initContainers=None if init is None else [build("setup", init)],
        ),
    )


def one(cards: int = 1, vram: int = 0, milliacu: int = 0, total: Total | None = None) -> tuple[ContainerRequest, ...]:
    return (ContainerRequest("c0", cards, vram, milliacu, total),)


@pytest.mark.parametrize(
    ("asking", "expected"),
    [
        pytest.param(pod({"vram": "16Gi"}), ComputeRequest(one(vram=16 * GIB)), id="a-share-of-a-card"),
        pytest.param(
            pod({"vram": "16Gi", "acu": "40"}), ComputeRequest(one(vram=16 * GIB, milliacu=40_000)), id="share-and-acu"
        ),
        pytest.param(pod({"cards": "1"}), ComputeRequest(one(), sharing="exclusive"), id="one-whole-card"),
        pytest.param(
            pod({"vram": "16Gi", "cards": 2}),
            ComputeRequest(one(cards=2, vram=16 * GIB), sharing="exclusive"),
            id="several-cards-are-whole",
        ),
        pytest.param(
            pod({"vram": "16Gi"}, annotations={"sharing": "exclusive"}),
            ComputeRequest(one(vram=16 * GIB), sharing="exclusive"),
            id="one-card-for-itself",
        ),
        pytest.param(
            pod({"acu": "40"}, annotations={"sharing": "exclusive"}),
            ComputeRequest(one(milliacu=40_000), sharing="exclusive"),
            id="a-whole-card-of-some-speed",
        ),
        pytest.param(
            pod({"fp16-tflops": "100"}),
            ComputeRequest(one(total=Total(names.FP16_TFLOPS, 100)), sharing="exclusive"),
            id="a-total",
        ),
        pytest.param(
            pod({"total-acu": "250", "vram": "32Gi"}),
            ComputeRequest(one(vram=32 * GIB, total=Total(names.TOTAL_ACU, 250))),
            id="a-total-with-memory-on-each-card",
        ),
        pytest.param(
            pod({"vram": "16Gi", "cards": "2", "acu": "40", "total-cards": "2", "total-vram": "32Gi", "total-acu": 80}),
            ComputeRequest(one(cards=2, vram=16 * GIB, milliacu=40_000), sharing="exclusive"),
            id="with-the-charges-admission-wrote",
        ),
        pytest.param(
            pod({"fp16-tflops": "100", "total-acu": "33"}),
            ComputeRequest(one(total=Total(names.FP16_TFLOPS, 100)), sharing="exclusive"),
            id="a-total-with-its-charge",
        ),
        pytest.param(
            pod({"vram": "16Gi"}, {"cpu": "2"}), ComputeRequest(one(vram=16 * GIB)), id="a-sidecar-asks-for-nothing"
        ),
        pytest.param(pod({"vram": 17179869184.0}), ComputeRequest(one(vram=16 * GIB)), id="a-number-with-a-point"),
        pytest.param(
            pod(
                {"vram": "16Gi"},
                annotations={
                    "vendors": "nvidia, ascend,nvidia",
                    "models": "T4",
                    "workload": "decode",
                    "substitution": "auto",
                    "portable": "true",
                    "runtime": "pytorch-2.6",
                    "code-image": "code:1",
                    "checkpoint": "file:///c",
                    "entrypoint.ascend": "torchrun a.py",
                },
            ),
            ComputeRequest(
                one(vram=16 * GIB),
                vendors=("nvidia", "ascend"),
                models=("T4",),
                workload="decode",
                substitution="auto",
                portable=True,
                runtime="pytorch-2.6",
                code_image="code:1",
                checkpoint="file:///c",
                entrypoints=(("ascend", "torchrun a.py"),),
            ),
            id="every-annotation",
        ),
        pytest.param(
            pod({"vram": "16Gi"}, annotations={"sharing-group": "cpn-a-0", "sharing": "shared"}),
            ComputeRequest(one(vram=16 * GIB), group="default/cpn-a-0"),
            id="a-sharing-group-is-one-of-its-namespace",
        ),
    ],
)
def test_a_request_is_read_exactly(asking, expected):
    assert read_request(asking) == expected


@pytest.mark.parametrize("asking", [pod({"cpu": "4"}), pod({}), pod(), pod({}, annotations={"vendors": "nvidia"})])
def test_a_pod_that_asks_for_nothing_of_ours_is_left_alone(asking):
    assert not asks_for_compute(asking)
    assert read_request(asking) is None


@pytest.mark.parametrize(
    ("asking", "reason", "says"),
    [
        pytest.param(pod({"vram": "16GB"}), "MalformedQuantity", "512Mi or 16Gi", id="memory-unit"),
        pytest.param(pod({"vram": "-1Gi"}), "MalformedQuantity", "negative", id="negative-memory"),
        pytest.param(pod({"cards": "1.5"}), "MalformedQuantity", "not whole", id="half-a-card"),
        pytest.param(pod({"cards": float("inf")}), "MalformedQuantity", "cannot read", id="endless-cards"),
        pytest.param(pod({"vram": "2Ei"}), "MalformedQuantity", "limit", id="oversized-memory"),
        pytest.param(pod({"acu": "40%"}), "MalformedQuantity", "100", id="acu-in-percent"),
        pytest.param(pod({"vrm": "16Gi"}), "UnknownResource", "did you mean ai.compute/vram?", id="typo"),
        pytest.param(pod({"bananas": "1"}), "UnknownResource", "known ones are", id="nothing-like-it"),
        pytest.param(pod({"cards": "0"}), "ZeroCards", "at least 1", id="no-cards"),
        pytest.param(pod({"vram": "0"}), "ZeroAmount", "at least 1", id="no-memory"),
        pytest.param(pod({"fp16-tflops": "0"}), "ZeroAmount", "at least 1", id="no-compute"),
        pytest.param(pod({"cards": MAX_CARDS + 1}), "TooManyCards", "split the work", id="more-than-any-node"),
        pytest.param(
            pod({"vram": "1Gi", "cards": 2}, annotations={"sharing": "shared"}),
            "ShareOfSeveralCards",
            "always whole",
            id="shares-of-several",
        ),
        pytest.param(pod({"acu": "40"}), "MissingVram", "memory quota", id="a-share-without-a-quota"),
        pytest.param(
            pod({"cards": 1}, annotations={"sharing": "shared"}),
            "MissingVram",
            "memory quota",
            id="shared",
        ),
        pytest.param(pod({"total-cards": 2}), "NothingAsked", "only charged totals", id="charges-alone"),
        pytest.param(
            pod({"fp16-tflops": 100, "int8-tops": 100}), "ContradictoryTotals", "keep one", id="two-totals-at-once"
        ),
        pytest.param(
            pod({"fp16-tflops": 100, "cards": 2}), "ContradictoryTotals", "decides the cards", id="total-and-cards"
        ),
        pytest.param(
            pod({"vram": "16Gi", "cards": 2, "total-vram": "16Gi"}),
            "ContradictoryTotals",
            "(32Gi)",
            id="charged-less-memory-than-asked",
        ),
        pytest.param(
            pod({"vram": "1Gi", "acu": 40, "cards": 2, "total-acu": 40}),
            "ContradictoryTotals",
            "(80)",
            id="charged-less-compute-than-asked",
        ),
        pytest.param(
            pod({"vram": "1Gi"}, {"cards": 2}), "MixedSharing", "sharing: exclusive", id="a-share-beside-whole-cards"
        ),
        pytest.param(
            pod({"cards": 1}, annotations={"sharing-group": "a"}),
            "GroupOfWholeCards",
            "asks for whole cards",
            id="a-sharing-group-of-whole-cards",
        ),
        pytest.param(
            pod({"vram": "1Gi"}, annotations={"sharing-group": "a", "gang": "g", "gang-size": "2"}),
            "GroupInGang",
            "members of a gang",
            id="a-sharing-group-in-a-gang",
        ),
        pytest.param(
            pod({"vram": "1Gi"}, annotations={"sharing-group": "a/b"}),
            "BadSharingGroup",
            "63 letters",
            id="a-bad-group",
        ),
        pytest.param(pod({"vram": "1Gi"}, init={"vram": "2Gi"}), "InitContainerCompute", "as much there", id="init"),
        pytest.param(
            pod({"vram": "1Gi"}, annotations={"vendors": "nvida"}), "UnknownVendor", "mean nvidia?", id="vendor-typo"
        ),
        pytest.param(
            pod({"vram": "1Gi"}, annotations={"vendors": "acme"}), "UnknownVendor", "known vendors are", id="vendor"
        ),
        pytest.param(
            pod({"vram": "1Gi"}, annotations={"workload": "dream"}), "UnknownValue", "gemm, pretrain", id="workload"
        ),
        pytest.param(pod({"vram": "1Gi"}, annotations={"sharing": "yes"}), "UnknownValue", "exclusive", id="sharing"),
        pytest.param(pod({"vram": "1Gi"}, annotations={"substitution": "yes"}), "UnknownValue", "auto", id="subst"),
        pytest.param(pod({"vram": "1Gi"}, annotations={"portable": "yes"}), "UnknownValue", "true", id="portable"),
        pytest.param(pod({"vram": "1Gi"}, annotations={"gang": "g"}), "IncompleteGang", "set both", id="gang"),
        pytest.param(pod({"vram": "1Gi"}, annotations={"numa": "0"}), "UnknownValue", "preferred", id="numa"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_sentence(asking, reason, says):
    with pytest.raises(RefusedError) as caught:
        read_request(asking)
    assert reason in [refusal.reason for refusal in caught.value.refusals]
    assert says in str(caught.value)


def test_all_mistakes_are_told_at_once_in_a_stable_order():
    wrong = pod({"vram": "many"}, {"cards": 0}, annotations={"vendors": "acme", "workload": "dream"})
    with pytest.raises(RefusedError) as caught:
        read_request(wrong)
    reasons = [refusal.reason for refusal in caught.value.refusals]
    assert reasons == sorted(reasons)
    assert set(reasons) == {"MalformedQuantity", "ZeroCards", "UnknownVendor", "UnknownValue"}


@pytest.mark.parametrize(
    ("key", "reason", "says"),
    [
        pytest.param("ai.compute/allocation", "ReservedAnnotation", "written by HCS alone", id="forged-allocation"),
        pytest.param("ai.compute/resume", "ReservedAnnotation", "remove it", id="forged-resume"),
        pytest.param("ai.compute/vendor", "UnknownAnnotation", "did you mean ai.compute/vendors?", id="typo"),
        pytest.param("ai.compute/banana", "UnknownAnnotation", "known ones are", id="nothing-like-it"),
        pytest.param("ai.compute/entrypoint.acme", "UnknownVendor", "no vendor 'acme'", id="entrypoint-of-nobody"),
    ],
)
def test_annotations_people_may_not_write_are_refused(key, reason, says):
    (refusal,) = check_annotations({key: "x", "unrelated/key": "y", "ai.compute/vendors": "nvidia"})
    assert (refusal.reason, says in refusal.message) == (reason, True)


def test_hcs_itself_may_write_its_own_annotations():
    assert check_annotations({names.ALLOCATION: "x", names.RESUME: "y"}, trusted=True) == []
    assert check_annotations({"ai.compute/entrypoint.ascend": "x", "ai.compute/sharing": "shared"}) == []


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (ContainerRequest("c", 1, 16 * GIB), {names.TOTAL_CARDS: 1, names.TOTAL_VRAM: 16 * GIB}),
        (
            ContainerRequest("c", 2, GIB, 40_000),
            {names.TOTAL_CARDS: 2, names.TOTAL_VRAM: 2 * GIB, names.TOTAL_ACU: 80},
        ),
        (ContainerRequest("c", 8), {names.TOTAL_CARDS: 8}),
    ],
)
def test_charges_count_what_is_really_asked(request_, expected):
    assert charges(request_) == expected


@given(cards=st.integers(1, MAX_CARDS), vram=st.integers(1, 1 << 40), acu=st.integers(0, 10_000))
def test_reading_again_what_admission_wrote_changes_nothing(cards, vram, acu):
    asked: Asked = {"cards": cards, "vram": vram} | ({"acu": acu} if acu else {})
    first = read_request(pod(asked))
    assert first is not None
    written = {**asked, **{key: str(amount) for key, amount in charges(first.containers[0]).items()}}
    assert read_request(pod(written)) == first


@given(st.dictionaries(st.sampled_from([*names.REQUESTED, *names.CHARGED, "ai.compute/x"]), st.text(max_size=12)))
def test_whatever_is_written_is_read_or_refused(asked):
    try:
        request = read_request(pod(dict(asked)))
    except RefusedError as error:
        refused = error.refusals
    else:
        refused = ()
        assert (request is None) == (not asked)
    assert all(isinstance(refusal, Refusal) and refusal.message for refusal in refused)


@pytest.mark.parametrize(
    ("main", "init", "reuses"),
    [
        pytest.param([{"vram": "8Gi"}], {"vram": "8Gi"}, "c0", id="as-much-as-the-main-container"),
        pytest.param([{"vram": "4Gi"}, {"vram": "16Gi"}], {"vram": "8Gi"}, "c1", id="the-first-that-has-enough"),
        pytest.param([{"cards": 4}], {"cards": 2}, "c0", id="fewer-whole-cards"),
        pytest.param([{"cards": 2, "vram": "40Gi"}], {"vram": "40Gi"}, "c0", id="a-share-of-whole-cards"),
        pytest.param([{"fp16-tflops": 100}], {"fp16-tflops": 50}, "c0", id="less-of-the-same-total"),
        pytest.param([{"vram": "8Gi"}], {"cpu": "1"}, None, id="one-that-asks-for-nothing-of-ours"),
        pytest.param([{"vram": "8Gi"}], {"vram": "9Gi"}, "", id="more-memory"),
        pytest.param([{"vram": "8Gi", "acu": "10"}], {"vram": "8Gi", "acu": "11"}, "", id="more-compute"),
        pytest.param([{"cards": 2}], {"cards": 3}, "", id="more-cards"),
        pytest.param([{"vram": "8Gi"}], {"cards": 1}, "", id="a-whole-card-beside-a-share"),
        pytest.param([{"vram": "4Gi"}, {"vram": "4Gi"}], {"vram": "8Gi"}, "", id="two-containers-are-not-one"),
        pytest.param([{"fp16-tflops": 100}], {"total-acu": 10}, "", id="another-total"),
        pytest.param([{}], {"vram": "1Gi"}, "", id="only-the-init-container"),
    ],
)
def test_an_init_container_uses_the_cards_of_a_main_one(main: list[Asked], init: Asked, reuses: str | None) -> None:
    asking = pod(*main, init=init)
    if reuses == "":
        with pytest.raises(RefusedError) as caught:
            read_request(asking)
        assert [refusal.reason for refusal in caught.value.refusals] == ["InitContainerCompute"]
        return
    request = read_request(asking)
    assert request is not None
    assert request.reuses == (() if reuses is None else (("setup", reuses),))
    assert len(request.containers) == len(main), "it adds nothing to what the pod holds"


def test_a_sidecar_is_no_init_container() -> None:
    asking = pod({"vram": "8Gi"}, init={"vram": "4Gi"})
    (setup,) = asking.spec.initContainers or ()
    sidecar = msgspec.structs.replace(setup, restartPolicy="Always")
    asking = msgspec.structs.replace(asking, spec=msgspec.structs.replace(asking.spec, initContainers=[sidecar]))
    with pytest.raises(RefusedError) as caught:
        read_request(asking)
    assert [refusal.reason for refusal in caught.value.refusals] == ["SidecarCompute"]


def test_rules_about_nearness_are_part_of_the_request() -> None:
    request = read_request(pod({"cards": 2}, annotations={"numa": "required", "fabric": "ib-a"}))
    assert request is not None
    assert request.locality == Locality(numa="required", fabric=FabricRule(("ib-a",)))


def test_a_gang_is_not_part_of_the_request_but_of_what_may_be_asked() -> None:
    """Requests that ask for the same are equal, whatever gang they are in: what is known about one serves the other."""
    one = read_request(pod({"cards": 1}, annotations={"gang": "a", "gang-size": "2"}))
    two = read_request(pod({"cards": 1}, annotations={"gang": "b", "gang-size": "3"}))
    assert one == two
