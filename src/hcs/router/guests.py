"""RTOS guests that are bound to nodes, or about to be: what a node's agent cannot have reported yet."""

from collections.abc import Iterable, Sequence

from hcs.model.pods import Pod
from hcs.rtos.hosting import asks_for_guests


class ExpectedGuests:
    """Remembers a pod with guests from its binding until the view shows it bound."""

    def __init__(self) -> None:
        self._expected: dict[str, tuple[str, Pod]] = {}

    def expect(self, pod: Pod, node: str) -> None:
        """A binding of this pod is about to be sent."""
        if asks_for_guests(pod):
            self._expected[pod.metadata.uid] = (node, pod)

    def forget(self, uid: str) -> None:
        """The pod was not bound, or is gone."""
        self._expected.pop(uid, None)

    def by_node(self, pods: Iterable[Pod]) -> dict[str, Sequence[Pod]]:
        """Node → its unfinished pods with guests: those the view shows, and those expected."""
        found: dict[str, list[Pod]] = {}
        for pod in pods:
            if not pod.spec.nodeName:
                continue
            self.forget(pod.metadata.uid)
            if not pod.finished and asks_for_guests(pod):
                found.setdefault(pod.spec.nodeName, []).append(pod)
        for node, pod in self._expected.values():
            found.setdefault(node, []).append(pod)
        return dict(found)
