"""Make a task list in which some tasks insist on a model, from one in which fewer do.

    python -m benchmarks.openb.constrain --data DIR --pods FILE --share 0.33 --seed 1 --out FILE [--rates FILE]

Each task that asks for cards and names no model gets one with the given probability: a model of the node list on which
it would fit an empty node. Every model is as likely as the others, for people ask for what they know and not for what
is in stock; ``--stock 1`` draws by how many cards of it there are, values between mix the two. ``--rates`` also writes
a file for ``benchmarks.openb --substitute``: made-up rates, drawn from the seed between 25 and 250, for all models.
"""

import argparse
import csv
import json
import random
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
from benchmarks.openb.trace import NODES, Node, Task, TraceError, read_nodes, read_tasks, write_tasks


def constrain(
    nodes: Sequence[Node], tasks: Sequence[Task], share: float, seed: int, stock: float = 0.0
) -> tuple[Task, ...]:
    """The tasks, some of which name a model now."""
    chance = random.Random(seed)
    cards: Counter[str] = Counter()
    for node in nodes:
        cards[node.model] += node.cards
    cards = Counter({model: count for model, count in cards.items() if model and count})
    found = []
    for task in sorted(tasks, key=lambda task: task.name):
        able = {
            node.model: cards[node.model]
            for node in nodes
            if node.model in cards and node.cards >= task.cards and node.cpu >= task.cpu and node.memory >= task.memory
        }
        if task.cards and not task.models and able and chance.random() < share:
            (model,) = chance.choices(sorted(able), [able[name] ** stock for name in sorted(able)])
            task = msgspec.structs.replace(task, models=(model,))
        found.append(task)
    return tuple(found)


def rates(nodes: Sequence[Node], seed: int) -> dict[str, int]:
    """A made-up rate for each model."""
    chance = random.Random(seed)
    return {model: chance.randrange(25, 251) for model in sorted({node.model for node in nodes if node.model})}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the list; 0 on success, 2 on input that cannot be used."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.openb.constrain",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with the lists")
    parser.add_argument("--nodes", type=Path, default=Path(NODES), help="node list in --data, or a path")
    parser.add_argument("--pods", type=Path, required=True, help="task list in --data, or a path")
    parser.add_argument("--share", type=float, default=1 / 3, help="probability that a task names a model")
    parser.add_argument("--stock", type=float, default=0.0, help="0: all models alike; 1: by their number of cards")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True, help="where to write the list")
    parser.add_argument("--rates", type=Path, help="where to write made-up rates of the models")
    options = parser.parse_args(arguments)
    if not 0 <= options.share <= 1:
        parser.error(f"--share is {options.share}; it is a probability, 0 to 1")
    try:
        nodes, tasks = read_nodes(options.data / options.nodes), read_tasks(options.data / options.pods)
        made = constrain(nodes, tasks, options.share, options.seed, options.stock)
        write_tasks(made, options.out)
        if options.rates:
            with options.rates.open("w", newline="") as file:
                writer = csv.writer(file)
                writer.writerows([("model", "acu"), *rates(nodes, options.seed).items()])
    except TraceError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: cannot write {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    asking = [task for task in made if task.cards]
    print(
        json.dumps({"tasks": len(made), "ask_for_cards": len(asking), "constrained": sum(bool(t.models) for t in made)})
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
