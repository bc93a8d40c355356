"""Three ways to say which pods start together, and what of them is refused."""

from typing import Any

import pytest

from hcs.model.gangs import MAX_MEMBERS, Membership, PodGroup, read_membership, read_pod_group
from hcs.model.pods import ObjectMeta, Pod, PodSpec
from hcs.model.refusals import RefusedError


def pod(annotations: dict[str, str] | None = None, labels: dict[str, str] | None = None, **spec: Any) -> Pod:
    return Pod(
        metadata=ObjectMeta(name="p", namespace="team", annotations=annotations, labels=labels), spec=PodSpec(**spec)
    )


def ours(name: str, size: str) -> dict[str, str]:
    return {"ai.compute/gang": name, "ai.compute/gang-size": size}


@pytest.mark.parametrize(
    ("asking", "expected"),
    [
        pytest.param(pod(), None, id="alone"),
        pytest.param(pod(ours("train", "8")), Membership("team", "train", "hcs", 8), id="our-annotations"),
        pytest.param(
            pod(labels={"scheduling.x-k8s.io/pod-group": "g"}),
            Membership("team", "g", "scheduler-plugins"),
            id="scheduler-plugins",
        ),
        pytest.param(
            pod(labels={"pod-group.scheduling.sigs.k8s.io": "g"}),
            Membership("team", "g", "scheduler-plugins"),
            id="its-older-label",
        ),
        pytest.param(
            pod(
                labels={
                    "pod-group.scheduling.sigs.k8s.io/name": "g",
                    "pod-group.scheduling.sigs.k8s.io/min-available": "5",
                }
            ),
            Membership("team", "g", "scheduler-plugins", 5),
            id="its-oldest-labels-say-the-size",
        ),
        pytest.param(pod({"scheduling.k8s.io/group-name": "g"}), Membership("team", "g", "volcano"), id="volcano"),
        pytest.param(
            pod({"scheduling.volcano.sh/group-name": "g", "scheduling.k8s.io/group-name": "g"}),
            Membership("team", "g", "volcano"),
            id="volcano-twice-the-same",
        ),
    ],
)
def test_membership_is_read_from_all_three(asking: Pod, expected: Membership | None) -> None:
    assert read_membership(asking) == expected


@pytest.mark.parametrize(
    ("asking", "reason", "says"),
    [
        pytest.param(pod({"ai.compute/gang": "g"}), "IncompleteGang", "gang-size", id="no-size"),
        pytest.param(pod({"ai.compute/gang-size": "4"}), "IncompleteGang", "ai.compute/gang ", id="no-name"),
        pytest.param(pod(ours("g", "0")), "GangSize", "from 1", id="nobody"),
        pytest.param(pod(ours("g", "many")), "GangSize", "many", id="no-number"),
        pytest.param(pod(ours("g", "9" * 5000)), "GangSize", str(MAX_MEMBERS), id="endless"),
        pytest.param(
            pod(ours("g", "4"), {"scheduling.x-k8s.io/pod-group": "h"}), "ContradictoryGang", "2 gangs", id="two-gangs"
        ),
        pytest.param(
            pod({"scheduling.volcano.sh/group-name": "g", "scheduling.k8s.io/group-name": "h"}),
            "ContradictoryGang",
            "h and g",
            id="two-volcano-groups",
        ),
        pytest.param(
            pod(schedulingGroup={"podGroupName": "g"}), "KubernetesPodGroup", "spec.schedulingGroup", id="kubernetes"
        ),
        pytest.param(pod(workloadRef={"name": "w"}), "KubernetesPodGroup", "spec.workloadRef", id="kubernetes-1.35"),
    ],
)
def test_what_is_no_gang_is_refused_with_a_sentence(asking: Pod, reason: str, says: str) -> None:
    with pytest.raises(RefusedError) as caught:
        read_membership(asking)
    assert [refusal.reason for refusal in caught.value.refusals] == [reason]
    assert says in str(caught.value)


def group(api: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": api, "kind": "PodGroup", "metadata": {"name": "g", "namespace": "team"}, "spec": spec}


def test_pod_groups_of_both_kinds_are_read_into_one_type() -> None:
    plugins = read_pod_group(group("scheduling.x-k8s.io/v1alpha1", minMember=4, scheduleTimeoutSeconds=30))
    assert plugins == PodGroup("team", "g", "scheduler-plugins", 4, 30)
    volcano = read_pod_group(
        group(
            "scheduling.volcano.sh/v1beta1",
            minMember=3,
            queue="q",
            priorityClassName="high",
            networkTopology={"mode": "soft"},
        )
    )
    assert volcano == PodGroup("team", "g", "volcano", 3, None, "high", "q")
    assert plugins.key == Membership("team", "g", "scheduler-plugins").key


@pytest.mark.parametrize(
    ("minimum", "tasks"),
    [
        pytest.param(4, (("ps", 1), ("worker", 3)), id="of-each-task-so-many"),
        pytest.param(3, (), id="more-than-must-start-count-for-nothing"),
    ],
)
def test_a_volcano_job_may_want_some_of_each_task(minimum: int, tasks: tuple[tuple[str, int], ...]) -> None:
    raw = group("scheduling.volcano.sh/v1beta1", minMember=minimum, minTaskMember={"worker": 3, "ps": 1})
    assert read_pod_group(raw).tasks == tasks


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (group("scheduling.k8s.io/v1alpha3", minMember=2), "KubernetesPodGroup"),
        (group("example.com/v1", minMember=2), "UnknownPodGroup"),
        (group("scheduling.x-k8s.io/v1alpha1", minMember=0), "GangSize"),
        (group("scheduling.x-k8s.io/v1alpha1", minMember="2"), "GangSize"),
        (group("scheduling.volcano.sh/v1beta1", minMember=2, networkTopology={"mode": "hard"}), "HardNetworkTopology"),
        (group("scheduling.volcano.sh/v1beta1", minMember=2, minTaskMember={"ps": "1"}), "GangSize"),
        (group("scheduling.volcano.sh/v1beta1", minMember=2, minTaskMember=3), "GangSize"),
        (group("scheduling.volcano.sh/v1beta1", minMember=2, subGroupPolicy=[{"name": "x"}]), "SubGroups"),
        ({}, "UnknownPodGroup"),
    ],
)
def test_a_demand_that_would_be_ignored_is_refused(raw: dict[str, Any], reason: str) -> None:
    with pytest.raises(RefusedError) as caught:
        read_pod_group(raw)
    assert caught.value.refusals[0].reason == reason
