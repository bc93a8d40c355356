"""The question a container runtime asks the node agent, and its answers: JSON over a Unix socket.

``POST /v1/containers`` with a :class:`ContainerCreation` before a container is created: 200 with an
:class:`AdjustmentAnswer` (an empty adjustment where the pod is none of ours), or 409 with a
:class:`hcs.model.refusals.Refusal`; any other status means that the agent cannot tell now, and the container must not
start. ``DELETE /v1/containers/{pod UID}/{container name}`` after it is gone for good: 204.

The types live here, below both sides, because the agent and the sandbox's kubelet never import each other. The same
question and answer travel over NRI on a real node.
"""

from typing import Final

import msgspec

from hcs.inject.adjustments import Adjustment
from hcs.model.pods import EnvVar, Pod

CONTAINERS: Final = "/v1/containers"
READY: Final = "/healthz"


class StartingContainer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The container as it would start without us: ``env`` and ``args`` hold what the image says as well."""

    name: str
    image: str = ""
    env: tuple[EnvVar, ...] = ()
    args: tuple[str, ...] = ()


class ContainerCreation(msgspec.Struct, frozen=True, omit_defaults=True):
    """The question. ``pod`` is the API's pod as the runtime knows it; the agent checks it against its own view."""

    pod: Pod
    container: StartingContainer


class AdjustmentAnswer(msgspec.Struct, frozen=True):
    """The answer 200. ``adjustment.files`` is empty: the agent has written them."""

    adjustment: Adjustment


def container_path(pod_uid: str, container: str) -> str:
    """The path of one container, for DELETE."""
    return f"{CONTAINERS}/{pod_uid}/{container}"
