"""Reports this node's boards to the cluster: which cores are busy or dead, in ``ComputeNode.status.boards``.

From it the router chooses rectangles before it binds. The report is written when it differs from what was written last,
and looked at again now and then, so one that somebody else removed comes back. The rest of the object is the agent's; a
node without an agent gets one that holds the boards alone.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import httpx2
import msgspec
from lightkube import ApiError, AsyncClient
from lightkube.types import PatchType

from hcs.kube.resources import ComputeNode, ComputeNodeStatus
from hcs.model import names
from hcs.model.devices import SpikingBoard
from hcs.model.pods import ObjectMeta
from hcs.neuro.occupancy import report
from hcs.neuro.sites import Site

log = logging.getLogger(__name__)

AGAIN_SECONDS: Final = 30.0
LEAST_SECONDS: Final = 0.2


class BoardReport:
    """Writes the boards of one node."""

    def __init__(
        self,
        client: AsyncClient,
        node: str,
        sites: Mapping[str, Site],
        *,
        unit: int,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Prepare.

        Args:
            client: the connection.
            node: this node's name.
            sites: the boards by id.
            unit: how many cores one id stands for.
            pause: how to wait.
        """
        self._client, self._node, self._sites, self._unit, self._pause = client, node, sites, unit, pause
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Something changed on a board."""
        self._wake.set()

    def boards(self) -> tuple[SpikingBoard, ...]:
        """The report as it would be now."""
        found = (report(self._sites[id], unit=self._unit) for id in sorted(self._sites))
        return tuple(board for board in found if board is not None)

    async def run(self) -> None:
        """Keep the report true, until cancelled."""
        while True:
            self._wake.clear()
            try:
                await self.write()
            except (ApiError, httpx2.HTTPError) as error:
                log.warning("boards not reported, trying again: node=%s error=%r", self._node, error)
            await self._pause(LEAST_SECONDS)
            try:
                async with asyncio.timeout(AGAIN_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def write(self) -> bool:
        """Write the report where the server's differs; tells whether it did.

        Raises:
            ApiError: the server refused.
        """
        boards = self.boards()
        try:
            seen: ComputeNode = await self._client.get(ComputeNode, self._node)
        except ApiError as error:
            if error.status.code != 404:
                raise
            seen = await self._client.create(
                ComputeNode(
                    apiVersion=f"{names.GROUP}/{names.VERSION}",
                    kind="ComputeNode",
                    metadata=ObjectMeta(name=self._node),
                )
            )
        if seen.status.boards == boards:
            return False
        body: dict[str, Any] = {"status": {"boards": msgspec.to_builtins(boards)}}
        await self._client.patch(ComputeNodeStatus, self._node, body, patch_type=PatchType.MERGE)
        return True
