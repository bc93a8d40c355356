"""Scene *route*: the same file runs on NVIDIA, and on Ascend when NVIDIA is full, at an exchange rate that is shown."""

import hashlib

from hcs.cli.demo.stage import Stage
from hcs.cli.demo.torch_training import train_if_installed
from hcs.cli.demo.training import GIB, WANTED, train_pod
from hcs.model import names
from hcs.model.quantities import show_acu
from hcs.sandbox.files import examples_directory

_VRAM = 60 * GIB


async def play(stage: Stage) -> None:
    """Fill the wanted cards, then ask for one more."""
    digest = hashlib.sha256((examples_directory() / "train.py").read_bytes()).hexdigest()
    annotations = {names.MODELS: WANTED, names.SHARING: "exclusive", names.SUBSTITUTION: "auto"}
    arguments = ("--steps", "400", "--step-seconds", "0.03", "--checkpoint-every", "40")
    stage.say(f"Three equal pods ask for a whole {WANTED} each; the room has two. Substitution is allowed.")
    pods = ["route-1", "route-2", "route-3"]
    for name in pods[:2]:
        await stage.create(train_pod(name, vram=_VRAM, arguments=arguments, annotations=annotations))
    first = [await stage.bound(name) for name in pods[:2]]
    await stage.create(train_pod(pods[2], vram=_VRAM, arguments=arguments, annotations=annotations))
    bound = [*first, await stage.bound(pods[2])]
    starts = [await stage.logged(name, "start") for name in pods]
    for (pod, allocation), start in zip(bound, starts, strict=True):
        devices = sorted(allocation.devices())
        image = pod.spec.containers[0].image
        stage.say(f"[bold]{pod.metadata.name}[/] → {allocation.node}, {allocation.model} [dim]{', '.join(devices)}[/]")
        stage.say(f"  [dim]image {image}; its driver says: {start.get('device')}[/]")
        reason = pod.annotations.get(names.ROUTE_REASON)
        if reason:
            stage.say(f"  [italic]{reason}[/]")
    exchange = bound[2][1].exchange
    stage.claim("the first two run on NVIDIA", all(allocation.vendor == "nvidia" for _, allocation in first))
    stage.claim("no card was given twice", len({d for _, a in bound for d in a.devices()}) == len(pods))
    stage.claim(
        "the third was substituted by Ascend",
        bound[2][1].vendor == "ascend" and exchange is not None and starts[2].get("vendor") == "ascend",
    )
    if exchange is not None:
        stage.claim(
            f"the exchange rate is shown: {exchange.wanted} {show_acu(exchange.wanted_milliacu)} ACU, "
            f"{exchange.got} {show_acu(exchange.got_milliacu)} ACU in {exchange.workload} ({exchange.source})",
            exchange.wanted_milliacu > 0 and exchange.got_milliacu > 0,
        )
    images = {pod.spec.containers[0].image for pod, _ in bound}
    stage.claim(
        "the image was rebound to the vendor's at bind", len(images) == 2 and all("pending" not in i for i in images)
    )
    stage.claim("one file, unchanged, on both vendors", {start.get("sha256") for start in starts} == {digest})
    progress = [await stage.logged(name, "checkpoint") for name in pods]
    stage.claim("all three compute and have written a checkpoint", all(line["step"] > 0 for line in progress))
    stage.facts.update(
        pods=[
            {
                "pod": pod.metadata.name,
                "node": allocation.node,
                "vendor": allocation.vendor,
                "model": allocation.model,
                "devices": sorted(allocation.devices()),
                "image": pod.spec.containers[0].image,
            }
            for pod, allocation in bound
        ],
        exchange=(
            {
                "wanted": exchange.wanted,
                "got": exchange.got,
                "workload": exchange.workload,
                "wanted_milliacu": exchange.wanted_milliacu,
                "got_milliacu": exchange.got_milliacu,
                "source": exchange.source,
            }
            if exchange
            else None
        ),
        train_sha256=digest,
    )
    await train_if_installed(stage)
    await stage.remove(*pods)
