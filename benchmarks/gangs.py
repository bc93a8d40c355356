"""How long a plan for a gang of 64 members takes, in milliseconds, on fleets with three levels of nearness.

Decisions only. The fleet has 8 cards a node, all wired to each other, 4 nodes a link domain, 16 a rack, 400 a zone,
and is half full: every other card of a part of the nodes is taken. Members ask for 1, 4 or 8 whole cards; ``mixed``
are 8 of 8 cards, 24 of 4 and 32 of 1. The fleet's levels are numbered once a fleet and are counted under ``first``.
Prints one JSON line.

    python -m benchmarks.gangs [--nodes 1000,5000] [--rounds 9] [--seed 1]
"""

import argparse
import json
import platform
import random
import statistics
import time

from hcs.model.allocations import Allocation, Grant
from hcs.model.devices import Device, Link, Location, NodeInventory, Rate
from hcs.model.quantities import GIB
from hcs.model.requests import ComputeRequest, ContainerRequest
from hcs.placement.gangplanner import plan_gang
from hcs.placement.gangs import Gang, GangPlan, Member
from hcs.placement.snapshot import Snapshot

VRAM = 80 * GIB


def gang64(nodes: int, *, cards: int = 8, rounds: int = 9, seed: int = 1) -> float:
    """Median milliseconds of a plan for 64 members of ``cards`` whole cards each on a half-full fleet."""
    snapshot = _fleet(nodes, seed)
    return _median(snapshot, _gang([cards] * 64), rounds)[1]


def main() -> int:
    """Run the benchmark; 0 on success."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", default="1000,5000")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    gangs = {
        "one_card": _gang([1] * 64),
        "four_cards": _gang([4] * 64),
        "eight_cards": _gang([8] * 64),
        "mixed": _gang([8] * 8 + [4] * 24 + [1] * 32),
        "too_large": _gang([8] * 4096),
    }
    result: dict[str, object] = {
        "benchmark": "gangs",
        "machine": platform.machine(),
        "python": platform.python_version(),
    }
    for count in map(int, options.nodes.split(",")):
        snapshot = _fleet(count, options.seed)
        times = {name: _median(snapshot, gang, options.rounds) for name, gang in gangs.items()}
        result[str(count)] = {name: {"first_ms": first, "median_ms": median} for name, (first, median) in times.items()}
    print(json.dumps({**result, "seed": options.seed, "rounds": options.rounds}))
    return 0


def _median(snapshot: Snapshot, gang: Gang, rounds: int) -> tuple[float, float]:
    times = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        plan = plan_gang(snapshot, gang)
        times.append((time.perf_counter() - began) * 1e3)
        assert not isinstance(plan, GangPlan) or len(plan.members) == len(gang.members)
    return round(times[0], 2), round(statistics.median(times[1:]), 2)


def _gang(cards: list[int]) -> Gang:
    members = tuple(
        Member(f"pod-{number}", ComputeRequest((ContainerRequest("main", cards=count),), sharing="exclusive"))
        for number, count in enumerate(cards)
    )
    return Gang("bench", members)


def _fleet(nodes: int, seed: int) -> Snapshot:
    """Half full: on some nodes every card, on some a few, on some none."""
    chance = random.Random(seed)
    inventories = [_node(number) for number in range(nodes)]
    taken = []
    for inventory in inventories:
        if chance.random() < 0.5:
            used = inventory.devices[: chance.choice((1, 2, 4, 6, 8, 8, 8))]
            grants = tuple(Grant(device.id, VRAM, 100_000) for device in used)
            taken.append(
                Allocation(
                    version="v1",
                    pod=f"old-{inventory.name}",
                    node=inventory.name,
                    vendor="nvidia",
                    model="A100-SXM4-80GB",
                    containers={"main": grants},
                    exclusive=True,
                )
            )
    return Snapshot.build(inventories, taken)


def _node(number: int) -> NodeInventory:
    name = f"node-{number:05}"
    ids = [f"{name}/{index}" for index in range(8)]
    devices = tuple(
        Device(
            id=ids[index],
            index=index,
            vendor="nvidia",
            model="A100-SXM4-80GB",
            vram=VRAM,
            rates=(Rate("gemm", 100_000, "measured"),),
            links=tuple(Link(peer, "NV12") for peer in ids if peer != ids[index]),
            numa=index // 4,
            verdict="Healthy",
        )
        for index in range(8)
    )
    location = Location(zone=f"zone-{number // 400}", rack=f"rack-{number // 16}", domain=f"domain-{number // 4}")
    return NodeInventory(name, devices, location=location)


if __name__ == "__main__":
    raise SystemExit(main())
