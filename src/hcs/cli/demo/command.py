"""``hcs demo``: the command itself."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from hcs.cli.demo.scenes import SCENES
from hcs.cli.demo.telling import EMBEDDED, ControlPlaneChoice, tell
from hcs.cli.errors import USAGE, CommandError
from hcs.sandbox.controlplane import PROGRAMS, MissingProgramsError, version
from hcs.sandbox.supervisor import StartError


def run(
    scene: Annotated[list[str] | None, typer.Option(help=f"Only this scene: {', '.join(SCENES)}. Repeatable.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON line instead of the story.")] = False,
    kubernetes: Annotated[
        Path | None,
        typer.Option(help=f"Folder with {', '.join(PROGRAMS)}: a real control plane instead of the embedded one."),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the sandbox running, with a kubeconfig.")] = False,
) -> None:
    """Start a sandbox with emulated cards and tell the story in five scenes, each checking its own claim."""
    unknown = [name for name in scene or () if name not in SCENES]
    if unknown:
        raise typer.BadParameter(f"no scene {unknown[0]!r}; there are {', '.join(SCENES)}", param_hint="--scene")
    try:
        plane = ControlPlaneChoice(kubernetes, version(kubernetes)) if kubernetes is not None else EMBEDDED
    except MissingProgramsError as error:
        raise CommandError("there is no control plane to start", str(error), "hcs demo", code=USAGE) from error
    console = Console(file=sys.stderr if json else sys.stdout, quiet=json, highlight=False)
    try:
        report, kept = asyncio.run(tell(scene or list(SCENES), console, plane=plane, keep=keep))
    except StartError as error:
        print(f"error: the sandbox did not start\n  why:  {error}\n  try:  make .venv, then again", file=sys.stderr)  # noqa: T201
        raise typer.Exit(1) from error
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("interrupted; everything was ended", file=sys.stderr)  # noqa: T201
        raise typer.Exit(130) from None
    if json:
        print(msgspec.json.encode(report).decode())  # noqa: T201
    else:
        console.print()
        verdict = "[bold green]every claim held[/]" if report.ok else "[bold red]a claim did not hold[/]"
        console.print(f"{verdict} in {report.seconds:.1f} s")
    if kept is not None:
        print(f"export KUBECONFIG={kept.kubeconfig}   # end it with: hcs sandbox down", file=sys.stderr)  # noqa: T201
    raise typer.Exit(0 if report.ok else 1)
