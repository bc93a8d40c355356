"""The replacement of an evicted pod finds its note by its controller."""

import msgspec

from hcs.model.devices import EvictedOwner, NodeInventory, Quarantine
from hcs.model.pods import ObjectMeta, OwnerReference, Pod
from hcs.router.resumption import note_for


def pod(name: str = "train-2", *, owner: str = "job-1", controller: bool = True, namespace: str = "default") -> Pod:
    owners = [OwnerReference("Job", "train", owner, controller)]
    return Pod(ObjectMeta(name, namespace=namespace, uid=name, ownerReferences=owners))


def node(name: str, since: str, *notes: EvictedOwner) -> NodeInventory:
    return NodeInventory(name, quarantine=(Quarantine("card-0", "Xid79", since=since, evicted=notes),))


def note(step: int, *, owner: str = "job-1", namespace: str = "default", lost: str = "train-1") -> EvictedOwner:
    return EvictedOwner(owner, namespace, lost, "nvidia", f"file:///ckpt/{step}")


def test_the_newest_note_of_the_controller_counts() -> None:
    nodes = [
        node("n1", "2026-03-01T00:00:02Z", note(200)),
        node("n2", "2026-03-01T00:00:01Z", note(100), note(999, owner="job-2")),
    ]
    found = note_for(pod(), nodes)
    assert found is not None
    assert found.resume_from == "file:///ckpt/200"


def test_other_controllers_namespaces_and_the_lost_pod_itself_find_nothing() -> None:
    nodes = [node("n1", "2026-03-01T00:00:02Z", note(200))]
    assert note_for(pod(owner="job-2"), nodes) is None
    assert note_for(pod(controller=False), nodes) is None
    assert note_for(pod(namespace="other"), nodes) is None
    assert note_for(pod("train-1"), nodes) is None
    assert note_for(Pod(ObjectMeta("alone")), nodes) is None


def test_a_note_that_was_taken_up_tells_nobody_else() -> None:
    taken = msgspec.structs.replace(note(200), replaced_by="train-9")
    assert note_for(pod(), [node("n1", "2026-03-01T00:00:02Z", taken)]) is None


def test_a_replacement_of_the_same_name_is_another_pod() -> None:
    lost = msgspec.structs.replace(note(200, lost="train-2"), pod_uid="another-uid")
    assert note_for(pod("train-2"), [node("n1", "2026-03-01T00:00:02Z", lost)]) == lost
