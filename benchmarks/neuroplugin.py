"""How fast the device plugin answers: one JSON line.

    python -m benchmarks.neuroplugin

The plugin serves 20 000 ids on a real Unix socket to a kubelet that is true to the wire; the kubelet asks with its own
gRPC client. ``reregistered_s`` is the longest time from a kubelet's new socket to the registration, ``allocate_p99_ms``
that of an Allocate of 150 ids; wall clock, this machine and whatever else runs on it.
"""

import asyncio
import json
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the kubelet is that of the tests

from tests.deviceplugin.kubelet import fake_kubelet
from tests.neuro.boards import board
from tests.protobuf import write
from tests.waiting import until

from hcs.neuroplugin.node import NeuroNode
from hcs.neuroplugin.settings import Settings
from hcs.vendors.emulated_board import EmulatedBoard

IDS = 20_000
CALLS = 400
RESTARTS = 5
KSPS = "snn.ai.compute/ksps"


async def measure(folder: Path) -> dict[str, Any]:
    """Restart the kubelet and admit pods."""
    node = NeuroNode(
        {"b0": EmulatedBoard(board(width=24, height=24, ksps=IDS))},
        Settings(resources=("ksps",)),
        directory=folder / "device-plugins",
        pod_resources=folder / "pod-resources.sock",
    )
    await node.publish()
    async with fake_kubelet(folder, node.tasks()) as kubelet:
        await kubelet.has(KSPS, IDS, IDS)
        restarts = []
        for _ in range(RESTARTS):
            await kubelet.stop()
            known = len(kubelet.registrations)
            await kubelet.start()
            begun = time.perf_counter()
            await until(lambda known=known: len(kubelet.registrations) > known)  # type: ignore[misc]
            restarts.append(time.perf_counter() - begun)
            await kubelet.has(KSPS, IDS, IDS)
        endpoint = kubelet.endpoints[KSPS]
        times = []
        ids = list(endpoint.health)
        for number in range(CALLS):
            first = number * 150 % (IDS - 150)
            request = write([(1, [(1, unit) for unit in ids[first : first + 150]])])
            begun = time.perf_counter()
            await endpoint.call("Allocate")(request)
            times.append(time.perf_counter() - begun)
    times.sort()
    return {
        "ids": IDS,
        "list_bytes": sum(len(unit) + 13 for unit in ids),
        "reregistered_s": round(max(restarts), 3),
        "allocate_p50_ms": round(times[len(times) // 2] * 1000, 3),
        "allocate_p99_ms": round(times[len(times) * 99 // 100] * 1000, 3),
    }


def main() -> int:
    """Print one JSON line."""
    with tempfile.TemporaryDirectory(prefix="hcs-") as folder:
        found = asyncio.run(measure(Path(folder)))
    machine = f"{platform.machine()}, Python {platform.python_version()}"
    print(json.dumps({"benchmark": "neuroplugin", "machine": machine, **found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
