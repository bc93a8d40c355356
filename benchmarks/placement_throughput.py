"""How long one placement decision takes, in milliseconds, by what is asked and how large the fleet is.

Decisions only: no API server, no HTTP, no kube-scheduler. The fleet has 8 devices a node, three kinds of cards, and is
half full of shares; each decision is followed by the snapshot that has it, and sometimes by one in which an old pod has
ended, both counted. ``firstfit`` on the same fleet is the simple method to compare with. Prints one JSON line.

    python -m benchmarks.placement_throughput [--nodes 1000] [--decisions 300] [--seed 1]
"""

import argparse
import json
import platform
import random
import statistics
import time

from hcs.model.allocations import Allocation
from hcs.model.devices import Device, NodeInventory, Rate
from hcs.model.quantities import GIB
from hcs.model.requests import ComputeRequest, ContainerRequest
from hcs.placement.engine import place
from hcs.placement.plans import Placement
from hcs.placement.snapshot import Snapshot

CARDS = (("nvidia", "A100-SXM4-80GB", 80, 100_000), ("ascend", "910B2", 64, 121_558), ("nvidia", "T4", 16, 20_800))
REQUESTS = {
    "share": ComputeRequest((ContainerRequest("main", vram=10 * GIB, milliacu=8_000),)),
    "whole_cards": ComputeRequest((ContainerRequest("main", cards=2),), sharing="exclusive"),
    "two_containers": ComputeRequest(
        (ContainerRequest("one", vram=10 * GIB), ContainerRequest("two", vram=20 * GIB, milliacu=9_000))
    ),
    "substituted": ComputeRequest(
        (ContainerRequest("main", cards=1),), models=("H100-SXM5",), substitution="auto", sharing="exclusive"
    ),
    "refused": ComputeRequest((ContainerRequest("main", vram=90 * GIB),)),
}
REFERENCE_RATES = {"H100-SXM5": (Rate("gemm", 243_000, "measured"),)}


def main() -> int:
    """Run the benchmark; 0 on success."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--decisions", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    nodes = [_node(f"node-{number:05}", *CARDS[number % len(CARDS)]) for number in range(options.nodes)]
    began = time.perf_counter()
    snapshot = Snapshot.build(nodes)
    build_ms = (time.perf_counter() - began) * 1e3
    live: list[Allocation] = []
    while len(live) < 4 * options.nodes:
        answer = place(snapshot, REQUESTS["share"])
        assert isinstance(answer, Placement)
        live.append(answer.allocation(f"pod-{len(live)}"))
        snapshot = snapshot.with_allocation(live[-1])
    result = {
        "benchmark": "placement_throughput",
        "nodes": options.nodes,
        "devices": len(snapshot.fleet.devices),
        "pods": len(live),
        "build_ms": round(build_ms, 1),
        "decision_ms": {
            name: _times(snapshot, list(live), request, options.decisions, chance) for name, request in REQUESTS.items()
        },
        "firstfit_share_ms": _times(snapshot, list(live), REQUESTS["share"], 20, chance, "firstfit"),
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
    }
    print(json.dumps(result))
    return 0


def _node(name: str, vendor: str, model: str, gi: int, milliacu: int) -> NodeInventory:
    rates = (Rate("gemm", milliacu, "measured"),)
    return NodeInventory(
        name,
        tuple(
            Device(f"{name}/{index}", index, vendor, model, gi * GIB, rates, verdict="Healthy") for index in range(8)
        ),
    )


def _times(
    snapshot: Snapshot,
    live: list[Allocation],
    request: ComputeRequest,
    decisions: int,
    chance: random.Random,
    policy: str = "hcs",
) -> dict[str, float]:
    """Decide again and again; every placed pod replaces a random one."""
    times = []
    for number in range(decisions):
        began = time.perf_counter()
        answer = place(snapshot, request, reference_rates=REFERENCE_RATES, policy=policy)
        if isinstance(answer, Placement):
            live.append(answer.allocation(f"new-{number}"))
            snapshot = snapshot.with_allocation(live[-1])
            snapshot = snapshot.without(live.pop(chance.randrange(len(live))))
        times.append((time.perf_counter() - began) * 1e3)
    times.sort()
    return {"median": round(statistics.median(times), 3), "p99": round(times[len(times) * 99 // 100], 3)}


if __name__ == "__main__":
    raise SystemExit(main())
