"""A node with emulated boards and, where a story needs it, a kubelet."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.deviceplugin.kubelet import FakeKubelet, fake_kubelet
from tests.neuro.boards import board

from hcs.neuro.boards import BoardState
from hcs.neuroplugin.node import NeuroNode
from hcs.neuroplugin.settings import Settings, Units
from hcs.vendors.emulated_board import EmulatedBoard

SETTINGS = Settings(units=Units(activations=1, updates=1))
KSPS, STREAMS, CORES = (f"snn.ai.compute/{word}" for word in ("ksps", "event-routing-streams", "cores"))


def node(
    *boards: BoardState, settings: Settings = SETTINGS, folder: Path | None = None, **more: Any
) -> tuple[NeuroNode, dict[str, EmulatedBoard]]:
    states = boards or (board(ksps=500),)
    drivers = {state.id: EmulatedBoard(state) for state in states}
    made = NeuroNode(
        drivers,
        settings,
        directory=None if folder is None else folder / "device-plugins",
        pod_resources=(folder or Path("/nowhere")) / "pod-resources.sock",
        pause=lambda seconds: asyncio.sleep(seconds / 20),
        **more,
    )
    return made, drivers


Story = Callable[[FakeKubelet, NeuroNode, dict[str, EmulatedBoard]], Awaitable[None]]


def tell(story: Story, folder: Path, *boards: BoardState, settings: Settings = SETTINGS) -> None:
    """Run a story with a kubelet and the plugin beside it."""

    async def whole() -> None:
        made, drivers = node(*boards, settings=settings, folder=folder)
        await made.publish()
        async with fake_kubelet(folder, made.tasks()) as kubelet:
            async with asyncio.timeout(30):
                for name in made.books.names:
                    units = made.books.units(name)
                    await kubelet.has(name, len(units), sum(unit.healthy for unit in units))
                await story(kubelet, made, drivers)

    asyncio.run(whole())
