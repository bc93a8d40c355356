"""``hcs rtos``: what RTOS guests get, and what can be done with those of this node.

``plan`` needs no node: it reads what somebody would deploy and says what the guest would get. The other commands work
with the guests of this machine, through their records and micad.
"""

import json as jsonlib
import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from hcs.cli import rtosnode
from hcs.cli.errors import USAGE, CommandError
from hcs.cli.options import Json
from hcs.cli.output import Column, Table, say, tell, write_table
from hcs.model.refusals import Refusal, RefusedError
from hcs.rtos.annotations import read_annotations, sandbox_of
from hcs.rtos.configuration import Config, read_config_text
from hcs.rtos.cpusets import parse_cpuset
from hcs.rtos.documents import Asked, read_change, read_document
from hcs.rtos.explanations import explain
from hcs.rtos.hosts import read_host
from hcs.rtos.planning import WARNINGS, GuestPlan, Mode, ignored, make_plan
from hcs.rtos.planning import plan as plan_guest
from hcs.rtos.sandboxes import Member, Sandbox, total
from hcs.rtos.updates import Record, Update, plan_update

MAX_FILE = 4 << 20

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    help="RTOS guests: what a container's settings become, and the guests of this node.",
)
rtosnode.register(app)

_EPILOG = """Examples:

  hcs rtos plan pod.yaml --pcpus 4 --memory-mb 2048

  echo '{"cpu": {"quota": 50000, "period": 100000}}' | hcs rtos plan - --json

  hcs rtos plan --update before.json after.json

A refusal exits with 2 and prints {"refused": reason, "message": sentence}."""


@app.command("plan", epilog=_EPILOG)
def plan(
    file: Annotated[
        str, typer.Argument(help="OCI config.json, Pod manifest or the compact form; - is stdin.", metavar="[FILE]")
    ] = "",
    json: Json = False,
    update: Annotated[
        tuple[str, str] | None,
        typer.Option("--update", help="Print the commands that lead from one to the other.", metavar="OLD NEW"),
    ] = None,
    explained: Annotated[
        bool, typer.Option("--explain", help="Print every conversion from raw value to result.")
    ] = False,
    config: Annotated[Path | None, typer.Option(help="The node's configuration, INI or TOML.", metavar="FILE")] = None,
    pcpus: Annotated[int, typer.Option(help="The host's pCPUs; 0 for not known.", min=0, metavar="N")] = 0,
    memory_mb: Annotated[int, typer.Option(help="The host's memory; 0 for not known.", min=0, metavar="MIB")] = 0,
    pedestal: Annotated[str, typer.Option(help="What guests run on.", metavar="NAME")] = "xen",
    lenient: Annotated[bool, typer.Option("--lenient", help="Drop a CPU set that cannot be read.")] = False,
) -> None:
    """What would the guest get? Every warning comes in words."""
    if bool(file) == (update is not None):
        raise CommandError(
            "nothing to plan" if not file else "FILE and --update contradict each other",
            "give one FILE (- for stdin), or --update OLD NEW",
            "hcs rtos plan pod.yaml",
            code=USAGE,
        )
    try:
        settings = Config() if config is None else read_config_text(_text(str(config)), Config(), name=str(config))
        host = read_host({"pcpus": pcpus, "total_memory_mb": memory_mb, "pedestal": pedestal})
        mode: Mode = "lenient" if lenient else "strict"
        if update is None:
            guests = read_document(_load(file), settings, host, mode)
            _show(guests, json=json, explained=explained)
        else:
            if update == ("-", "-"):
                raise CommandError("OLD and NEW are both stdin", "it can be read once", "name a file", code=USAGE)
            old = read_document(_load(update[0]), settings, host, mode)
            if len(old) > 1:
                raise RefusedError(Refusal("SeveralContainers", f"OLD has {len(old)} containers; an update is for one"))
            _show_update(old[0], read_change(_load(update[1]), old[0]), json=json, explained=explained)
    except RefusedError as error:
        _refuse(error.refusals[0], json=json)


def _show(guests: tuple[Asked, ...], *, json: bool, explained: bool) -> None:
    made = []
    for guest in guests:
        answer = plan_guest(guest.resources, guest.annotations, guest.config, guest.host, mode=guest.mode)
        if isinstance(answer, Refusal):
            where = f"container {guest.name}: " if len(guests) > 1 else ""
            raise RefusedError(Refusal(answer.reason, where + answer.message))
        made.append(answer)
    sandbox = _sandbox(guests, made)
    if json:
        data: dict[str, Any] = (
            _data(guests[0], made[0], explained)
            if len(guests) == 1
            else {
                "containers": {g.name: _data(g, one, explained) for g, one in zip(guests, made, strict=True)},
                "sandbox": msgspec.to_builtins(sandbox),
            }
        )
        say(msgspec.json.encode(data).decode())
        return
    for guest, one in zip(guests, made, strict=True):
        if len(guests) > 1:
            say(f"container {guest.name}")
        _write(guest, one, explained)
        if len(guests) > 1:
            say()
    if len(guests) > 1:
        ratio = f", 1:{sandbox.pcpus_served} to pCPUs" if sandbox.pcpus_served else ""
        cpus = f", CPUs {sandbox.cpuset}" if sandbox.cpuset else ""
        say(f"sandbox: {sandbox.vcpus} vCPUs{ratio}, {sandbox.memory_mb} MiB of limits{cpus}")


def _sandbox(guests: tuple[Asked, ...], made: list[GuestPlan]) -> Sandbox:
    members = [
        Member(
            sandbox_of(guest.annotations, guest.name),
            parse_cpuset(one.cpuset),
            one.vcpus,
            one.cpu_capacity,
            one.limit_mb,
            guest.resources.hugepages or 0,
        )
        for guest, one in zip(guests, made, strict=True)
    ]
    return total(members, guests[0].config, hugepages=read_annotations(guests[0].annotations).hugepage_enable)


def _data(guest: Asked, made: GuestPlan, explained: bool) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(made)
    if explained:
        data["explanation"] = dict(explain(guest, made))
        data["ignored"] = ignored(guest.resources, guest.annotations)
    return data


def _write(guest: Asked, made: GuestPlan, explained: bool) -> None:
    shown = {
        "cpu_weight": ("-" if made.cpu_weight is None else str(made.cpu_weight), "relative share of CPU time"),
        "cpu_capacity": (str(made.cpu_capacity), "percent of one pCPU" if made.cpu_capacity else "no bound"),
        "cpuset": (made.cpuset or "-", "pCPUs" if made.cpuset else "any pCPU"),
        "vcpus": (str(made.vcpus), "vCPUs the guest sees"),
        "max_vcpus": (str(made.max_vcpus), "vCPUs at most"),
        "memory_mb": (str(made.memory_mb), "MiB"),
        "min_memory_mb": (str(made.min_memory_mb), "MiB, reservation"),
        "threshold_mb": (str(made.threshold_mb), "MiB at most, ever"),
        "limit_mb": ("-" if made.limit_mb is None else str(made.limit_mb), "MiB" if made.limit_mb else "no limit"),
    }
    rows: list[tuple[str, ...]]
    if explained:
        told = dict(explain(guest, made))
        rows = [(field, shown.get(field, ("", ""))[0], text) for field, text in told.items()]
    else:
        rows = [(field, value, unit) for field, (value, unit) in shown.items()]
    write_table(Table((Column("FIELD"), Column("VALUE"), Column("BECAUSE" if explained else "", flexible=True)), rows))
    for warning in made.warnings:
        say(f"warning: {warning}: {WARNINGS[warning]}")
    for name in ignored(guest.resources, guest.annotations):
        tell(f"ignored: {name} has no meaning for a guest")


def _show_update(old: Asked, new: Asked, *, json: bool, explained: bool) -> None:
    before = make_plan(old.resources, read_annotations(old.annotations), old.config, old.host, mode=old.mode)
    worked_out = plan_update(
        Record.of(before),
        old.resources,
        new.resources,
        read_annotations(new.annotations),
        new.config,
        new.host,
        mode=new.mode,
        max_vcpus=before.max_vcpus,
    )
    if json:
        say(msgspec.json.encode(_update_data(worked_out)).decode())
        return
    for command in worked_out.commands:
        say(str(command))
    if worked_out.static:
        tell("nothing is sent: static_resource is set, the guest stays as it was created")
    elif not worked_out.commands:
        tell("nothing is sent: nothing differs")
    for warning in worked_out.plan.warnings:
        tell(f"warning: {warning}: {WARNINGS[warning]}")
    if explained:
        _write(msgspec.structs.replace(new, resources=worked_out.resources), worked_out.plan, explained=True)


def _update_data(update: Update) -> dict[str, Any]:
    threshold = update.commands[-1].after.memory.threshold_mb if update.commands else None
    data: dict[str, Any] = msgspec.to_builtins(update.plan)
    if threshold is not None:
        data["threshold_mb"] = threshold
    return {"commands": [str(command) for command in update.commands], "static": update.static, "result": data}


def _refuse(refusal: Refusal, *, json: bool) -> None:
    say(msgspec.json.encode({"refused": refusal.reason, "message": refusal.message}).decode())
    if not json:
        tell(f"refused: {refusal.message}")
    raise typer.Exit(USAGE)


def _load(name: str) -> Any:
    """Decode one file: JSON, or YAML with the first workload that stands in it."""
    text = _text(name)
    try:
        return jsonlib.loads(text)
    except RecursionError:
        raise RefusedError(Refusal("MalformedDocument", f"{_named(name)} is nested too deeply")) from None
    except ValueError as error:
        if text.lstrip().startswith(("{", "[")):
            raise RefusedError(Refusal("MalformedDocument", f"{_named(name)} is not JSON: {error}")) from error
    import yaml

    try:
        found = [one for one in yaml.safe_load_all(text) if one is not None]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise RefusedError(
            Refusal("MalformedDocument", f"{_named(name)} is neither JSON nor YAML: {reason}")
        ) from error
    workloads = [one for one in found if isinstance(one, dict) and "containers" in str(one.get("spec"))]
    return workloads[0] if workloads else found[0] if found else None


def _text(name: str) -> str:
    try:
        if name == "-":
            raw = sys.stdin.buffer.read(MAX_FILE + 1)
        else:
            with open(name, "rb") as file:
                raw = file.read(MAX_FILE + 1)
    except OSError as error:
        raise CommandError(
            f"cannot read {name}", error.strerror or str(error), "another file, or - for stdin", code=USAGE
        ) from error
    if len(raw) > MAX_FILE:
        raise RefusedError(Refusal("MalformedDocument", f"{_named(name)} is longer than {MAX_FILE} bytes"))
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise RefusedError(Refusal("MalformedDocument", f"{_named(name)} is not UTF-8 text: {error.reason}")) from error


def _named(name: str) -> str:
    return "stdin" if name == "-" else name
