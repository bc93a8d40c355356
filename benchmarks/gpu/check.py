"""The interceptor on a real NVIDIA card: frameworks under a quota, the ledger against NVML, two tenants, step time.

Each check is a program of its own, run under ``hcs quota run`` or ``hcs quota verify``; frameworks that are not
installed are left out, and said so. Prints one JSON line a check and a table at the end; exit 1 where one fails, 3
where there is no card. Checks: out of memory comes at the quota within one granule (2 MiB), never while the net request
is below 98 % of the quota less the measured context; the ledger is within 1 % of NVML's per-process figure; two tenants
side by side; training step time within 1 % of native (median of 5 paired runs). Not run yet: no card was available.

    make gpu-check
"""

from __future__ import annotations

import datetime
import functools
import importlib.util
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence

from hcs.vendors.nvml import list_cards

QUOTA = 8 << 30
GRANULE = 2 << 20
PAIRED_RUNS = 5
MODULES = {"p": "torch", "c": "cupy", "j": "jax"}
"""What a check needs, by the first letter of its name."""

FILL = {
    "pytorch-caching": """
import json, torch
free, total = torch.cuda.mem_get_info()
held, step = [], 64 << 20
try:
    while True:
        held.append(torch.empty(step, dtype=torch.uint8, device="cuda"))
except torch.cuda.OutOfMemoryError:
    pass
print(json.dumps({"total": total, "free": free, "held": torch.cuda.memory_reserved()}))
""",
    "pytorch-expandable": """
import json, os
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
import torch
free, total = torch.cuda.mem_get_info()
held = []
try:
    while True:
        held.append(torch.empty(64 << 20, dtype=torch.uint8, device="cuda"))
except torch.cuda.OutOfMemoryError:
    pass
print(json.dumps({"total": total, "free": free, "held": torch.cuda.memory_reserved()}))
""",
    "pytorch-graphs": """
import json, torch
free, total = torch.cuda.mem_get_info()
x = torch.ones(1 << 20, device="cuda")
stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    y = x * 2
torch.cuda.current_stream().wait_stream(stream)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    y = x * 2 + 1
for _ in range(100):
    graph.replay()
torch.cuda.synchronize()
assert float(y[0]) == 3.0
print(json.dumps({"total": total, "free": free, "held": None}))
""",
    "cupy": """
import json, cupy
free, total = cupy.cuda.runtime.memGetInfo()
pool, held = cupy.cuda.MemoryPool(cupy.cuda.malloc), []
try:
    while True:
        held.append(pool.malloc(64 << 20))
except cupy.cuda.memory.OutOfMemoryError:
    pass
print(json.dumps({"total": total, "free": free, "held": pool.total_bytes()}))
""",
    "jax": """
import json, os
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
import jax, jax.numpy as jnp
held = []
try:
    while True:
        held.append(jnp.zeros(64 << 20, dtype=jnp.uint8).block_until_ready())
except Exception as error:
    assert "RESOURCE_EXHAUSTED" in str(error), error
stats = jax.devices()[0].memory_stats()
print(json.dumps({"total": None, "free": None, "held": stats["bytes_in_use"]}))
""",
}

TRAIN = """
import json, time, torch
model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(8)]).cuda()
optimiser = torch.optim.SGD(model.parameters(), lr=1e-3)
x = torch.randn(256, 2048, device="cuda")
def step():
    optimiser.zero_grad(); loss = model(x).square().mean(); loss.backward(); optimiser.step()
for _ in range(20):
    step()
torch.cuda.synchronize(); began = time.perf_counter()
for _ in range(200):
    step()
torch.cuda.synchronize()
print(json.dumps({"step_seconds": (time.perf_counter() - began) / 200}))
"""

Result = dict[str, object]


def held_to(uuid: str, quota: int, program: str, verb: str = "run") -> list[str]:
    """The command that runs a Python program under a quota."""
    words = [sys.executable, "-m", "hcs.cli.main", "quota", verb, "--card", f"{uuid}={quota}"]
    return [*words, *(["--json"] if verb == "verify" else []), "--", sys.executable, "-c", program]


def answers(command: Sequence[str]) -> list[Result]:
    """The JSON lines a command prints. Raises subprocess.CalledProcessError."""
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def fills_to_the_quota(uuid: str, program: str) -> Result:
    """Out of memory at the quota, and the ledger beside NVML."""
    told, verdict = answers(held_to(uuid, QUOTA, program, "verify"))
    card = verdict["cards"][0]  # type: ignore[index]
    held, most = told["held"], int(card["mostBytes"])
    context = most - int(held) if isinstance(held, int) else 0
    reached = held is None or int(str(held)) >= 0.98 * (QUOTA - context)
    return {
        "passed": most <= QUOTA + GRANULE and reached and verdict["agree"] and told["total"] in (None, QUOTA),
        "held": held,
        "ledger": most,
        "context": context,
        "nvml": card["driverBytes"],
    }


def two_tenants(uuid: str, program: str) -> Result:
    """Two at once, each filled to its own quota."""
    quotas = (4 << 30, 6 << 30)
    running = [subprocess.Popen(held_to(uuid, quota, program), stdout=subprocess.PIPE, text=True) for quota in quotas]
    told = [json.loads(process.communicate(timeout=600)[0].splitlines()[-1]) for process in running]
    held = [answer["held"] for answer in told]
    return {"passed": all(0.8 * quota <= got <= quota for got, quota in zip(held, quotas, strict=True)), "held": held}


def step_time(uuid: str) -> Result:
    """Training steps with and without, in pairs."""
    ratios = []
    for _ in range(PAIRED_RUNS):
        native = answers([sys.executable, "-c", TRAIN])[0]["step_seconds"]
        ratios.append(float(str(answers(held_to(uuid, QUOTA, TRAIN))[0]["step_seconds"])) / float(str(native)))
    return {"passed": statistics.median(ratios) <= 1.01, "ratios": ratios}


def main() -> int:
    """Run every check that can be run."""
    cards = list_cards()
    if not cards:
        print("no NVIDIA card on this machine: nothing was checked", file=sys.stderr)
        return 3
    uuid = cards[0][0]
    checks: list[tuple[str, str, Callable[[], Result]]] = [
        (name, MODULES[name[0]], functools.partial(fills_to_the_quota, uuid, program)) for name, program in FILL.items()
    ]
    checks.append(("two-tenants", "torch", lambda: two_tenants(uuid, FILL["pytorch-caching"])))
    checks.append(("step-time", "torch", lambda: step_time(uuid)))
    rows = []
    for name, module, check in checks:
        if importlib.util.find_spec(module) is None:
            rows.append((name, f"left out: {module} is not installed"))
            continue
        try:
            result = check()
        except (subprocess.SubprocessError, ValueError, KeyError) as error:
            result = {"passed": False, "error": str(error)}
        print(json.dumps({"check": name, "date": datetime.datetime.now(datetime.UTC).date().isoformat(), **result}))
        rows.append((name, "passed" if result["passed"] else "FAILED"))
    for name, verdict in rows:
        print(f"| {name} | {verdict} |")
    return int(any(verdict == "FAILED" for _, verdict in rows))


if __name__ == "__main__":
    sys.exit(main())
