"""Profiles are data: read strictly, layered by site, and free of the known name traps."""

from pathlib import Path
from typing import Any

import pytest
from tests.inject.node import card

from hcs.inject.builtin import builtin_profiles
from hcs.inject.profiles import ProfileError, Profiles, fill, fill_each, read_profile
from hcs.kube.manifests import read_manifests
from hcs.model import names


def test_every_vendor_has_a_profile() -> None:
    assert [profile.vendor for profile in builtin_profiles().entries] == list(names.VENDOR_WORDS)


class TestNameTraps:
    """Misspellings and mix-ups that circulate."""

    def test_ascend_physical_and_logical_ids_are_different_numbers(self) -> None:
        profile = builtin_profiles().get("ascend")
        assert profile is not None
        npu = [card("ascend", 6)]
        assert fill(profile.selection["ASCEND_VISIBLE_DEVICES"], npu) == "6"
        assert fill(profile.selection["ASCEND_RT_VISIBLE_DEVICES"], npu) == "0"

    def test_logical_ids_ascend_without_blanks(self) -> None:
        assert fill("{ordinals}", [card("ascend", n) for n in (1, 4, 7)]) == "0,1,2"

    @pytest.mark.parametrize("word", ["METHERDS", "CONTINER", "ASSIGHED"])
    def test_no_circulating_misspelling_is_in_the_data(self, word: str) -> None:
        assert word not in repr(builtin_profiles())

    def test_moore_threads_is_spelled_as_its_own_runtime_reads_it(self) -> None:
        profile = builtin_profiles().get("mthreads")
        assert profile is not None
        assert "MTHREADS_VISIBLE_DEVICES" in profile.selection

    def test_flags_belong_to_a_vendor_never_to_an_acronym(self) -> None:
        """MCCL and HCCL mean different libraries of different vendors."""
        for profile in builtin_profiles().entries:
            flags = {name.partition("_")[0] for name in (*profile.environment, *profile.collective)}
            assert "HCCL" not in flags or profile.vendor == "ascend"
            assert "MCCL" not in flags or profile.vendor == "metax"

    def test_kunlunxin_never_sets_both_of_its_variables(self) -> None:
        facade = read_profile(
            {
                "vendor": "kunlunxin",
                "runtime": "cuda-facade",
                "selection": {"CUDA_VISIBLE_DEVICES": "{ordinals}"},
                "clear": ["XPU_VISIBLE_DEVICES"],
            },
            "facade",
        )
        effective = builtin_profiles().overlaid([facade]).effective("kunlunxin", "cuda-facade")
        assert effective is not None
        assert list(effective.selection) == ["CUDA_VISIBLE_DEVICES"]
        assert "XPU_VISIBLE_DEVICES" in effective.clear

    @pytest.mark.parametrize(
        ("pcie", "roce", "fine"),
        [("1", "1", False), ("0", None, False), (None, "0", False), ("0", "1", True), ("1", "0", True)],
    )
    def test_an_hccl_pair_that_does_not_work_is_refused(self, pcie: str | None, roce: str | None, fine: bool) -> None:
        pair = {"HCCL_INTRA_PCIE_ENABLE": pcie, "HCCL_INTRA_ROCE_ENABLE": roce}
        flags = {name: value for name, value in pair.items() if value is not None}
        spec = {"vendor": "ascend", "collective": flags}
        if fine:
            assert read_profile(spec, "p").collective == flags
        else:
            with pytest.raises(ProfileError, match=r"HCCL_INTRA_PCIE_ENABLE=.* is not supported"):
                read_profile(spec, "p")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "missing required field `vendor`"),
        ({"vendor": "nvidia", "enviroment": {}}, "unknown field `enviroment`"),
        ({"vendor": "nvidia", "environment": {"A": "{cards}"}}, r"no placeholder \{cards\}; known ones .*\{indexes\}"),
        ({"vendor": "nvidia", "environment": {"A": "{ids.__class__}"}}, "no placeholder"),
        ({"vendor": "nvidia", "environment": {"A": "{ids:>99999999}"}}, "no placeholder"),
        ({"vendor": "nvidia", "environment": {"A": "{"}}, "is not a pattern"),
        ({"vendor": "nvidia", "devices": [{"path": "dev/x"}]}, "is not an absolute path"),
        ({"vendor": "nvidia", "mounts": [{"path": "/a/../etc"}]}, "is not an absolute path"),
        ({"vendor": "nvidia", "mounts": [{"path": "/dev/nvidia0"}]}, "a mount does not allow a device"),
        ({"vendor": "nvidia", "libraries": ["/lib{index}"]}, "no placeholder"),
        ({"vendor": "nvidia", "cdi": "x={indexes}"}, "no placeholder"),
        ({"vendor": "nvidia", "quota": "maybe"}, "quota"),
    ],
)
def test_a_profile_that_cannot_be_meant_is_refused_with_a_sentence(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ProfileError, match=message):
        read_profile(spec, "mine")


def test_the_shipped_objects_can_be_used() -> None:
    documents = list(read_manifests(Path(__file__).parents[2] / "config" / "profiles"))
    profiles = builtin_profiles().overlaid(read_profile(d["spec"], d["metadata"]["name"]) for d in documents)
    assert profiles.image("ascend", "pytorch-2.6") == "registry.example/runtime/ascend-pytorch:2.6"
    effective = profiles.effective("ascend", "pytorch-2.6")
    assert effective is not None
    assert effective.quota == "interceptor"


def test_a_new_vendor_needs_no_code() -> None:
    spec = {"vendor": "newcomer", "selection": {"NEW_VISIBLE": "{indexes}"}, "devices": [{"path": "/dev/new{index}"}]}
    profile = builtin_profiles().overlaid([read_profile(spec, "newcomer")]).effective("newcomer")
    assert profile is not None
    assert fill_each(profile.devices[0].path, [card("newcomer", 3)]) == ("/dev/new3",)
    assert "CUDA_VISIBLE_DEVICES" in profile.clear


def test_a_sites_image_leaves_the_built_in_rules_in_force() -> None:
    image = read_profile({"vendor": "ascend", "image": "registry.example/ascend:1"}, "ascend")
    before, after = builtin_profiles().get("ascend"), builtin_profiles().overlaid([image]).get("ascend")
    assert before is not None
    assert after is not None
    assert (after.image, after.selection, after.devices) == (image.image, before.selection, before.devices)
    assert after.quota == "interceptor"


def test_a_site_adds_and_replaces_entry_by_entry() -> None:
    own = {
        "vendor": "nvidia",
        "environment": {"NVIDIA_DRIVER_CAPABILITIES": "all", "NCCL_DEBUG": "WARN"},
        "devices": [{"path": "/dev/nvidiactl"}, {"path": "/dev/gdrdrv", "optional": True}],
        "libraries": ["/opt/ours"],
    }
    profile = builtin_profiles().overlaid([read_profile(own, "ours")]).effective("nvidia")
    assert profile is not None
    assert profile.environment == {"NVIDIA_DRIVER_CAPABILITIES": "all", "NCCL_DEBUG": "WARN"}
    assert {host.path: host.optional for host in profile.devices}["/dev/nvidiactl"] is False
    assert profile.libraries == ("/opt/ours", "/usr/local/nvidia/lib64")


def test_images_are_found_by_vendor_and_runtime() -> None:
    runtime = read_profile({"vendor": "nvidia", "runtime": "pytorch-2.6", "image": "a:1"}, "one")
    profiles = Profiles((runtime,))
    assert profiles.image("nvidia", "pytorch-2.6") == "a:1"
    assert profiles.image("nvidia", "pytorch-2.7") == ""
    assert profiles.effective("nvidia", "pytorch-2.6") is None, "an image alone says nothing about the cards"
