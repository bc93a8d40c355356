"""What must be true before a real control plane is worth playing on, and is not yet when its programs say "ready".

A real API server and its controllers take up new kinds, webhooks, namespaces and nodes through caches, a moment after
they were written. Each function here waits until one such thing has taken effect, by trying it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from lightkube import ApiError, AsyncClient

from hcs.kube import resources
from hcs.kube.manifests import create
from hcs.model import names
from hcs.sandbox import images
from hcs.sandbox.supervisor import StartError

SECONDS: Final = 30.0
"""How long each of them may take."""
_PAUSE: Final = 0.1


class _NotYetError(RuntimeError):
    """What is waited for has not come; the message says what is there instead."""


async def kinds_served(client: AsyncClient) -> None:
    """Wait until our kinds can be listed.

    Raises:
        StartError: not in time.
    """

    async def attempt() -> None:
        for kind in (resources.ComputeNode, resources.RuntimeProfile, resources.ExchangeRate):
            async for _ in client.list(kind):
                break

    await _insist(attempt, "our kinds are served")


async def pods_admitted(client: AsyncClient) -> None:
    """Wait until a pod that asks for compute is admitted: its webhook is heeded, its service account is there.

    Raises:
        StartError: not in time.
    """
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "admission"},
        "spec": {
            "containers": [
                {"name": "none", "image": images.PENDING, "resources": {"limits": {names.VRAM: "1Gi"}}},
            ]
        },
    }

    async def attempt() -> None:
        admitted = await create(client, pod, dry_run=True)
        scheduler = admitted["spec"].get("schedulerName")
        if scheduler != names.SCHEDULER:
            raise _NotYetError(f"a pod that asks for compute would go to {scheduler}")

    await _insist(attempt, "pods are admitted")


async def nodes_untainted(client: AsyncClient) -> None:
    """Wait until no node has a taint of Kubernetes' own.

    A new node has one until the node controller has seen that it is ready. A pod that comes before that is placed well,
    but not where the same pod goes a moment later.

    Raises:
        StartError: not in time.
    """

    async def attempt() -> None:
        async for node in client.list(resources.Node):
            taints = [str(taint.get("key")) for taint in node.spec.get("taints") or ()]
            if any(taint.startswith("node.kubernetes.io/") for taint in taints):
                raise _NotYetError(f"node {node.metadata.name} has taints {', '.join(taints)}")

    await _insist(attempt, "all nodes take pods")


async def _insist(attempt: Callable[[], Awaitable[None]], what: str) -> None:
    deadline = asyncio.get_running_loop().time() + SECONDS
    while True:
        try:
            await attempt()
        except (ApiError, _NotYetError) as error:
            if asyncio.get_running_loop().time() > deadline:
                raise StartError(f"{what}: not within {SECONDS:g} s: {error}") from error
            await asyncio.sleep(_PAUSE)
        else:
            return
