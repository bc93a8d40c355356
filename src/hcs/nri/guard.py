"""The second opinion: a container that needs the agent's adjustment and lacks its mark does not start.

Runtimes before containerd 2.2 and CRI-O 1.34 validate nothing, so a plugin that dies or stalls within a call leaves the
container unadjusted. This one is a process of its own, subscribed to the start of containers alone, which comes after
their creation: it looks for the mark that every adjusted container carries. It closes the gap as long as it lives, and
is so small that little can happen to it.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from hcs.inject.injection import MARK
from hcs.model import names
from hcs.model.refusals import Refusal, RefusedError
from hcs.nri.messages import START
from hcs.nri.runtimes import Runtime

NAME: Final = "hcs-guard"
INDEX: Final = "99"


class Guard:
    """The handlers of the guard's plugin."""

    def __init__(self, alive: Callable[[bool], None] = lambda _: None) -> None:
        """Prepare.

        Args:
            alive: told whether the runtime asks us.
        """
        self._alive = alive

    def connected(self, runtime: Runtime) -> None:
        """From now on nothing starts unseen."""
        self._alive(True)

    def disconnected(self) -> None:
        """Nobody asks us any more."""
        self._alive(False)

    def synchronize(self, pods: Sequence[Any], containers: Sequence[Any]) -> None:
        """What runs already is the agent's affair."""

    async def create(self, pod: Any, container: Any) -> Any | None:
        """Nothing: not subscribed."""

    async def validate(self, request: Any) -> Refusal | None:
        """Nothing: not subscribed."""

    async def event(self, event: int, pod: Any, container: Any) -> None:
        """Look at a container that is about to start."""
        if event == START and self.must_refuse(pod) and MARK not in container.annotations:
            raise RefusedError(
                Refusal(
                    "NotAdjusted",
                    f"container {container.name} was created without the node agent's word; it is created again",
                )
            )

    def must_refuse(self, pod: Any) -> bool:
        """Whether the pod's containers need the mark: it was placed by the router, or admission says so."""
        return names.ALLOCATION in pod.annotations or requires_plugin(pod.annotations)


def requires_plugin(annotations: Any) -> bool:
    """Whether a pod, or one of its containers, names our plugin as required (containerd's default validator)."""
    return any(
        names.NRI_PLUGIN in value
        for key, value in annotations.items()
        if key == names.REQUIRED_PLUGINS or key.startswith(f"{names.REQUIRED_PLUGINS}/")
    )
