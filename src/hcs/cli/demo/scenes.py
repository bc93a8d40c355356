"""The scenes in the order they are told; one file each."""

from collections.abc import Awaitable, Callable
from typing import Final

from hcs.cli.demo import fleet_scene, heal_scene, route_scene, share_scene, why_scene
from hcs.cli.demo.stage import Stage

SCENES: Final[dict[str, tuple[str, Callable[[Stage], Awaitable[None]]]]] = {
    "fleet": ("One view of a mixed machine room", fleet_scene.play),
    "route": ("Ask for compute, and some vendor's card answers", route_scene.play),
    "share": ("One card, four pods, and a quota that holds", share_scene.play),
    "heal": ("The card dies, the job lives", heal_scene.play),
    "why": ("Why not? One screen", why_scene.play),
}
