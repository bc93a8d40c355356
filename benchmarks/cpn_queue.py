"""What the durable queue costs: taking a job in, taking it a step on, reading the queue, opening the file.

Prints one JSON line. Every submission and every step is synced to the disk before it returns, so the figures are those
of the disk; ``together`` is what a decision does that starts many jobs in one transaction.

    python -m benchmarks.cpn_queue [--jobs 1000] [--folder DIR]
"""

import argparse
import itertools
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hcs.store.queue import QueueStore
from hcs.wide.generation import generate, manifest
from hcs.wide.submissions import read_submission


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--folder", type=Path, default=None, help="where the file lies; a temporary folder otherwise")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        figures = measured(Path(folder) / "queue.db", options.jobs, options.seed)
    machine = {"cpus": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()}
    command = f"python -m benchmarks.cpn_queue --jobs {options.jobs} --seed {options.seed}"
    print(
        json.dumps({"benchmark": "cpn_queue", **figures, "jobs": options.jobs, "machine": machine, "command": command})
    )


def measured(path: Path, count: int, seed: int) -> dict[str, float]:
    """All figures, in milliseconds."""
    manifests = [manifest(made) for made in generate(count, seed, ("any",))]
    numbers = itertools.count()
    figures: dict[str, float] = {}

    def timed(name: str, work: Callable[[], Any], each: int = 1) -> Any:
        begun = time.perf_counter()
        found = work()
        figures[name] = round((time.perf_counter() - begun) * 1000 / each, 3)
        return found

    def opened() -> QueueStore:
        return QueueStore.open(path, make_id=lambda: f"j{next(numbers):07d}")

    asked = timed("read_ms", lambda: [read_submission(each, 0).submission for each in manifests], count)
    store = opened()
    entries = timed(
        "submit_ms",
        lambda: [
            store.submit(each, ask, key=f"k{number}", now=0)[0]
            for number, (each, ask) in enumerate(zip(manifests, asked, strict=True))
        ],
        count,
    )
    timed(
        "known_key_ms",
        lambda: [
            store.submit(each, ask, key=f"k{number}", now=0)
            for number, (each, ask) in enumerate(zip(manifests, asked, strict=True))
        ],
        count,
    )
    half = count // 2
    placed = timed(
        "step_ms",
        lambda: [store.move(entry, "Placing", now=1, reason="Placed", message="m") for entry in entries[:half]],
        max(1, half),
    )

    def together() -> None:
        with store.together():
            for entry in placed:
                store.move(entry, "Created", now=2, reason="Created", message="m")

    timed("step_together_ms", together, max(1, half))
    timed("whole_queue_ms", store.entries)
    timed("counts_ms", store.counts)
    store.close()
    timed("open_and_check_ms", lambda: opened().close())
    figures["file_mib"] = round(path.stat().st_size / (1 << 20), 2)
    return figures


if __name__ == "__main__":
    main()
