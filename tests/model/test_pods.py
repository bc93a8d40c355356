"""A pod is read from the API's JSON as far as HCS looks at it."""

import msgspec
import pytest

from hcs.model.pods import ObjectMeta, OwnerReference, Pod, PodStatus

WIRE = b"""{"apiVersion": "v1", "kind": "Pod",
 "metadata": {"name": "train", "namespace": "lab", "uid": "u", "managedFields": [{"manager": "kubectl"}],
              "ownerReferences": [{"kind": "Note", "name": "n", "uid": "1"},
                                  {"kind": "Job", "name": "j", "uid": "2", "controller": true}]},
 "spec": {"containers": [{"name": "main", "image": "i", "resources": {"limits": {"ai.compute/cards": 1}}}],
          "dnsPolicy": "ClusterFirst"},
 "status": {"phase": "Running", "hostIP": "10.0.0.1"}}"""


def test_what_we_do_not_use_is_skipped():
    pod = msgspec.json.decode(WIRE, type=Pod)
    assert pod.key == "lab/train"
    assert pod.annotations == {}
    assert pod.spec.containers[0].resources.limits == {"ai.compute/cards": 1}
    assert pod.controller == OwnerReference(kind="Job", name="j", uid="2", controller=True)


def test_a_pod_without_a_namespace_is_in_default():
    assert Pod(metadata=ObjectMeta(name="p")).key == "default/p"
    assert Pod().controller is None


@pytest.mark.parametrize(
    ("phase", "finished"), [("Pending", False), ("Running", False), ("Succeeded", True), ("Failed", True)]
)
def test_a_finished_pod_holds_nothing(phase, finished):
    assert Pod(status=PodStatus(phase=phase)).finished is finished
