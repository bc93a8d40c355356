"""Time goes by without anybody waiting for it."""

import asyncio

import pytest

from hcs.sandbox.scheduler.virtualtime import StuckError, run_virtual


def test_hours_pass_at_once_and_in_order() -> None:
    seen: list[tuple[float, str]] = []

    async def worker(name: str, pause: float) -> None:
        for _ in range(2):
            await asyncio.sleep(pause)
            seen.append((asyncio.get_running_loop().time(), name))

    async def story() -> str:
        await asyncio.gather(worker("slow", 7200), worker("quick", 3600))
        return "told"

    assert run_virtual(story()) == "told"
    assert [moment for moment, _ in seen] == [3600, 7200, 7200, 14400]
    assert (seen[0][1], seen[-1][1]) == ("quick", "slow")


def test_a_timeout_is_exact() -> None:
    async def story() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await asyncio.Event().wait()
        return asyncio.get_running_loop().time()

    assert run_virtual(story()) == 30


def test_a_story_that_runs_in_a_circle_says_so() -> None:
    async def story() -> None:
        for _ in range(1 << 30):
            await asyncio.sleep(0)

    with pytest.raises(StuckError, match="in a circle"):
        run_virtual(story())


def test_a_story_that_can_never_go_on_says_so() -> None:
    async def story() -> None:
        await asyncio.Event().wait()

    with pytest.raises(StuckError, match="no timer is left"):
        run_virtual(story())
