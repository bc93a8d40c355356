"""Which image a container runs once its vendor is known: read from RuntimeProfiles, which are data.

A pod that names a runtime (``ai.compute/runtime: pytorch-2.6``) leaves the choice of image to the vendor it lands on.
The image is patched just before the Binding is made; afterwards the kubelet has it. Patching twice changes nothing.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from hcs.model.allocations import Allocation
from hcs.model.pods import Pod
from hcs.model.requests import ComputeRequest


class RuntimeImage(msgspec.Struct, frozen=True, order=True):
    """One vendor's image for one runtime; an empty image leaves the pod's own in place."""

    vendor: str
    runtime: str
    image: str = ""


def read_profiles(specs: Iterable[Mapping[str, Any]]) -> tuple[RuntimeImage, ...]:
    """Read the ``spec`` of RuntimeProfiles, sorted; one without a vendor offers nothing."""
    return tuple(
        sorted(
            RuntimeImage(str(spec["vendor"]), str(spec.get("runtime") or ""), str(spec.get("image") or ""))
            for spec in specs
            if spec.get("vendor")
        )
    )


def vendors_offering(offers: Iterable[RuntimeImage], runtime: str) -> frozenset[str]:
    """Vendors that can run a runtime by this name."""
    return frozenset(offer.vendor for offer in offers if offer.runtime == runtime)


def image_for(offers: Iterable[RuntimeImage], request: ComputeRequest, vendor: str) -> str:
    """The image for a pod that landed on this vendor; the empty string leaves the pod's own.

    A pod that brings a code layer but names no runtime gets the vendor's plain image, the profile without a runtime.
    """
    if not request.runtime and not request.code_image:
        return ""
    return next((o.image for o in offers if o.vendor == vendor and o.runtime == request.runtime and o.image), "")


def image_patch(pod: Pod, allocation: Allocation, image: str) -> dict[str, Any] | None:
    """The strategic merge patch that gives the containers with devices this image; None when there is nothing to do."""
    if not image:
        return None
    changed = {
        field: [
            {"name": container.name, "image": image}
            for container in containers
            if allocation.grants(container.name) and container.image != image
        ]
        for field, containers in (
            ("containers", pod.spec.containers),
            ("initContainers", pod.spec.initContainers or ()),
        )
    }
    spec = {field: containers for field, containers in changed.items() if containers}
    return {"metadata": {"uid": pod.metadata.uid}, "spec": spec} if spec else None
