"""Shares of Cambricon's cards are sMLU instances: made once, found again, taken back once; on an emulated CNDEV."""

import ctypes
import itertools
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from hcs.inject.instances import Instance
from hcs.model.allocations import Grant
from hcs.model.devices import Device, Rate
from hcs.model.refusals import RefusedError
from hcs.ura.catalogue import Catalogue
from hcs.vendors.base import VendorError, Wanted
from hcs.vendors.cambricon import CambriconVendor
from hcs.vendors.libraries.smlu import SmluLibrary
from hcs.vendors.parsing.report import Reading, Report, reading

GIB = 1 << 30
PROGRAM = Path(__file__).parent / "programs/smlu.c"


class Two:
    """A source of two MLUs."""

    def read(self) -> Sequence[Reading]:
        return [
            reading(
                "cambricon", {"index": index, "name": "MLU370-X8", "uuid": f"MLU-{index}", "memory_total_mib": 24576}
            )
            for index in range(2)
        ]

    def topology(self) -> Report | None:
        return None

    def driver(self) -> str | None:
        return None


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Any:
    target = tmp_path_factory.mktemp("smlu") / "libcndev.so"
    flags = ["-shared", "-fPIC", "-Wall", "-Werror", "-O1", "-Wno-stringop-truncation"]
    subprocess.run(["cc", *flags, "-o", target, PROGRAM], check=True)
    return ctypes.CDLL(str(target))


@pytest.fixture
def cndev(built: Any) -> Iterator[Any]:
    built.emulated_reset()
    yield built
    built.emulated_reset()


class Node:
    """A node with two MLUs, and the pods that live on it."""

    def __init__(self, cndev: Any, root: Path) -> None:
        self.cndev, self.root = cndev, root
        self.live: set[str] = set()
        self.restart()

    def restart(self) -> None:
        """A new agent on the same driver."""
        self.vendor = CambriconVendor(Two(), Catalogue(()), smlu=SmluLibrary(self.cndev), root=self.root)
        self.devices = [self.rated(device) for device in self.vendor.probe()]

    @staticmethod
    def rated(device: Device) -> Device:
        return Device(
            device.id, device.index, device.vendor, device.model, device.vram, rates=(Rate("gemm", 100, "d"),)
        )

    def give(
        self, pod: str, milliacu: int, memory: int = GIB, container: str = "main", card: int = 0
    ) -> Instance | None:
        self.live.add(pod)
        wanted = Wanted(pod, container, self.root / pod / container, lambda: frozenset(self.live))
        device = self.devices[card]
        return self.vendor.instance(wanted, device, Grant(device.id, memory, milliacu))

    def keep(self) -> None:
        self.vendor.keep(lambda: frozenset(self.live))

    def percents(self) -> list[int]:
        return [each.percent for each in SmluLibrary(self.cndev).instances(0)]


@pytest.fixture
def node(cndev: Any, tmp_path: Path) -> Node:
    for name in ("cambricon_dev0", "cambricon_ctl", "cambricon_ipcm0"):
        (tmp_path / "dev").mkdir(exist_ok=True)
        (tmp_path / "dev" / name).touch()
    return Node(cndev, tmp_path)


def test_only_cards_with_smlu_switched_on_can_be_split(node: Node) -> None:
    assert [node.vendor.divisible(device) for device in node.devices] == [True, False]
    assert node.give("one", 40, card=1) is None


def test_a_share_becomes_an_instance_with_the_nodes_of_the_vendors_plugin(node: Node) -> None:
    given = node.give("one", 40, 5 * GIB + 1)
    assert given is not None
    assert (given.kind, given.percent, given.holds_memory) == ("smlu", 40, True)
    cap = "/dev/cambricon-caps/cap_dev0_mi1"
    paths = [each.path for each in given.devices]
    assert paths == ["/dev/cambricon_dev0", "/dev/cambricon_ctl", "/dev/cambricon_ipcm0", cap]
    variables = {each.name: each.value for each in given.env}
    assert variables["VIRTUAL_DEVICES"] == f"/dev/cambricon_dev0,/dev/cambricon_ipcm0,{cap}"
    assert variables["CAMBRICON_VISIBLE_DEVICES"] is None, "or Cambricon's runtime would show the whole card"
    [made] = SmluLibrary(node.cndev).instances(0)
    assert made.memory == (5 * GIB + (1 << 20)), "whole MiB, not less than was granted"


def test_a_container_that_starts_again_has_the_instance_it_had(node: Node) -> None:
    first = node.give("one", 40)
    node.restart()
    assert node.give("one", 40) == first
    assert node.cndev.emulated_made() == 1
    assert node.give("one", 40, container="side") != first, "another container has another"


def test_what_a_pod_had_is_taken_back_once(node: Node) -> None:
    node.give("one", 40)
    node.give("two", 40)
    node.live.discard("one")
    for _ in range(3):
        node.keep()
    assert (node.percents(), node.cndev.emulated_destroyed()) == ([40], 1)
    node.live.discard("two")
    node.restart()  # what a killed agent left is known by its name
    node.keep()
    assert (node.percents(), node.cndev.emulated_destroyed()) == ([], 2)
    assert node.cndev.emulated_profiles(0) == 0, "nor is a profile left behind"


def test_the_room_of_a_pod_that_has_just_gone_is_free_at_once(node: Node) -> None:
    node.give("one", 90)
    node.live.discard("one")
    assert node.give("two", 90) is not None
    node.keep()
    assert node.percents() == [90]


def test_instances_that_others_made_stay_and_count(node: Node) -> None:
    library = SmluLibrary(node.cndev)
    library.make(0, "by-hand", 70, GIB)
    with pytest.raises(RefusedError) as refused:
        node.give("one", 40)
    assert refused.value.refusals[0].reason == "NoComputeLeft"
    assert "30 % are free" in refused.value.refusals[0].message
    node.live.clear()
    node.keep()
    assert node.percents() == [70]


def test_an_instance_in_use_is_taken_back_later_and_the_others_now(node: Node) -> None:
    node.give("one", 30)
    node.give("two", 30)
    [busy] = [each.name for each in SmluLibrary(node.cndev).instances(0) if "one" in each.name]
    node.cndev.emulated_busy(busy.encode())
    node.live.clear()
    with pytest.raises(VendorError, match="in use"):
        node.keep()
    assert node.percents() == [30]
    node.cndev.emulated_busy(b"")
    node.keep()
    assert node.percents() == []


def test_memory_the_driver_does_not_have_is_its_word(node: Node) -> None:
    node.give("one", 10, 20 * GIB)
    with pytest.raises(VendorError, match="insufficient space"):
        node.give("two", 10, 5 * GIB)


def test_a_library_without_smlu_makes_every_card_whole(tmp_path: Path) -> None:
    vendor = CambriconVendor(Two(), Catalogue(()), smlu=SmluLibrary(ctypes.CDLL(None)), root=tmp_path)
    assert not any(vendor.divisible(device) for device in vendor.probe())


@settings(deadline=None)
@for_all(steps=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 100), st.booleans()), max_size=20))
def test_the_cores_given_never_exceed_the_card(built: Any, steps: list[tuple[int, int, bool]]) -> None:
    """Pods come, go, and come again, and agents restart: the sum stays within 100 %, and nothing leaks."""
    built.emulated_reset()
    node = Node(built, Path("/nonexistent"))
    for (name, milliacu, comes), restart in zip(steps, itertools.cycle((False, False, True)), strict=False):
        pod = f"pod-{name}"
        if comes and pod not in node.live:
            try:
                node.give(pod, milliacu)
            except RefusedError:
                node.live.discard(pod)
        else:
            node.live.discard(pod)
            node.keep()
        if restart:
            node.restart()
        assert sum(node.percents()) <= 100
    node.live.clear()
    node.keep()
    assert node.percents() == []
    assert built.emulated_made() == built.emulated_destroyed()
