"""Where a replacement pod continues: read from the quarantine that cost its predecessor its card.

The healer notes in the quarantine who was evicted, what it ran on, and where the newest complete checkpoint lies. The
replacement is another pod with the same controller. Its note says which vendor can read the checkpoint when it is
placed, and where the work continues when it is bound.
"""

from collections.abc import Iterable

from hcs.model.devices import EvictedOwner, NodeInventory
from hcs.model.pods import Pod


def note_for(pod: Pod, nodes: Iterable[NodeInventory]) -> EvictedOwner | None:
    """The newest open note for this pod's controller, or None. A pod is never the replacement of itself."""
    owner = pod.controller
    if owner is None:
        return None
    newest: tuple[str, EvictedOwner] | None = None
    for node in nodes:
        for entry in node.quarantine:
            for note in entry.evicted:
                since = note.since or entry.since
                if _concerns(note, pod, owner.uid) and (newest is None or since >= newest[0]):
                    newest = (since, note)
    return newest[1] if newest else None


def _concerns(note: EvictedOwner, pod: Pod, owner: str) -> bool:
    return (
        note.owner_uid == owner
        and note.namespace == (pod.metadata.namespace or "default")
        and not note.replaced_by
        and (note.pod_uid != pod.metadata.uid if note.pod_uid else note.pod != pod.metadata.name)
    )
