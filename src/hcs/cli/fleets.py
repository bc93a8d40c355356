"""The fleet a planning command looks at: a file, a router's snapshot, or the cluster as it is now."""

from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer
import yaml

from hcs.cli.errors import USAGE, CommandError
from hcs.model.allocations import Allocation
from hcs.model.devices import Device, NodeInventory
from hcs.model.pods import Pod
from hcs.model.quantities import parse_bytes
from hcs.placement.snapshot import Snapshot
from hcs.router.images import RuntimeImage
from hcs.simulate.work import Room

DEMO: Final = "demo"

FleetFile = Annotated[
    str | None,
    typer.Option(
        "--fleet",
        metavar="FILE",
        help="A fleet file, or ComputeNodes as kubectl get computenodes -o yaml writes them; 'demo' is the demo's.",
    ),
]
SnapshotFile = Annotated[
    Path | None, typer.Option("--snapshot", metavar="FILE", help="What a router answered at /debug/snapshot.")
]


class Standing(msgspec.Struct, frozen=True):
    """Nodes, what is held on them, what they have beside cards, and the pods a snapshot says are waiting."""

    inventories: tuple[NodeInventory, ...]
    allocations: tuple[Allocation, ...] = ()
    rooms: dict[str, Room] = {}
    offers: tuple[RuntimeImage, ...] = ()
    waiting: tuple[Pod, ...] = ()

    @property
    def snapshot(self) -> Snapshot:
        """The same for placement."""
        return Snapshot.build(self.inventories, self.allocations)


class RouterSnapshot(msgspec.Struct, frozen=True):
    """``/debug/snapshot`` of a router: the input of its next decision. Further fields are ignored."""

    nodes: tuple[NodeInventory, ...]
    allocations: tuple[Allocation, ...] = ()
    reservations: tuple[Allocation, ...] = ()
    offers: tuple[RuntimeImage, ...] = ()
    waiting: tuple[Pod, ...] = ()


def standing(fleet: str | None, snapshot: Path | None, kubeconfig: str | None, context: str | None) -> Standing:
    """Read the fleet from where the options say; from the cluster where they say nothing.

    Raises:
        CommandError: two places at once, or one that cannot be read.
    """
    if fleet is not None and snapshot is not None:
        raise CommandError("two fleets at once", "--fleet and --snapshot both name one", "keep one of them", code=USAGE)
    if snapshot is not None:
        return _of_snapshot(snapshot)
    if fleet is not None:
        return _of_file(fleet)
    return _of_cluster(kubeconfig, context)


def _of_snapshot(path: Path) -> Standing:
    try:
        seen = msgspec.json.decode(path.read_bytes(), type=RouterSnapshot)
    except (OSError, msgspec.MsgspecError) as error:
        raise CommandError(
            f"cannot read the snapshot {path}",
            str(error),
            "curl -s http://127.0.0.1:PORT/debug/snapshot > FILE      on the router's host",
            code=USAGE,
        ) from error
    return Standing(seen.nodes, (*seen.allocations, *seen.reservations), {}, seen.offers, seen.waiting)


def _of_file(name: str) -> Standing:
    from hcs.sandbox.fleet import DEMO as DEMO_FILE
    from hcs.sandbox.fleet import FleetError, load_fleet

    path = DEMO_FILE if name == DEMO and not Path(name).exists() else Path(name)
    nodes = _compute_nodes(path)
    if nodes is not None:
        return Standing(nodes)
    try:
        fleet = load_fleet(path)
        inventories = tuple(
            NodeInventory(node.name, _devices(node.name, [(c.vendor, c.model, c.count) for c in node.cards]))
            for node in fleet.nodes
        )
        rooms = {node.name: Room(node.cpu * 1000, parse_bytes(node.memory)) for node in fleet.nodes}
    except (FleetError, ValueError, LookupError) as error:
        raise CommandError(
            f"cannot use the fleet file {path}", str(error), "hcs simulate --help      shows one", code=USAGE
        ) from error
    return Standing(inventories, (), rooms)


def _compute_nodes(path: Path) -> tuple[NodeInventory, ...] | None:
    """The ComputeNodes in a file, None where it is something else."""
    from hcs.kube.resources import ComputeNode

    try:
        documents = [d for d in yaml.safe_load_all(path.read_text()) if isinstance(d, dict)]
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise CommandError(
            f"cannot read {path}", " ".join(str(error).split()), "--fleet demo, or a YAML file", code=USAGE
        ) from error
    objects = [item for d in documents for item in (d.get("items") or [] if d.get("kind") == "List" else [d])]
    found = [o for o in objects if isinstance(o, dict) and o.get("kind") == "ComputeNode"]
    if not found:
        return None
    try:
        return tuple(msgspec.convert(o, ComputeNode).inventory() for o in found)
    except msgspec.ValidationError as error:
        raise CommandError(
            f"cannot read a ComputeNode in {path}", str(error), "kubectl get computenodes -o yaml", code=USAGE
        ) from error


def _devices(node: str, cards: list[tuple[str, str, int]]) -> tuple[Device, ...]:
    from hcs.ura.catalogue import as_device, load_catalogue

    devices: list[Device] = []
    for vendor, name, count in cards:
        model = load_catalogue().find(name, vendor)
        for _ in range(count * model.devices_per_board):
            index = sum(device.vendor == vendor for device in devices)
            devices.append(as_device(model, f"{vendor}-{node}-{index}", index, verdict="Healthy", emulated=True))
    return tuple(devices)


def _of_cluster(kubeconfig: str | None, context: str | None) -> Standing:
    from hcs.cli.cluster import read_cluster

    cluster = read_cluster(kubeconfig, context)
    allocations = tuple(allocation for _, allocation in cluster.held.values())
    return Standing(cluster.inventories, allocations, _rooms(cluster), cluster.offers)


def _rooms(cluster: Any) -> dict[str, Room]:
    """What is allocatable on each node, less what its pods request."""
    from hcs.kube.amounts import parse_thousandths, requested

    rooms = {}
    for node in cluster.nodes:
        allocatable = node.status.get("allocatable") or {}
        held = [
            requested(msgspec.to_builtins(pod.spec))
            for pod in cluster.pods
            if pod.spec.nodeName == node.metadata.name and not pod.finished
        ]
        free = {
            name: parse_thousandths(allocatable.get(name, otherwise)) - sum(asked.get(name, 0) for asked in held)
            for name, otherwise in (("cpu", 0), ("memory", 0), ("pods", 110))
        }
        rooms[node.metadata.name] = Room(free["cpu"], free["memory"] // 1000, free["pods"] // 1000)
    return rooms
