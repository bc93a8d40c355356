"""Play the scenes on a fresh sandbox and say how it went."""

import asyncio
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import httpx2
import msgspec
from lightkube import ApiError
from rich.console import Console

from hcs.cli.demo.scenes import SCENES
from hcs.cli.demo.stage import ClaimFailedError, Stage
from hcs.kube.connection import connect
from hcs.sandbox.fleet import DEMO
from hcs.sandbox.holding import Held, Holding, remember


class SceneReport(msgspec.Struct, frozen=True):
    """How one scene went."""

    name: str
    ok: bool
    seconds: float
    facts: dict[str, Any]
    claims: list[dict[str, Any]]
    error: str = ""


class ControlPlaneChoice(msgspec.Struct, frozen=True):
    """Which Kubernetes the scenes play on: the folder of its programs, None for the embedded one, and its name."""

    programs: Path | None
    name: str


EMBEDDED: Final = ControlPlaneChoice(None, "embedded")


class Report(msgspec.Struct, frozen=True):
    """How the whole demo went; what ``--json`` prints."""

    ok: bool
    seconds: float
    scenes: list[SceneReport]
    control_plane: str
    emulated: bool = True


async def tell(
    names: Sequence[str], console: Console, *, plane: ControlPlaneChoice = EMBEDDED, keep: bool
) -> tuple[Report, Held | None]:
    """Start a sandbox, play scenes, end it.

    Args:
        names: of the scenes, in order.
        console: where the story is told.
        plane: the Kubernetes to play on.
        keep: leave the sandbox running.

    Returns:
        The report, and the sandbox when it was kept.

    Raises:
        StartError: the sandbox did not come up.
        asyncio.CancelledError: interrupted; everything has been ended by then.
    """
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    begun = time.monotonic()
    console.print("[bold]A machine room on your laptop[/]  [dim]all cards are emulated; everything else is real[/]")
    with console.status("starting the sandbox …") as status:
        holding, held = await Holding.start(
            DEMO,
            kubernetes=plane.programs,
            leash=not keep,
            said=lambda part: status.update(f"starting the sandbox … {part} is ready"),
        )
    console.print(f"[dim]sandbox up after {time.monotonic() - begun:.1f} s, control plane: {plane.name}[/]")
    kept = False
    try:
        scenes = await _play(names, held, console)
        ok = all(scene.ok for scene in scenes)
        report = Report(ok, round(time.monotonic() - begun, 2), scenes, plane.name)
        kept = keep
    finally:
        if not kept:
            await holding.stop()
    if kept:
        remember(held)
    return report, held if kept else None


async def _play(names: Sequence[str], held: Held, console: Console) -> list[SceneReport]:
    stage = Stage(connect(held.kubeconfig), Path(held.directory), Path(held.kubeconfig), console)
    await stage.open()
    try:
        return [await _scene(stage, name) for name in names]
    finally:
        await stage.close()


async def _scene(stage: Stage, name: str) -> SceneReport:
    title, play = SCENES[name]
    stage.console.print()
    stage.console.rule(f"[bold]{name}[/]  {title}", align="left", style="dim")
    stage.begin()
    begun, error = time.monotonic(), ""
    try:
        await play(stage)
    except (ClaimFailedError, ApiError, httpx2.HTTPError, msgspec.DecodeError, LookupError) as failure:
        error = str(failure)
        stage.say(f"[bold red]✗[/] {error}")
    seconds = time.monotonic() - begun
    stage.say(f"[dim]{seconds:.1f} s[/]")
    claims = [{"text": claim.text, "ok": claim.ok} for claim in stage.claims]
    ok = not error and bool(claims) and all(claim.ok for claim in stage.claims)
    return SceneReport(name, ok, round(seconds, 2), stage.facts, claims, error)
