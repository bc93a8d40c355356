"""Taking a Job back that never began, so that its entry may go elsewhere.

What is known of a cluster may be old: while it was silent a pod may have begun, or ended well. So every step here asks
the cluster itself, and what is asked of it holds only for the Job as it was read: it is suspended first, which fails if
anything about it has changed meanwhile, and deleted once it has no pods that could still end well.
"""

from typing import Literal

import msgspec

from hcs.cpn.clusterjobs import ClusterJobs
from hcs.cpn.endings import over
from hcs.kube import resources
from hcs.wide.entries import Entry

Standing = Literal["Gone", "Lingers", "Over", "Began", "Waits"]
"""``Gone``: nothing of it is left. ``Lingers``: its pods are. ``Over``: it has ended. ``Began``: it is not taken back,
for a pod of it runs or ran. ``Waits``: a request was sent, or something is under way; look again."""


class Found(msgspec.Struct, frozen=True):
    """What a cluster says of a Job now; ``job`` None where there is none, or another one under its name."""

    standing: Standing
    job: resources.Job | None
    pods: list[resources.Pod]


async def take_back(entry: Entry, actions: ClusterJobs) -> Found:
    """One step towards the end of an entry's Job.

    Raises:
        UnansweredError: try again.
        RejectedError: the cluster does not let us.
    """
    placement, namespace = entry.placement, entry.submission.namespace
    assert placement is not None
    job = await actions.get(placement.job, namespace)
    pods = await actions.pods(placement.uid, namespace, entry.id)
    if job is None or job.metadata.uid != placement.uid:
        return Found("Lingers" if any(not pod.finished for pod in pods) else "Gone", None, pods)
    if over(job) is not None:
        return Found("Over", job, pods)
    if job.metadata.deletionTimestamp is None:
        if not job.spec.get("suspend"):
            if any(pod.status.phase not in ("", "Pending") for pod in pods):
                return Found("Began", job, pods)
            await actions.suspend(job)
        elif all(pod.status.phase == "Failed" for pod in pods):
            await actions.delete(placement.job, namespace)
    return Found("Waits", job, pods)
