"""Play the fragmentation experiment and print what was allocated.

    python -m benchmarks.openb --data DIR --pods FILE --policy P --seeds 42-51 --json

Placement decisions only: no API server, no HTTP, no kube-scheduler. ``decisions_per_s`` counts choosing and booking,
not the measuring after each arrival.
"""

import argparse
import json
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev

from benchmarks.openb.exchange import Exchange, check
from benchmarks.openb.experiment import ARRIVED, FRAGMENTED, Run, run
from benchmarks.openb.trace import NODES, TraceError, read_nodes, read_rates, read_tasks

from hcs.placement.policies import POLICIES


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 0 on success, 2 on input that cannot be used."""
    options = _options(arguments)
    try:
        nodes = read_nodes(_inside(options.data, options.nodes))
        if not sum(node.cards for node in nodes):
            raise TraceError(f"{_inside(options.data, options.nodes)}: no node has a card")
        tasks = read_tasks(_inside(options.data, options.pods))
        exchange = None
        if options.substitute:
            rates = read_rates(options.substitute)
            check(rates, tasks)
            exchange = Exchange(rates)
    except TraceError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    runs = [run(nodes, tasks, options.policy, seed, exchange) for seed in options.seeds]
    answer = _answer(runs, options)
    if exchange is not None:
        answer["substituted"] = round(mean(one.substituted for one in runs), 1)
        answer["least_delivered"] = round(min(one.least_delivered for one in runs), 6)
        answer["occupied_pct"] = _means(runs, "occupied", ARRIVED)
    print(json.dumps(answer) if options.json else _table(answer))
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.openb", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with the lists")
    parser.add_argument("--nodes", type=Path, default=Path(NODES), help="node list: a path, or a name in --data")
    parser.add_argument("--pods", type=Path, required=True, help="task list: a path, or a name in --data")
    parser.add_argument("--policy", choices=sorted(POLICIES), default="hcs")
    parser.add_argument("--seeds", type=seeds, default="42-51", help="like 42-51, or 42,45")
    parser.add_argument(
        "--substitute",
        type=Path,
        metavar="RATES.csv",
        help="columns model,acu: models that tasks name become preferences, others are exchanged for them",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args(arguments)


def seeds(text: str) -> tuple[int, ...]:
    """Read which seeds to run.

    >>> seeds("42-44,7")
    (42, 43, 44, 7)
    """
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and int(last) < int(first)):
            raise argparse.ArgumentTypeError(f"cannot read {text!r} as seeds; write it like 42-51 or 42,45")
        found.extend(range(int(first), int(last or first) + 1))
    if len(found) > 10_000:
        raise argparse.ArgumentTypeError(f"{text} is {len(found)} runs; 10 are enough")
    return tuple(found)


def _inside(data: Path, path: Path) -> Path:
    """A path as it is where it exists, else inside the data folder."""
    return path if path.is_absolute() or (path.exists() and not (data / path).exists()) else data / path


def _answer(runs: Sequence[Run], options: argparse.Namespace) -> dict[str, object]:
    return {
        "policy": options.policy,
        "seeds": list(options.seeds),
        "allocation_pct": _means(runs, "allocation", ARRIVED),
        "fragmentation_pct": _means(runs, "fragmentation", FRAGMENTED),
        "decisions_per_s": round(sum(one.decisions for one in runs) / max(sum(one.seconds for one in runs), 1e-9)),
        "allocation_sd": round(stdev(one.allocation[130] for one in runs), 3) if len(runs) > 1 else 0.0,
        "pods": str(options.pods.name),
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
    }


def _means(runs: Sequence[Run], what: str, percents: Sequence[int]) -> dict[str, float]:
    return {str(percent): round(mean(getattr(one, what)[percent] for one in runs), 3) for percent in percents}


def _table(answer: dict[str, object]) -> str:
    lines = []
    for name, value in answer.items():
        if isinstance(value, dict):
            lines.append(f"{name}:")
            lines.extend(f"  {percent:>4} % arrived  {amount:7.2f}" for percent, amount in value.items())
        else:
            lines.append(f"{name}: {value}")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
