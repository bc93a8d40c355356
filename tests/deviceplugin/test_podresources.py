"""Who holds what: read from the kubelet, and kept apart by container."""

import asyncio
from pathlib import Path

import pytest
from tests.deviceplugin.kubelet import fake_kubelet

from hcs.deviceplugin.podresources import (
    Claimed,
    Holder,
    Holding,
    Lingering,
    PodResources,
    PodResourcesError,
    held,
    holder_of,
)

ONE, TWO = Holder("default", "one", "main"), Holder("default", "two", "main")
HOLDINGS = (Holding(ONE, {"a/x": frozenset({"1", "2"})}), Holding(TWO, {"a/x": frozenset({"3"})}))


def test_what_is_held_comes_from_the_kubelet(folder: Path) -> None:
    async def whole() -> None:
        async with fake_kubelet(folder) as kubelet:
            kubelet.pods["team", "one", "main"] = {"nvidia.com/gpu": ["GPU-1", "GPU-2"], "a/x": ["7"]}
            kubelet.pods["team", "none", "main"] = {}
            kubelet.claims["team", "two", "side"] = [("gpu.nvidia.com", "node-1", "gpu-0", ["k8s.x/gpu=0"])]
            found = await PodResources(kubelet.pod_resources).list()
        assert found == (
            Holding(
                Holder("team", "one", "main"), {"nvidia.com/gpu": frozenset({"GPU-1", "GPU-2"}), "a/x": frozenset("7")}
            ),
            Holding(
                Holder("team", "two", "side"),
                claimed=(Claimed("gpu.nvidia.com", "node-1", "gpu-0", ("k8s.x/gpu=0",)),),
            ),
        )

    asyncio.run(whole())


def test_a_kubelet_that_is_away_is_an_error_with_words(folder: Path) -> None:
    with pytest.raises(PodResourcesError, match="directory mounted"):
        asyncio.run(PodResources(folder / "nothing.sock").list())


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        pytest.param({"1", "2"}, ONE, id="exactly"),
        pytest.param({"3"}, TWO, id="another"),
        pytest.param({"1"}, None, id="a-part-only"),
        pytest.param({"2", "3"}, None, id="across-two"),
        pytest.param(set[str](), None, id="none"),
    ],
)
def test_the_holder_of_ids(ids: set[str], expected: Holder | None) -> None:
    assert holder_of(HOLDINGS, "a/x", ids) == expected
    assert holder_of(HOLDINGS, "a/y", ids) is None


def test_a_kubelet_that_lists_nothing_yet_frees_nothing() -> None:
    lingering = Lingering(30.0)
    assert lingering.held({"1", "2"}, 0.0) == {"1", "2"}
    assert lingering.held((), 5.0) == {"1", "2"}, "it has just started"
    assert lingering.held({"1"}, 10.0) == {"1", "2"}
    assert lingering.held({"1"}, 31.0) == {"1"}
    assert lingering.held((), 62.0) == frozenset()


def test_ids_come_free_when_nobody_holds_them() -> None:
    before, after = held(HOLDINGS, "a/x"), held(HOLDINGS[1:], "a/x")
    assert {unit: before[unit] for unit in before.keys() - after.keys()} == {"1": ONE, "2": ONE}
