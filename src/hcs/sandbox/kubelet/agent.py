"""The question to the node agent before a container starts, and what the answer means.

It stands where NRI stands on a real node, with the same rule for failing closed: a pod that names our plugin as
required, or has an allocation, or asks for our resources, does not start without the agent's answer; any other pod
starts as it is when the agent is away.
"""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Final

import httpx2
import msgspec

from hcs.inject import protocol
from hcs.inject.adjustments import EMPTY, Adjustment
from hcs.model import names, pods
from hcs.model.refusals import Refusal

ANSWER_SECONDS: Final = 2.0
"""What a container runtime gives its plugins by default."""


class RefusedStartError(RuntimeError):
    """The container must not start; the message is the agent's, or says that the agent is missing."""


def requires_agent(pod: pods.Pod) -> bool:
    """Whether this pod must never start without the agent's word."""
    annotations = pod.annotations
    required = any(
        names.NRI_PLUGIN in value
        for key, value in annotations.items()
        if key == names.REQUIRED_PLUGINS or key.startswith(f"{names.REQUIRED_PLUGINS}/")
    )
    asks = any(
        resource in names.REQUESTED
        for container in (*pod.spec.containers, *(pod.spec.initContainers or ()))
        for resource in {**(container.resources.limits or {}), **(container.resources.requests or {})}
    )
    return required or asks or names.ALLOCATION in annotations


class Agent:
    """The agent of one node, on its Unix socket; ``socket`` None stands for a node that has none."""

    def __init__(self, socket: str | None) -> None:
        self.socket = socket
        self._client: httpx2.AsyncClient | None = None
        if socket is not None:
            self._client = httpx2.AsyncClient(
                transport=httpx2.AsyncHTTPTransport(uds=socket),
                base_url="http://agent",
                timeout=httpx2.Timeout(ANSWER_SECONDS),
                trust_env=False,
            )

    async def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            await self._client.aclose()

    async def adjust(
        self, pod: pods.Pod, container: pods.Container, env: Mapping[str, str], args: Sequence[str]
    ) -> Adjustment:
        """Ask what to change in a container.

        Args:
            pod: as the API server has it.
            container: one of its containers or init containers.
            env: its variables, the image's among them.
            args: its whole command line.

        Raises:
            RefusedStartError: refused, or no usable answer for a pod that needs one.
        """
        if self._client is None:
            return _without(pod, f'required plugin "{names.NRI_PLUGIN}" not present: this node has no agent')
        question = protocol.ContainerCreation(
            pod=pod,
            container=protocol.StartingContainer(
                name=container.name,
                image=container.image,
                env=tuple(pods.EnvVar(name=name, value=value) for name, value in env.items()),
                args=tuple(args),
            ),
        )
        try:
            answer = await self._client.post(protocol.CONTAINERS, content=msgspec.json.encode(question))
        except httpx2.HTTPError as error:
            return _without(pod, f"the node agent does not answer at {self.socket}: {error!r}")
        try:
            if answer.status_code == 409:
                refusal = msgspec.json.decode(answer.content, type=Refusal)
                raise RefusedStartError(f"{refusal.reason}: {refusal.message}")
            if answer.status_code == 200:
                return msgspec.json.decode(answer.content, type=protocol.AdjustmentAnswer).adjustment
        except msgspec.DecodeError as error:
            return _without(pod, f"the node agent's answer cannot be read: {error}")
        return _without(pod, f"the node agent cannot tell now: HTTP {answer.status_code} {answer.text[:200]}".rstrip())

    async def forget(self, pod_uid: str, container: str) -> None:
        """Say that a container is gone for good. An agent that is away learns it from the API server instead."""
        if self._client is not None:
            with contextlib.suppress(httpx2.HTTPError):
                await self._client.delete(protocol.container_path(pod_uid, container))


def _without(pod: pods.Pod, problem: str) -> Adjustment:
    if requires_agent(pod):
        raise RefusedStartError(problem)
    return EMPTY
