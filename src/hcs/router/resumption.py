"""Where a replacement pod continues: read from the quarantine that cost its predecessor its card.

The healer notes in the quarantine who was evicted and where the newest complete checkpoint lies. The replacement is
another pod with the same controller; it finds its note here at the moment it is bound.
"""

from collections.abc import Iterable

from hcs.model.devices import NodeInventory
from hcs.model.pods import Pod


def resume_from(pod: Pod, nodes: Iterable[NodeInventory]) -> str:
    """The newest note for this pod's controller, or the empty string."""
    owner = pod.controller
    if owner is None:
        return ""
    notes = [
        (entry.since, note.resume_from)
        for node in nodes
        for entry in node.quarantine
        for note in entry.evicted
        if note.owner_uid == owner.uid and note.namespace == (pod.metadata.namespace or "default") and note.resume_from
    ]
    return max(notes)[1] if notes else ""
