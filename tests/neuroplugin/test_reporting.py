"""The report of boards: beside what the agent wrote, mended when it was lost, and quiet when nothing changed."""

from pathlib import Path

from lightkube.types import PatchType
from tests.neuro.boards import board
from tests.router.scene import Scene, card, scene, virtual

from hcs.kube.resources import ComputeNode, ComputeNodeStatus
from hcs.neuro.allocator import CoreRequest
from hcs.neuro.service import NeuralService
from hcs.neuroplugin.reporting import BoardReport


async def seen(s: Scene) -> ComputeNode:
    found: ComputeNode = await s.client.get(ComputeNode, "n0")
    return found


@virtual
async def test_boards_stand_beside_what_the_agent_wrote(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("n0", card(0))
        service = NeuralService([board("b1", width=4, height=2, numa=1), board("b0")])
        reporting = BoardReport(s.client, "n0", service.sites, unit=2)
        assert await reporting.write()
        assert not await reporting.write(), "nothing changed"
        now = (await seen(s)).status
        assert [device.id for device in now.devices] == ["nvidia-0"]
        assert [(one.id, one.width, one.height, one.numa, one.unit) for one in now.boards] == [
            ("b0", 8, 8, None, 2),
            ("b1", 4, 2, 1, 2),
        ]
        service.lease("a", 4, request=CoreRequest(2, 2))
        assert await reporting.write()
        assert sum(int(one.busy, 16).bit_count() for one in (await seen(s)).status.boards) == 4
        await s.client.patch(ComputeNodeStatus, "n0", {"status": {"boards": None}}, patch_type=PatchType.MERGE)
        assert await reporting.write()
        assert len((await seen(s)).status.boards) == 2


@virtual
async def test_a_node_without_an_agent_gets_an_object_and_a_huge_board_is_left_out(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        service = NeuralService([board("huge", width=300, height=300), board("b0")])
        reporting = BoardReport(s.client, "n0", service.sites, unit=1)
        s.spawn(reporting.run())

        async def reported() -> bool:
            return [one.id async for node in s.client.list(ComputeNode) for one in node.status.boards] == ["b0"]

        await s.until(reported)
        await s.client.delete(ComputeNode, "n0")
        await s.until(reported)
