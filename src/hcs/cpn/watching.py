"""What is seen of our Jobs on one cluster: the Jobs and their pods, by label, as they change.

Only objects with the queue's label are watched, so a cluster full of other work costs nothing. A change wakes the entry
it belongs to at once; nothing here decides anything.
"""

import asyncio
from collections.abc import Callable, Sequence

from hcs.cpn.clusterjobs import ClusterJobs, belongs
from hcs.cpn.collect.cards import CardReading
from hcs.cpn.jobmanifest import Overlay
from hcs.cpn.views import Cluster
from hcs.kube import resources
from hcs.kube.informer import Informer
from hcs.wide.entries import LABEL_ENTRY, LABEL_QUEUE, Placement
from hcs.wide.jobs import Milliseconds


class Station:
    """A cluster as the dispatcher uses it: what it sees there, and what it may do there."""

    def __init__(
        self,
        cluster: Cluster,
        queue: str,
        *,
        changed: Callable[[str], None],
        overlay: Overlay | None = None,
        blobs: str = "",
        lost_after: Milliseconds | None = None,
    ) -> None:
        """Prepare; nothing is read before :meth:`run`.

        Args:
            cluster: the live cluster.
            queue: the id of the queue.
            changed: called with the id of an entry of which something changed.
            overlay: what the cluster needs on every pod.
            blobs: address of its blob store; empty: none.
            lost_after: after how long out of reach what never ran there is planned anew; None: never.
        """
        self.cluster, self.name = cluster, cluster.name
        self.overlay, self.blobs, self.lost_after = overlay or Overlay(), blobs, lost_after
        self.client = cluster.client
        self.actions = ClusterJobs(self.client, queue)
        self.jobs = Informer(self.client, resources.Job, labels={LABEL_QUEUE: queue})
        self.pods = Informer(self.client, resources.Pod, labels={LABEL_QUEUE: queue})

        def told(_: object, item: resources.Job | resources.Pod, __: object) -> None:
            if entry := (item.metadata.labels or {}).get(LABEL_ENTRY):
                changed(entry)

        self.jobs.on_change(told)
        self.pods.on_change(told)

    @property
    def built_from(self) -> tuple[Overlay, str, Milliseconds | None]:
        """What it was told about the cluster; another one is needed when that changes."""
        return self.overlay, self.blobs, self.lost_after

    @property
    def synced(self) -> bool:
        """Whether everything there has been seen once."""
        return self.jobs.synced.is_set() and self.pods.synced.is_set()

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.jobs.run())
            group.create_task(self.pods.run())

    def readings(self) -> tuple[Sequence[CardReading], Milliseconds]:
        """What exporters said of single cards, and how long ago they were asked; nothing without metrics."""
        return getattr(self.cluster, "cards", ()), getattr(self.cluster, "asked_ago", 0)

    def job(self, placement: Placement, namespace: str) -> resources.Job | None:
        """The placement's Job as it was last seen."""
        return self.jobs.get(placement.job, namespace)

    def pods_of(self, uid: str) -> list[resources.Pod]:
        """Pods of a Job that are still there, finished ones too."""
        return [pod for pod in self.pods.values() if belongs(pod, uid)]
