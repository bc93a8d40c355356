"""Make a task list of another character from a given one, to see whether a policy is good on it too.

    python -m benchmarks.openb.vary --data DIR --pods FILE --make share=0.6 --seed 1 --out FILE

``share=F``: F of the demand for cards comes from tasks that take a part of one. ``multi=F``: F of it from tasks that
take several. ``cpu=F``: F times as many tasks that take no card. ``hungry=F``: every other task, by lot, needs F times
the CPU. Tasks are drawn from the list with replacement; the demand for cards stays what it was.
"""

import argparse
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
from benchmarks.openb.trace import CARD, NODES, Task, TraceError, read_nodes, read_tasks, write_tasks

KINDS = ("share", "multi", "cpu", "hungry")


def vary(tasks: Sequence[Task], kind: str, amount: float, seed: int, largest_cpu: int) -> tuple[Task, ...]:
    """The other list; its tasks are numbered anew."""
    chance = random.Random(seed)
    tasks = sorted(tasks, key=lambda task: task.name)
    cardless = [task for task in tasks if not task.cards]
    asking = [task for task in tasks if task.cards]
    if kind == "cpu":
        made = asking + ([chance.choice(cardless) for _ in range(round(amount * len(cardless)))] if cardless else [])
    elif kind == "hungry":
        made = [
            msgspec.structs.replace(task, cpu=min(round(task.cpu * amount), largest_cpu))
            if chance.random() < 0.5
            else task
            for task in tasks
        ]
    else:
        picked = [task for task in asking if (task.milli < CARD if kind == "share" else task.cards > 1)]
        others = [task for task in asking if task not in set(picked)]
        demand = sum(task.demand for task in asking)
        made = cardless + _drawn(picked, amount * demand, chance) + _drawn(others, (1 - amount) * demand, chance)
    return tuple(msgspec.structs.replace(task, name=f"task-{number:06}") for number, task in enumerate(made))


def _drawn(pool: Sequence[Task], demand: float, chance: random.Random) -> list[Task]:
    found: list[Task] = []
    while pool and demand > 0:
        found.append(chance.choice(pool))
        demand -= found[-1].demand
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the list; 0 on success, 2 on input that cannot be used."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.openb.vary",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with the lists")
    parser.add_argument("--nodes", type=Path, default=Path(NODES), help="node list in --data, or a path")
    parser.add_argument("--pods", type=Path, required=True, help="task list in --data, or a path")
    parser.add_argument("--make", type=_change, required=True, metavar="KIND=F", help=" | ".join(KINDS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True, help="where to write the list")
    options = parser.parse_args(arguments)
    kind, amount = options.make
    try:
        largest = max(node.cpu for node in read_nodes(options.data / options.nodes))
        made = vary(read_tasks(options.data / options.pods), kind, amount, options.seed, largest)
        write_tasks(made, options.out)
    except TraceError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: cannot write {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    print(json.dumps({"tasks": len(made), "demand": sum(task.demand for task in made)}))
    return 0


def _change(text: str) -> tuple[str, float]:
    kind, _, amount = text.partition("=")
    try:
        number = float(amount)
    except ValueError:
        number = -1.0
    if kind not in KINDS or not 0 <= number <= (1 if kind in ("share", "multi") else 100):
        raise argparse.ArgumentTypeError(f"cannot read {text!r}; write it like share=0.6, cpu=2 or hungry=1.3")
    return kind, number


if __name__ == "__main__":
    raise SystemExit(main())
