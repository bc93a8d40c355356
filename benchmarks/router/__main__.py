"""How fast the router decides.

    python -m benchmarks.router [--nodes 1000,5000,10000] [--decisions 3000] [--seed 1] [--policy hcs] --json

For each number of nodes, with 8 devices each, in a process of its own:

warm_per_s     decisions a second on a half-full fleet, all 22 shapes of pods seen before; between two decisions a pod
               ends somewhere, so that as many go as come (that is the view's work and not counted)
warm_p99_ms    the 99th percentile of one decision
cold_per_s     from the first pod on an empty fleet on, all first sights of a shape included
http_per_s     the same calls over HTTP on loopback, one connection, client and server in one process, names only
rss_mib        memory of the process afterwards, the benchmark's own pods included
first_seen_ms  a decision for a shape never seen before
sync_s         reading all nodes and laying the fleet out
peak_mib       the most memory it ever had

``gang64_ms`` is the plan of a gang of 64 on 5000 nodes with three levels of topology. All of these are decisions alone:
no API server, no kube-scheduler.

    python -m benchmarks.router --real [--kubernetes DIR] [--nodes 100] [--pods 300] [--seed 1] --json

is the other measure, never mixed with the first: pods a second that a real kube-scheduler with our extender gets bound
by a real API server and etcd, and the same without us. DIR holds their programs; without it KUBEBUILDER_ASSETS or
/usr/local/kubebuilder/bin. Nodes and cards are emulated.
"""

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import httpx2
from benchmarks.router.endtoend import UnboundError, measure_real
from benchmarks.router.measure import measure
from lightkube import ApiError

from hcs.placement.policies import POLICIES
from hcs.sandbox.controlplane import MissingProgramsError
from hcs.sandbox.supervisor import StartError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 0 on success."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.router", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--nodes", type=_counts, help="sizes, like 1000,5000; default 1000,5000,10000, and 100 with --real"
    )
    parser.add_argument("--decisions", type=int, default=3000, help="decisions of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--policy", choices=sorted(POLICIES), default="hcs")
    parser.add_argument("--real", action="store_true", help="with a real kube-scheduler and API server")
    parser.add_argument("--kubernetes", type=Path, metavar="DIR", help="folder of their programs; implies --real")
    parser.add_argument("--pods", type=_pods, default=300, help="pods to bind with --real")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.real or options.kubernetes:
        return _real(options)
    options.nodes = options.nodes or [1000, 5000, 10000]
    if options.alone:
        print(json.dumps(asyncio.run(measure(options.nodes[0], options.decisions, options.seed, options.policy))))
        return 0
    answer: dict[str, object] = {}
    for nodes in options.nodes:
        command = [sys.executable, "-m", "benchmarks.router", "--alone", "--nodes", str(nodes)]
        command += ["--decisions", str(options.decisions), "--seed", str(options.seed), "--policy", options.policy]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        answer[str(nodes)] = json.loads(done.stdout)
    answer["gang64_ms"] = _gang64()
    answer["policy"], answer["seed"] = options.policy, options.seed
    answer["machine"] = f"{platform.machine()}, Python {platform.python_version()}"
    print(json.dumps(answer) if options.json else _table(answer))
    return 0


def _real(options: argparse.Namespace) -> int:
    usual = os.environ.get("KUBEBUILDER_ASSETS") or "/usr/local/kubebuilder/bin"
    nodes = options.nodes or [100]
    if len(nodes) > 1:
        print("--real takes one number of nodes, like --nodes 100", file=sys.stderr)
        return 2
    try:
        found = asyncio.run(
            measure_real(options.kubernetes or Path(usual), nodes[0], options.pods, options.seed, options.policy)
        )
    except MissingProgramsError as error:
        print(f"no real Kubernetes: {error}; name their folder with --kubernetes DIR", file=sys.stderr)
        return 2
    except (StartError, UnboundError, ApiError, httpx2.HTTPError) as error:
        print(f"the real cluster failed: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    answer = {"real": found}
    print(json.dumps(answer) if options.json else _table(answer))
    return 0


def _gang64() -> float:
    from benchmarks.gangs import gang64

    return round(gang64(5000), 2)


def _counts(text: str) -> list[int]:
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        counts = [0]
    if not all(1 <= count <= 100_000 for count in counts):
        raise argparse.ArgumentTypeError(f"cannot read {text!r} as numbers of nodes; write it like 1000,5000")
    return counts


def _pods(text: str) -> int:
    if not text.isdecimal() or not 20 <= int(text) <= 100_000:
        raise argparse.ArgumentTypeError(f"cannot take {text!r} pods; give a number from 20 to 100000")
    return int(text)


def _table(answer: Mapping[str, object]) -> str:
    lines = []
    for name, value in answer.items():
        if isinstance(value, dict):
            lines.append(f"{name} nodes" if name.isdecimal() else name)
            lines.extend(f"  {what:<14} {amount}" for what, amount in value.items())
        else:
            lines.append(f"{name}: {value}")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
