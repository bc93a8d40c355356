"""The image follows the vendor: only where the pod leaves it open, only containers with devices, only once."""

import msgspec
import pytest

from hcs.model.allocations import Allocation, Grant
from hcs.model.pods import Container, ObjectMeta, Pod, PodSpec
from hcs.model.requests import ComputeRequest
from hcs.router.images import RuntimeImage, image_for, image_patch, read_profiles, vendors_offering

OFFERS = read_profiles(
    [
        {"vendor": "nvidia", "runtime": "pytorch-2.6", "image": "r.example/cuda:1"},
        {"vendor": "ascend", "runtime": "pytorch-2.6", "image": "r.example/cann:1"},
        {"vendor": "ascend", "image": "r.example/plain:1", "libraries": ["/usr/lib"]},
        {"vendor": "hygon", "runtime": "pytorch-2.6"},
        {"runtime": "of nobody"},
    ]
)


def test_profiles_are_data() -> None:
    assert OFFERS[0] == RuntimeImage("ascend", "", "r.example/plain:1")
    assert vendors_offering(OFFERS, "pytorch-2.6") == {"nvidia", "ascend", "hygon"}
    assert vendors_offering(OFFERS, "jax") == set()


@pytest.mark.parametrize(
    ("runtime", "code_image", "vendor", "image"),
    [
        pytest.param("pytorch-2.6", "", "ascend", "r.example/cann:1", id="runtime"),
        pytest.param("pytorch-2.6", "code:1", "nvidia", "r.example/cuda:1", id="runtime-and-code"),
        pytest.param("", "code:1", "ascend", "r.example/plain:1", id="code-alone-gets-the-plain-image"),
        pytest.param("", "", "ascend", "", id="nothing-left-open"),
        pytest.param("pytorch-2.6", "", "hygon", "", id="profile-without-image"),
        pytest.param("jax", "", "nvidia", "", id="unknown-runtime"),
    ],
)
def test_the_image_of_a_vendor(runtime: str, code_image: str, vendor: str, image: str) -> None:
    assert image_for(OFFERS, ComputeRequest((), runtime=runtime, code_image=code_image), vendor) == image


def test_only_containers_with_devices_are_patched_and_only_once() -> None:
    pod = Pod(ObjectMeta("p", uid="u"), PodSpec([Container("main", "pending:1"), Container("sidecar", "logs:1")]))
    allocation = Allocation("v1", "u", "n1", "ascend", "910B3", {"main": (Grant("c", 1, 0),)})
    patch = image_patch(pod, allocation, "r.example/cann:1")
    assert patch == {"metadata": {"uid": "u"}, "spec": {"containers": [{"name": "main", "image": "r.example/cann:1"}]}}
    patched = msgspec.structs.replace(pod, spec=PodSpec([Container("main", "r.example/cann:1")]))
    assert image_patch(patched, allocation, "r.example/cann:1") is None
    assert image_patch(pod, allocation, "") is None


def test_an_init_container_on_cards_gets_the_vendors_image_too() -> None:
    init = [Container("setup", "pending:1"), Container("fetch", "curl:1")]
    pod = Pod(ObjectMeta("p", uid="u"), PodSpec([Container("main", "r.example/cann:1")], init))
    allocation = Allocation("v1", "u", "n1", "ascend", "910B3", {"main": (Grant("c", 1, 0),)}, reuses={"setup": "main"})
    patch = image_patch(pod, allocation, "r.example/cann:1")
    assert patch is not None
    assert patch["spec"] == {"initContainers": [{"name": "setup", "image": "r.example/cann:1"}]}
