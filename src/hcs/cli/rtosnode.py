"""The part of ``hcs rtos`` that works with this node's guests: who is there, their metrics, their balance, pools."""

import time
from collections import defaultdict
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from hcs.cli.errors import USAGE, CommandError
from hcs.cli.options import Json, NoHeaders
from hcs.cli.output import Column, Table, say, tell, write_table
from hcs.mica.client import Mica, MicaError
from hcs.mica.figures import GuestFigures, figures_of, host_figures
from hcs.mica.records import GuestRecord, Records
from hcs.mica.settings import client_of, host_of, load_config
from hcs.model.refusals import RefusedError
from hcs.rtos.configuration import Config
from hcs.rtos.cpusets import parse_cpuset, union
from hcs.rtos.hosts import Host
from hcs.rtos.memory import MemoryRecord
from hcs.rtos.rebalancing import Adjustment, Load, rebalance
from hcs.rtos.sandboxes import overlaps, pool_changes
from hcs.rtos.updates import Record

ROOTS = ("/run/hcs-rtos", "/run/containerd/runc/k8s.io")
Roots = Annotated[
    list[Path] | None,
    typer.Option("--root", help=f"Where hcs-rtos keeps its records; {' and '.join(ROOTS)} otherwise.", metavar="DIR"),
]
Apply = Annotated[bool, typer.Option("--apply", help="Do it; without, only say what would be done.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for name, function in (("guests", guests), ("rebalance", balance), ("pool", pool), ("metrics", metrics)):
        app.command(name)(function)


class Node:
    """This node's guests."""

    def __init__(self, roots: list[Path] | None) -> None:
        try:
            self.config: Config = load_config()
            self.host: Host = host_of(self.config)
            self.mica: Mica = client_of(self.config)
        except RefusedError as error:
            raise CommandError(
                "the node's configuration cannot be used", error.refusals[0].message, "mend that file"
            ) from error
        self.stores = [Records(root) for root in (roots or [Path(root) for root in ROOTS])]
        self.records: list[tuple[Records, GuestRecord]] = [(store, one) for store in self.stores for one in store.all()]

    def figures(self) -> list[GuestFigures]:
        """All guests."""
        return figures_of([record for _, record in self.records], self.config)

    def set(self, name: str, key: str, value: str) -> None:
        """Send one command and record its success at once.

        Raises:
            CommandError: it failed; nothing is recorded of it.
        """
        store = next(store for store, record in self.records if record.id == name)
        try:
            with store.locked(name):
                record = store.read(name)
                if record.given is None or record.now != "running":
                    raise CommandError(f"guest {name} does not run", f"it is {record.now}", "hcs rtos guests")
                self.mica.set(name, key, value)
                store.write(msgspec.structs.replace(record, given=changed(record.given, key, value)))
        except (MicaError, RefusedError) as error:
            refusal = error.refusal if isinstance(error, MicaError) else error.refusals[0]
            raise CommandError(
                f"set {key} {value} failed for {name}", refusal.message, "hcs rtos guests   (what is true now)"
            ) from error


def changed(given: Record, key: str, value: str) -> Record:
    """A guest's record after one ``set``."""
    match key:
        case "cpu":
            return msgspec.structs.replace(given, cpuset=value)
        case "cpucapacity":
            return msgspec.structs.replace(given, cpu_capacity=int(value))
        case "cpuweight":
            return msgspec.structs.replace(given, cpu_weight=int(value))
        case "memory":
            return msgspec.structs.replace(given, memory=MemoryRecord(int(value), given.memory.threshold_mb))
    raise ValueError(key)


def guests(roots: Roots = None, json: Json = False, no_headers: NoHeaders = False) -> None:
    """The guests of this node, what they have, and what is left."""
    node = Node(roots)
    figures = node.figures()
    host = host_figures(node.host, node.config, figures, ready=node.mica.is_up())
    if json:
        say(msgspec.json.encode({"guests": figures, "host": host}).decode())
        return
    rows: list[tuple[str, ...]] = [
        (
            one.name,
            one.status,
            str(one.weight),
            f"{one.capacity}%" if one.capacity else "-",
            one.cpuset or "-",
            str(one.vcpus),
            str(one.memory_mb),
            str(one.threshold_mb),
            "-" if one.cpu_seconds is None else f"{one.cpu_seconds:.1f}",
            one.sandbox,
        )
        for one in figures
    ]
    columns = (
        Column("GUEST"),
        Column("STATUS"),
        Column("WEIGHT", right=True),
        Column("CAPACITY", right=True),
        Column("CPUS"),
        Column("VCPUS", right=True),
        Column("MIB", right=True),
        Column("THRESHOLD", right=True),
        Column("CPU SECONDS", right=True),
        Column("SANDBOX", wide=True),
    )
    if rows:
        write_table(Table(columns, rows), headers=not no_headers)
    left = f"{host.free_memory_mb} of {host.total_memory_mb} MiB free" if host.total_memory_mb else "memory not known"
    cpus = f"{host.free_capacity / 100:g} of {host.pcpus} pCPUs unclaimed" if host.pcpus else "pCPUs not known"
    daemon = "micad is up" if host.ready else "micad is not there"
    tell(f"{host.guests} guests, {host.running} running; {left}; {cpus}; {daemon}")


def balance(
    roots: Roots = None,
    apply: Apply = False,
    json: Json = False,
    seconds: Annotated[float, typer.Option(help="How long to watch the load.", min=0.1, max=300)] = 2.0,
    load: Annotated[
        str, typer.Option(help="JSON of guest and percent of one pCPU; instead of watching.", metavar="FILE")
    ] = "",
) -> None:
    """Let weights and capacities follow the load.

    Both stay within what each container was given.
    """
    node = Node(roots)
    running = [one for one in node.figures() if one.status == "running"]
    used = _given_load(load) if load else _watched(node, running, seconds)
    loads = [
        Load(
            one.name,
            weight=one.shared_weight,
            limit=one.limit,
            present_weight=one.weight,
            present_capacity=one.capacity,
            used=used[one.name],
            vcpus=one.vcpus,
        )
        for one in running
        if one.name in used
    ]
    adjustments = rebalance(loads, node.host)
    done: list[str] = []
    try:
        for one in adjustments if apply else ():
            for key, value in one.commands:
                node.set(one.name, key, value)
                done.append(f"{one.name}: set {key} {value}")
    finally:
        _show_balance(loads, adjustments, done, json=json)


def _show_balance(loads: list[Load], adjustments: list[Adjustment], done: list[str], *, json: bool) -> None:
    if json:
        plans = [
            {
                "guest": one.name,
                "used": load.used,
                "weight": one.weight,
                "capacity": one.capacity,
                "commands": [f"set {key} {value}" for key, value in one.commands],
                "reason": one.reason,
            }
            for load, one in zip(loads, adjustments, strict=True)
        ]
        say(msgspec.json.encode({"guests": plans, "done": done}).decode())
        return
    rows: list[tuple[str, ...]] = [
        (
            one.name,
            f"{load.used}%",
            f"{load.present_weight} > {one.weight}" if one.weight != load.present_weight else str(one.weight),
            f"{load.present_capacity} > {one.capacity}" if one.capacity != load.present_capacity else str(one.capacity),
            one.reason,
        )
        for load, one in zip(loads, adjustments, strict=True)
    ]
    columns = (
        Column("GUEST"),
        Column("USED", right=True),
        Column("WEIGHT", right=True),
        Column("CAPACITY", right=True),
        Column("WHY", flexible=True),
    )
    if rows:
        write_table(Table(columns, rows))
    wanted = sum(len(one.commands) for one in adjustments)
    tell(f"{len(done)} of {wanted} commands sent" if done else f"{wanted} commands to send; --apply sends them")


def pool(roots: Roots = None, apply: Apply = False, json: Json = False) -> None:
    """CPU pools of sandboxes, and who is pinned to something else."""
    node = Node(roots)
    members: dict[str, dict[str, GuestRecord]] = defaultdict(dict)
    for _, record in node.records:
        if record.pooled and record.plan is not None and record.given is not None and record.now != "stopped":
            members[record.sandbox][record.id] = record
    if not node.config.shared_cpu_pool:
        tell("shared_cpu_pool is off: each guest has its own CPUs")
    pools = {
        name: union(parse_cpuset(r.plan.cpuset) for r in there.values() if r.plan) for name, there in members.items()
    }
    data: list[dict[str, Any]] = []
    for name, there in sorted(members.items()):
        pinned = {r.id: r.given.cpuset for r in there.values() if r.given and r.now in ("running", "paused")}
        try:
            wanted = pool_changes(pinned, pools[name])
        except RefusedError as error:
            raise CommandError(f"sandbox {name} cannot be pinned", error.refusals[0].message, "fewer CPUs") from error
        for guest, text in wanted if apply else ():
            node.set(guest, "cpu", text)
        data.append(
            {
                "sandbox": name,
                "cpus": str(pools[name]),
                "guests": sorted(there),
                "commands": [f"{guest}: set cpu {text}" for guest, text in wanted],
            }
        )
    shared = [list(found) for found in overlaps({name: str(cpus) for name, cpus in pools.items()})]
    if json:
        say(msgspec.json.encode({"pools": data, "overlaps": shared, "applied": apply}).decode())
        return
    for one in data:
        say(f"{one['sandbox']}: CPUs {one['cpus'] or '-'} for {', '.join(one['guests'])}")
        for command in one["commands"]:
            say(f"  {command}{'' if apply else '   (not sent; --apply sends it)'}")
    for first, second, cpus in shared:
        say(f"overlap: {first} and {second} share CPUs {cpus}")
    if not data:
        tell("no sandbox shares a pool")


def metrics(roots: Roots = None) -> None:
    """The guests' metrics, as Prometheus reads them."""
    from prometheus_client import CollectorRegistry, generate_latest

    from hcs.agent.guests import Guests

    node = Node(roots)
    collector = Guests(node.config, [store.root for store in node.stores])
    collector.look()
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    say(generate_latest(registry).decode().rstrip())


def _watched(node: Node, running: list[GuestFigures], seconds: float) -> dict[str, int]:
    """Percent of one pCPU that each guest used meanwhile."""
    if not running:
        return {}
    first = {one.name: one.cpu_seconds for one in node.figures()}
    if all(first[one.name] is None for one in running):
        raise CommandError(
            "the load cannot be seen",
            f"{node.config.xl} list does not tell the guests' CPU time here",
            "hcs rtos rebalance --load FILE   with what you measured",
        )
    began = time.monotonic()
    time.sleep(seconds)
    passed = time.monotonic() - began
    used = {}
    for one in node.figures():
        before = first.get(one.name)
        if before is not None and one.cpu_seconds is not None:
            used[one.name] = max(0, round((one.cpu_seconds - before) * 100 / passed))
    return used


def _given_load(file: str) -> dict[str, int]:
    try:
        raw = Path("/dev/stdin" if file == "-" else file).read_bytes()
        return {name: round(value) for name, value in msgspec.json.decode(raw, type=dict[str, float]).items()}
    except (OSError, msgspec.DecodeError, msgspec.ValidationError, ValueError, OverflowError) as error:
        raise CommandError(
            "the load cannot be read", str(error), 'a file like {"guest-1": 80, "guest-2": 5}', code=USAGE
        ) from error
