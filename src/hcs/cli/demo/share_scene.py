"""Scene *share*: four pods on one card; one asks for more than its quota and gets the driver's own refusal."""

from typing import Any

from hcs.cli.demo.stage import Stage
from hcs.cli.demo.training import GIB, WANTED, train_pod
from hcs.model import names
from hcs.model.quantities import show_bytes

_QUOTA = 16 * GIB
_GREEDY = 20 * GIB
_OUT_OF_MEMORY = 2
"""CUDA_ERROR_OUT_OF_MEMORY, what frameworks look for before they free their caches and try again."""


async def play(stage: Stage) -> None:
    """Three modest pods and a greedy one."""
    modest = ["share-1", "share-2", "share-3"]
    annotations = {names.MODELS: WANTED}
    stage.say(
        f"Four pods ask for {show_bytes(_QUOTA)} of one card each; the fourth then allocates {show_bytes(_GREEDY)}."
    )
    for name in modest:
        arguments = ("--steps", "2000", "--step-seconds", "0.03", "--checkpoint-every", "10", "--allocate", "12Gi")
        await stage.create(train_pod(name, vram=_QUOTA, arguments=arguments, annotations=annotations))
        await stage.bound(name)
    before = [await _newest(stage, name) for name in modest]
    greedy = (
        "--steps",
        "2000",
        "--step-seconds",
        "0.03",
        "--checkpoint-every",
        "10",
        "--allocate",
        "20Gi",
        "--continue-after-oom",
    )
    await stage.create(train_pod("share-4", vram=_QUOTA, arguments=greedy, annotations=annotations))
    bound = [await stage.bound(name) for name in [*modest, "share-4"]]
    refused = await stage.logged("share-4", "oom")
    start = await stage.logged("share-4", "start")
    devices = {device for _, allocation in bound for device in allocation.devices()}
    stage.say(f"all four run on {', '.join(sorted(devices))} of {bound[0][1].node}")
    stage.say(
        f"share-4 sees {show_bytes(start['total_bytes'])} in all; "
        f"its driver answers {refused['name']} ({refused['code']})"
    )
    stage.claim("four pods share one card", len(devices) == 1)
    stage.claim(
        f"the driver reports the quota as the card's size: {show_bytes(start['total_bytes'])}",
        start["total_bytes"] == _QUOTA,
    )
    stage.claim("the greedy pod got the driver's own out-of-memory code", refused["code"] == _OUT_OF_MEMORY)
    after = []
    for name, line in zip(modest, before, strict=True):
        after.append(await _newest(stage, name, beyond=line["step"]))
    unaffected = all(now["step"] > then["step"] for now, then in zip(after, before, strict=True))
    errors = [line for name in modest for line in await stage.log(name) if line["event"] in ("oom", "error")]
    stage.claim("its neighbours go on computing, without one error", unaffected and not errors)
    stage.claim("the greedy pod itself goes on within its quota", (await _newest(stage, "share-4"))["step"] > 0)
    stage.facts.update(
        node=bound[0][1].node,
        vendor=bound[0][1].vendor,
        devices=sorted(devices),
        quota_bytes=_QUOTA,
        refused_bytes=_GREEDY,
        refused_code=refused["code"],
        neighbours_unaffected=unaffected and not errors,
        neighbour_steps=[[then["step"], now["step"]] for then, now in zip(before, after, strict=True)],
    )
    await stage.remove(*modest, "share-4")


async def _newest(stage: Stage, name: str, *, beyond: int = 0) -> dict[str, Any]:
    """The newest checkpoint line of a pod, later than step ``beyond``."""
    while True:
        line = await stage.logged(name, "checkpoint")
        if line["step"] > beyond:
            return line
        await stage.until(f"{name} goes on", lambda: True)
