"""``hcs sandbox up|down|status``: a Kubernetes with emulated cards to play with, in the background."""

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Annotated, NoReturn

import msgspec
import typer
import yaml
from rich.console import Console

from hcs.sandbox.controlplane import PROGRAMS, MissingProgramsError, check_programs
from hcs.sandbox.fleet import DEMO, FleetError, load_fleet
from hcs.sandbox.holding import STOP_SECONDS, Held, Holding, end, recall, remember
from hcs.sandbox.identities import CONTEXT, merge_context
from hcs.sandbox.supervisor import StartError

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    help="A Kubernetes with emulated cards, in the background.",
)


@app.command()
def up(
    fleet: Annotated[Path, typer.Option(help="YAML file with nodes and cards.")] = DEMO,
    kubernetes: Annotated[
        Path | None,
        typer.Option(help=f"Folder with {', '.join(PROGRAMS)}: a real control plane instead of the embedded one."),
    ] = None,
    switch: Annotated[
        bool, typer.Option("--switch/--no-switch", help="Add the context to your kubeconfig and make it current.")
    ] = True,
) -> None:
    """Start a sandbox; kubectl and hcs then speak to it."""
    if running := recall():
        _fail(f"a sandbox is already up (process {running[0].pid})", "one at a time is enough", "hcs sandbox down")
    try:
        load_fleet(fleet)
    except FleetError as error:
        _fail("the fleet file cannot be used", str(error), "hcs sandbox up   (the built-in fleet)", code=2)
    try:
        if kubernetes is not None:
            check_programs(kubernetes)
    except MissingProgramsError as error:
        _fail("there is no control plane to start", str(error), "hcs sandbox up   (the embedded one)", code=2)
    console = Console(stderr=True, highlight=False)
    begun = time.monotonic()
    try:
        with console.status("starting …") as status:
            _, held = asyncio.run(
                Holding.start(
                    fleet,
                    kubernetes=kubernetes,
                    leash=False,
                    said=lambda part: status.update(f"starting … {part} is ready"),
                )
            )
    except StartError as error:
        _fail("the sandbox did not start", str(error), "make .venv, then again")
    if switch:
        target = _kubeconfig()
        before = merge_context(target, yaml.safe_load(Path(held.kubeconfig).read_text()))
        held = msgspec.structs.replace(held, context_before=before, kubeconfig_changed=str(target))
    remember(held)
    console.print(f"sandbox up after {time.monotonic() - begun:.1f} s; all its cards are emulated")
    if switch:
        console.print(f"[dim]context {CONTEXT} is now the current one in {held.kubeconfig_changed}[/]")
        console.print("next: kubectl apply -f examples/   ·   hcs fleet   ·   hcs sandbox down")
    else:
        print(f"export KUBECONFIG={held.kubeconfig}")  # noqa: T201


@app.command()
def down() -> None:
    """End every sandbox that was left running, and leave everything as it was."""
    running = recall()
    if not running:
        _fail("no sandbox is up", "none is remembered", "hcs sandbox up")
    deadline = time.monotonic() + STOP_SECONDS

    def poll(held: Held) -> None:
        if time.monotonic() > deadline:
            _fail(f"process {held.pid} does not end", f"waited {STOP_SECONDS:g} s", f"kill -9 {held.pid}", code=124)
        time.sleep(0.05)

    end(running, poll=poll)
    print("sandbox ended" if len(running) == 1 else f"{len(running)} sandboxes ended", file=sys.stderr)  # noqa: T201


@app.command()
def status(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON line.")] = False,
) -> None:
    """Say whether a sandbox is up, and where."""
    running = recall()
    if json:
        facts: dict[str, object] = {"up": bool(running), **(_facts(running[0]) if running else {})}
        if len(running) > 1:
            facts["others"] = [_facts(held) for held in running[1:]]
        print(msgspec.json.encode(facts).decode())  # noqa: T201
    elif not running:
        print("no sandbox is up; start one with: hcs sandbox up")  # noqa: T201
    for held in () if json else running:
        print(f"up, process {held.pid}, directory {held.directory}\nexport KUBECONFIG={held.kubeconfig}")  # noqa: T201
    raise typer.Exit(0 if running else 1)


def _facts(held: Held) -> dict[str, object]:
    return {"pid": held.pid, "directory": held.directory, "kubeconfig": held.kubeconfig}


def _kubeconfig() -> Path:
    """The file kubectl would write to: the first of ``KUBECONFIG``, or the one in the home directory."""
    first = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    return Path(first) if first else Path.home() / ".kube" / "config"


def _fail(what: str, why: str, hint: str, *, code: int = 1) -> NoReturn:
    print(f"error: {what}\n  why:  {why}\n  try:  {hint}", file=sys.stderr)  # noqa: T201
    raise typer.Exit(code)
