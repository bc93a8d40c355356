"""Requests of pods that are copies of each other, read once.

The pods of one Deployment or Job come one after the other and ask for the same. What tells them apart for a reader is
listed here in full; a test reads random pods with and without the memory and compares. Refusals are not remembered.
"""

from collections import OrderedDict
from typing import Final

import msgspec

from hcs.model import names
from hcs.model.pods import Pod
from hcs.model.requests import ComputeRequest
from hcs.router.spikes import asks_for_spikes, request_of

REMEMBERED: Final = 4096
_LABELS: Final = (*names.COSCHEDULING_LABELS, names.COSCHEDULING_SIZE)


class Readings:
    """Reads requests, and remembers the last few thousand."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        """Start with no memory."""
        self._known: OrderedDict[bytes, ComputeRequest] = OrderedDict()
        self._remembered = remembered

    def __len__(self) -> int:
        return len(self._known)

    def __call__(self, pod: Pod, domain: str) -> ComputeRequest | None:
        """What a pod asks for, as :func:`hcs.router.spikes.request_of`.

        Raises:
            RefusedError: it asks wrongly.
        """
        words = _words(pod, domain)
        request: ComputeRequest | None = self._known.get(words)
        if request is not None:
            self._known.move_to_end(words)
            return request
        request = request_of(pod, domain)
        if request is not None:
            self._known[words] = request
            if len(self._known) > self._remembered:
                self._known.popitem(last=False)
        return request


READ: Final = Readings()
"""The memory of this process."""


def _words(pod: Pod, domain: str) -> bytes:
    """Everything of a pod that its request, or a refusal of it, depends on."""
    spec, labels = pod.spec, pod.metadata.labels
    init = spec.initContainers or ()
    return msgspec.msgpack.encode(
        (
            domain,
            pod.metadata.annotations,
            [(label, labels[label]) for label in _LABELS if label in labels] if labels else (),
            spec.schedulingGroup is not None,
            spec.workloadRef is not None,
            [(one.name, one.resources) for one in spec.containers],
            [(one.name, one.resources, one.restartPolicy) for one in init],
            [one.env for one in (*spec.containers, *init)] if asks_for_spikes(pod, domain) else (),
            spec.affinity,
        )
    )
