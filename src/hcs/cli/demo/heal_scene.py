"""Scene *heal*: a card dies under a job; the job goes on elsewhere, on another vendor, from its last checkpoint."""

import datetime
import time
from pathlib import Path

from hcs.cli.demo.stage import Stage
from hcs.cli.demo.training import GIB, WANTED, train_job, train_pod
from hcs.health.checkpoints import newest_complete, step_of
from hcs.kube import resources
from hcs.model import names
from hcs.model.allocations import allocation_of
from hcs.model.devices import Quarantine
from hcs.vendors import emulated

_VRAM = 60 * GIB
_FELL_OFF_THE_BUS = 79
_MOST_SECONDS = 1.0
"""From the fault to the quarantine."""


async def play(stage: Stage) -> None:
    """Break the card under a running job."""
    folder = stage.directory / "shared" / "heal"
    whole = {names.MODELS: WANTED, names.SHARING: "exclusive", names.SUBSTITUTION: "auto"}
    stage.say(f"A job trains on a whole {WANTED}; another pod holds the only other one.")
    await stage.create(
        train_job(
            "heal",
            vram=_VRAM,
            arguments=("--steps", "100000", "--step-seconds", "0.02", "--checkpoint-every", "20"),
            annotations={**whole, names.PORTABLE: "true"},
            checkpoints=str(folder),
        )
    )
    first = await stage.until("the job's pod is placed", lambda: _placed(stage, set()), seconds=20)
    name, allocation = first.metadata.name, allocation_of(first)
    assert allocation is not None
    (device,) = allocation.devices()
    arguments = ("--steps", "100000", "--step-seconds", "0.05")
    await stage.create(train_pod("heal-other", vram=_VRAM, arguments=arguments, annotations=whole))
    await stage.bound("heal-other")
    checkpoint = await stage.logged(name, "checkpoint")
    stage.say(
        f"[bold]{name}[/] runs on {allocation.node}, {allocation.model} [dim]{device}[/], at step {checkpoint['step']}"
    )
    card = _card(stage, allocation.node, device)
    struck, clock = datetime.datetime.now(datetime.UTC), time.monotonic()
    emulated.inject_fault(card, _FELL_OFF_THE_BUS, "fell off the bus")
    stage.say(f"[red]Xid {_FELL_OFF_THE_BUS}: the card falls off the bus[/]")
    entry = await stage.until("the card is quarantined", lambda: _quarantined(stage, allocation.node, device))
    quarantine_seconds = (_time(entry.since) - struck).total_seconds()
    stage.say(f"quarantined after {quarantine_seconds:.2f} s: {entry.message}")
    second = await stage.until("a replacement is placed", lambda: _placed(stage, {first.metadata.uid}), seconds=20)
    replacement = allocation_of(second)
    assert replacement is not None
    last = newest_complete(path.name for path in folder.iterdir()) or ""
    resumed = await stage.logged(second.metadata.name, "resume")
    await stage.logged(second.metadata.name, "checkpoint")
    seconds = time.monotonic() - clock
    stage.say(
        f"[bold]{second.metadata.name}[/] → {replacement.node}, {replacement.model}, resumed at step {resumed['step']} "
        f"[dim](HCS_RESUME_FROM={second.annotations.get(names.RESUME)})[/]"
    )
    stage.claim(f"quarantined within {_MOST_SECONDS:g} s of the fault", quarantine_seconds < _MOST_SECONDS)
    stage.claim("the old pod was evicted", stage.pod(name) is None)
    stage.claim(
        "the replacement runs on another vendor's card",
        replacement.vendor != allocation.vendor and device not in replacement.devices(),
    )
    stage.claim(
        f"it resumed from its last checkpoint, step {checkpoint['step']} or later",
        resumed["step"] >= checkpoint["step"] and resumed["step"] > 0,
    )
    stage.facts.update(
        failed={"node": allocation.node, "vendor": allocation.vendor, "device": device, "xid": _FELL_OFF_THE_BUS},
        replacement={
            "node": replacement.node,
            "vendor": replacement.vendor,
            "devices": sorted(replacement.devices()),
        },
        seconds_to_quarantine=round(quarantine_seconds, 3),
        seconds_to_resumed_step=round(seconds, 3),
        last_checkpoint_step=checkpoint["step"],
        newest_checkpoint_on_disk=step_of(last),
        resumed_step=resumed["step"],
    )
    await stage.client.delete(resources.Job, "heal", namespace="default")
    await stage.remove(second.metadata.name, "heal-other")
    emulated.clear_fault(card)


def _placed(stage: Stage, but: set[str]) -> resources.Pod | None:
    """A placed pod of the job, other than those given."""
    for pod in stage.pods.values():
        owner = pod.controller
        if (
            owner is not None
            and owner.name == "heal"
            and pod.metadata.uid not in but
            and allocation_of(pod) is not None
        ):
            return pod
    return None


def _card(stage: Stage, node: str, device: str) -> Path:
    """The state file of an emulated card."""
    folder = stage.directory / "nodes" / node / "cards"
    return next(path for path in sorted(folder.glob("*.card")) if emulated.read_card(path).uuid == device)


def _quarantined(stage: Stage, node: str, device: str) -> Quarantine | None:
    found = stage.nodes.get(node)
    return found.inventory().quarantined(device) if found is not None else None


def _time(stamp: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(stamp)
