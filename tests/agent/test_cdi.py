"""The node's CDI files follow its cards, and inject() uses the names that resolve."""

import asyncio
from pathlib import Path

import msgspec
from tests.agent.scene import GIB, scene, uuid
from tests.inject.node import card
from tests.nri.runtime import NEW, OLD, Kind, stub_runtime
from tests.waiting import until

from hcs.agent.cdi import CdiSpecs
from hcs.inject.adjustments import DeviceNode
from hcs.inject.builtin import builtin_profiles
from hcs.inject.cdi import card_name
from hcs.inject.injection import NodeFiles
from hcs.inject.profiles import HostPath

PROFILES = builtin_profiles()
NVIDIA = PROFILES.effective("nvidia")
assert NVIDIA is not None


def files(*devices: object) -> dict[str, NodeFiles]:
    return {
        device.id: NodeFiles(devices=(DeviceNode(f"/dev/{device.vendor}{device.index}", "/dev/null"),))  # type: ignore[attr-defined]
        for device in devices
    }


def test_one_file_a_vendor_written_once_and_gone_with_its_cards(tmp_path: Path) -> None:
    specs = CdiSpecs(tmp_path / "cdi", exists=lambda path: path.startswith("/dev/"))
    one, two = card("nvidia", 0), card("ascend", 1)
    specs.bring([one, two], files(one, two), PROFILES)
    nvidia, ascend = tmp_path / "cdi" / "ai.compute-nvidia.json", tmp_path / "cdi" / "ai.compute-ascend.json"
    assert msgspec.json.decode(nvidia.read_bytes())["devices"][0]["name"] == one.id
    assert nvidia.stat().st_mode & 0o777 == 0o644
    before = nvidia.stat().st_ino
    foreign = tmp_path / "cdi" / "somebody.json"
    foreign.write_text("{}")
    specs.bring([one], files(one), PROFILES)
    assert nvidia.stat().st_ino == before, "what has not changed is not written again"
    assert not ascend.exists()
    assert foreign.exists(), "only ours are cleaned up"
    assert specs.names(NVIDIA) == {card_name(one)}


def test_names_of_others_resolve_and_broken_files_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "nvidia.yaml").write_text(
        "cdiVersion: 0.6.0\nkind: nvidia.com/gpu\ndevices: [{name: GPU-1, containerEdits: {env: [A=1]}}]\n"
    )
    (tmp_path / "etc" / "broken.json").write_text("{")
    (tmp_path / "etc" / "notes.txt").write_text("kind: x/y")
    specs = CdiSpecs(tmp_path / "cdi", others=[tmp_path / "etc", tmp_path / "absent"])
    specs.bring([], {}, PROFILES)
    assert specs.names(NVIDIA) == {"nvidia.com/gpu=GPU-1"}


def test_our_name_is_not_given_where_a_runtimes_profile_needs_more(tmp_path: Path) -> None:
    specs = CdiSpecs(tmp_path / "cdi", exists=lambda path: path.startswith("/dev/"))
    one = card("nvidia", 0)
    specs.bring([one], files(one), PROFILES)
    more = msgspec.structs.replace(NVIDIA, mounts=(*NVIDIA.mounts, HostPath("/opt/extra")))
    assert specs.names(more) == frozenset()


def test_a_card_whose_driver_is_not_loaded_has_no_name(tmp_path: Path) -> None:
    specs = CdiSpecs(tmp_path / "cdi", exists=lambda _: False)
    specs.bring([card("nvidia", 0)], {}, PROFILES)
    assert specs.names(NVIDIA) == frozenset()


def test_a_container_is_given_the_name_where_the_runtime_resolves_it(folder: Path) -> None:
    async def whole(kind: Kind) -> None:
        place = folder / kind.version
        place.mkdir()
        async with stub_runtime(place, kind) as runtime, scene(place) as node:
            agent = await node.start_agent(nri_socket=runtime.socket, poll=5.0, cdi=CdiSpecs(place / "cdi"))
            await runtime.plugin()
            await agent.describe()
            pod = await node.bound_pod("one", 1, amount=10 * GIB)
            await until(lambda: agent.delivery.seen(pod) is not None)
            container = await runtime.create(await runtime.run_pod("one", pod.metadata.uid, pod.annotations))
            named = [f"ai.compute/nvidia={uuid(1)}"] if kind.cdi else []
            assert container.cdi == named
            assert ("/dev/nvidia1" in container.mounts) == (not kind.cdi), "either the name or the list, never both"
            assert "/etc/ld.so.preload" in container.mounts, "what belongs to the container is not the card's"

    for kind in (NEW, OLD):
        asyncio.run(whole(kind))
