"""How fast guests are planned, and how long one guest's life takes under ``hcs-rtos``.

The planner runs on one core over a mix of containers: plain, pinned, bound, limited, refused. A life is ``create``,
``start``, ``kill`` and ``delete`` as four programs, as a container runtime calls them, on an emulated micad whose guest
really boots; ``run`` is the same through a real containerd where there is one. Prints one JSON line.

    python -m benchmarks.rtos [--plans 40000] [--lives 10]
"""

import argparse
import contextlib
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from hcs.mica.records import process_start
from hcs.model.refusals import Refusal
from hcs.rtos.annotations import PREFIX
from hcs.rtos.configuration import Config
from hcs.rtos.hosts import Host
from hcs.rtos.planning import plan
from hcs.rtos.resources import Resources

sys.path.insert(0, str(Path(__file__).parents[1]))

BINDING = {f"{PREFIX}runtime.vcpu_pcpu_binding": "true", f"{PREFIX}container.max_vcpu_num": "4"}
TYPICAL = {
    f"{PREFIX}container.os": "zephyr",
    f"{PREFIX}container.firmware_path": "/firmware.elf",
    f"{PREFIX}ped.conf": "image.bin",
    "io.kubernetes.cri.container-type": "container",
}
MIX: list[tuple[Resources, dict[str, str]]] = [
    (Resources(), {}),
    (Resources(shares=512, quota=100_000, period=100_000, limit=512 << 20), TYPICAL),
    (Resources(shares=2048, cpus="0,2,4-6", quota=75_000, period=100_000, limit=128 << 20), TYPICAL),
    (Resources(cpus="0-3", limit=64 << 20, reservation=32 << 20), BINDING),
    (Resources(cpus="3,1,2,2,0 , 7"), TYPICAL),
    (Resources(limit=1 << 20), TYPICAL),
]


def plans_per_second(count: int) -> float:
    """Plans of the mix, one after the other."""
    config, host = Config(), Host(pcpus=8, total_memory_mb=8192)
    assert isinstance(plan(*MIX[-1], config, host), Refusal)
    began = time.perf_counter()
    for _ in range(count // len(MIX)):
        for resources, annotations in MIX:
            plan(resources, annotations, config, host)
    return count // len(MIX) * len(MIX) / (time.perf_counter() - began)


def lives(count: int) -> dict[str, list[float]]:
    """Seconds of each step of a guest's life, and of all of it."""
    from tests.ocirt.containerd import Containerd, missing
    from tests.ocirt.scene import Scene
    from tests.sandbox.micad.emulator import as_process

    seconds: dict[str, list[float]] = {step: [] for step in ("create", "start", "kill", "delete", "life")}
    with as_process() as micad, tempfile.TemporaryDirectory(prefix="rtos-") as folder:
        scene = Scene(Path(folder), micad)
        bundle = scene.bundle()
        for number in range(count):
            name, spent = f"g{number}", 0.0
            for step in ("create", "start", "kill", "delete"):
                began = time.perf_counter()
                if step == "create":
                    scene.create(name, bundle)
                else:
                    scene.run(step, name, *(["KILL"] if step == "kill" else []))
                took = time.perf_counter() - began
                seconds[step].append(took)
                spent += took
                if step == "kill":
                    began = time.perf_counter()
                    while scene_alive(scene, name):
                        time.sleep(0.002)
                    spent += time.perf_counter() - began
            seconds["life"].append(spent)
        if not missing():
            with contextlib.closing(Containerd(scene)) as containerd:
                seconds["containerd"] = [_through_containerd(containerd, bundle, n) for n in range(count)]
        scene.close()
    return seconds


def scene_alive(scene: Any, name: str) -> bool:
    """Whether the container's relay is still there."""
    return process_start(scene.record(name)["pid"]) != 0


def _through_containerd(containerd: Any, bundle: Path, number: int) -> float:
    """Seconds from ``ctr run`` of a guest that ends as soon as it is up, to its deletion."""
    (bundle / "rootfs/firmware.elf").write_text("#!/bin/sh\nexit 0\n")
    arguments = containerd.run_arguments(f"c{number}", bundle, "--rm")
    began = time.perf_counter()
    containerd.ctr(*arguments)
    return time.perf_counter() - began


def main() -> int:
    """Run the benchmark; 0 on success."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plans", type=int, default=40_000)
    parser.add_argument("--lives", type=int, default=10)
    options = parser.parse_args()
    rates = [plans_per_second(options.plans) for _ in range(3)]
    measured = lives(options.lives) if options.lives else {}
    result = {
        "benchmark": "rtos",
        "plans_per_second": round(max(rates)),
        "seconds": {
            step: {"median": round(statistics.median(times), 3), "worst": round(max(times), 3)}
            for step, times in measured.items()
        },
        "plans": options.plans,
        "lives": options.lives,
        "emulated": ["micad", "hypervisor"],
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}",
        "command": "make bench-rtos",
    }
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
