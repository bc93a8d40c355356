"""An allocation survives the wire, and only the one we bound a pod with counts."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcs.model import names
from hcs.model.allocations import (
    MAX_ENCODED,
    Allocation,
    AllocationError,
    CoreGrant,
    Exchange,
    Grant,
    allocation_of,
    decode_allocation,
    encode_allocation,
)
from hcs.model.pods import ObjectMeta, Pod, PodSpec
from hcs.model.quantities import GIB, MAX_AMOUNT

OURS = Allocation(
    version="v1",
    pod="uid-1",
    node="gpu-1",
    vendor="ascend",
    model="Ascend910B2",
    containers={"train": (Grant("davinci0", 16 * GIB, 30_000), Grant("davinci1", 16 * GIB, 30_000))},
    exclusive=True,
    workload="pretrain",
    runtime="pytorch-2.6",
    exchange=Exchange("nvidia/A100-SXM4-80GB", "ascend/Ascend910B2", "pretrain", 100_000, 78_960, "benchmark"),
)


def bound(allocation: str, *, uid: str = "uid-1", node: str | None = "gpu-1", scheduler: str = names.SCHEDULER) -> Pod:
    return Pod(
        metadata=ObjectMeta(name="p", uid=uid, annotations={names.ALLOCATION: allocation}),
        spec=PodSpec(nodeName=node, schedulerName=scheduler),
    )


def forge(**changes: object) -> str:
    """The wire form of OURS with some fields changed, past all checks; None leaves a field out."""
    fields = {**msgspec.json.decode(msgspec.json.encode(OURS)), **changes}
    return msgspec.json.encode({key: value for key, value in fields.items() if value is not None}).decode()


amounts = st.integers(0, MAX_AMOUNT)
words = st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1, max_size=12)
grants = st.lists(st.builds(Grant, words, amounts, amounts), min_size=1, max_size=4, unique_by=lambda g: g.device)
allocations = st.builds(
    Allocation,
    version=st.just("v1"),
    pod=words,
    node=words,
    vendor=words,
    model=words,
    containers=st.dictionaries(words, grants.map(tuple), min_size=1, max_size=3),
    exclusive=st.booleans(),
)


@given(allocations)
def test_what_is_written_is_read_back(allocation):
    assert decode_allocation(encode_allocation(allocation)) == allocation


def test_the_wire_form_is_the_frozen_one():
    assert msgspec.json.decode(encode_allocation(OURS)) == {
        "version": "v1",
        "pod": "uid-1",
        "node": "gpu-1",
        "vendor": "ascend",
        "model": "Ascend910B2",
        "containers": {
            "train": [
                {"device": "davinci0", "bytes": 16 * GIB, "milliacu": 30_000},
                {"device": "davinci1", "bytes": 16 * GIB, "milliacu": 30_000},
            ]
        },
        "exclusive": True,
        "workload": "pretrain",
        "runtime": "pytorch-2.6",
        "exchange": {
            "wanted": "nvidia/A100-SXM4-80GB",
            "got": "ascend/Ascend910B2",
            "workload": "pretrain",
            "wantedMilliacu": 100_000,
            "gotMilliacu": 78_960,
            "source": "benchmark",
        },
    }
    assert OURS.devices() == {"davinci0", "davinci1"}


def test_fields_of_a_later_version_are_skipped():
    assert decode_allocation(forge(later={"deep": [1]})) == OURS


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("no json", "cannot read", id="not-json"),
        pytest.param("[]", "cannot read", id="not-an-object"),
        pytest.param(forge(version="v2"), "version 'v2'", id="another-version"),
        pytest.param(forge(pod=""), "names its pod's UID", id="no-uid"),
        pytest.param(forge(node=None), "cannot read", id="no-node-at-all"),
        pytest.param(forge(containers={}), "at least one container", id="no-container"),
        pytest.param(forge(containers={"c": []}), "no grant", id="no-grant"),
        pytest.param(
            forge(containers={"c": [{"device": "d", "bytes": 1, "milliacu": 1}] * 2}), "twice", id="a-device-twice"
        ),
        pytest.param(
            forge(containers={"c": [{"device": "d", "bytes": -1, "milliacu": 1}]}), "negative", id="negative-bytes"
        ),
        pytest.param(
            forge(containers={"c": [{"device": "d", "bytes": 1, "milliacu": -1}]}), "negative", id="negative-acu"
        ),
        pytest.param(
            forge(containers={"c": [{"device": "d", "bytes": 1 << 63, "milliacu": 1}]}), "above", id="past-64-bits"
        ),
        pytest.param(
            forge(containers={"c": [{"device": "", "bytes": 1, "milliacu": 1}]}), "without a device", id="no-device"
        ),
        pytest.param(forge(runtime="x" * MAX_ENCODED), "over the limit", id="oversized"),
        pytest.param(forge(runtime="卡" * (MAX_ENCODED // 2)), "over the limit", id="oversized-in-bytes-only"),
        pytest.param("[" * 4000, "cannot read", id="deeply-nested"),
        pytest.param(
            forge()[:-1] + ',"x":' + "[" * 3500 + "]" * 3500 + "}", "cannot read", id="deeply-nested-in-a-skipped-field"
        ),
        pytest.param("\ud800", "cannot read", id="half-a-character"),
    ],
)
def test_an_allocation_that_cannot_be_used_says_why(text, says):
    with pytest.raises(AllocationError) as caught:
        decode_allocation(text)
    assert says in str(caught.value)
    assert allocation_of(bound(text)) is None, "and it has no effect on a pod"


def test_one_that_would_block_later_updates_is_never_written():
    many = {"c": tuple(Grant(f"device-{index:04}", GIB, 1) for index in range(300))}
    with pytest.raises(AllocationError, match="over the limit"):
        encode_allocation(msgspec.structs.replace(OURS, containers=many))


def test_the_one_we_bound_with_counts():
    assert allocation_of(bound(encode_allocation(OURS))) == OURS


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(bound(encode_allocation(OURS), uid="uid-2"), id="copied-from-another-pod"),
        pytest.param(bound(encode_allocation(OURS), node="gpu-2"), id="of-another-node"),
        pytest.param(bound(encode_allocation(OURS), node=None), id="written-before-binding"),
        pytest.param(bound(encode_allocation(OURS), scheduler="default-scheduler"), id="bound-by-another-scheduler"),
        pytest.param(Pod(spec=PodSpec(nodeName="gpu-1", schedulerName=names.SCHEDULER)), id="none"),
    ],
)
def test_a_forged_one_has_no_effect(pod):
    assert allocation_of(pod) is None


def test_an_init_container_has_the_grants_of_the_main_one_it_waits_for() -> None:
    shared = msgspec.structs.replace(OURS, reuses={"setup": "train"})
    assert decode_allocation(encode_allocation(shared)) == shared
    assert shared.grants("setup") == shared.grants("train") == OURS.containers["train"]
    assert shared.grants("logs") == ()
    assert shared.devices() == OURS.devices()


@pytest.mark.parametrize("reuses", [{"setup": "nobody"}, {"train": "train"}, {"": "train"}])
def test_a_reuse_of_nothing_is_not_read(reuses: dict[str, str]) -> None:
    with pytest.raises(AllocationError, match="reuses the grants"):
        decode_allocation(forge(reuses=reuses))


SPIKES = msgspec.structs.replace(
    OURS,
    containers={},
    exclusive=False,
    exchange=None,
    capacities={"snn.ai.compute/cores": 9},
    cores={"train": (CoreGrant("snn.ai.compute/cores", "b0", 9, 3, 3, x=4),)},
)


def test_a_pod_that_takes_spikes_and_no_card_has_a_record() -> None:
    assert decode_allocation(encode_allocation(SPIKES)) == SPIKES
    assert SPIKES.devices() == frozenset()
    assert allocation_of(bound(encode_allocation(SPIKES))) == SPIKES


@pytest.mark.parametrize(
    "changes",
    [
        {"capacities": {}, "cores": {}},
        {"capacities": {"snn.ai.compute/cores": -1}},
        {"capacities": {"snn.ai.compute/ksps": 9}},
        {"cores": {"train": (CoreGrant("snn.ai.compute/cores", "b0", 10, 3, 3),)}},
        {"cores": {"train": (CoreGrant("snn.ai.compute/cores", "", 9, 3, 3),)}},
        {"cores": {"train": (CoreGrant("snn.ai.compute/cores", "b0", 9, 3, 3, x=-1),)}},
        {"cores": {"train": (CoreGrant("snn.ai.compute/cores", "b0", 9, 3, 3, y=1 << 40),)}},
    ],
)
def test_spikes_that_make_no_sense_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(AllocationError):
        encode_allocation(msgspec.structs.replace(SPIKES, **changes))
