"""A writer that is killed: it submits and moves jobs for ever, and says on stdout what it was told is safe.

python -m tests.store.writing FILE SEED
"""

import random
import sys

from hcs.store.queue import QueueStore
from hcs.wide.entries import Entry, Submission
from hcs.wide.lifecycle import ENDED, STATES, may_follow


def main() -> None:
    """Write until killed. Lines are ``ready``, ``submitted KEY ID`` and ``moved ID VERSION STATE``."""
    dice = random.Random(int(sys.argv[2]))
    with QueueStore.open(sys.argv[1], make_id=lambda: f"{dice.getrandbits(60):015x}") as store:
        print("ready", flush=True)
        known: list[Entry] = []
        for number in range(1_000_000):
            if not known or dice.random() < 0.3:
                key = f"{sys.argv[2]}-{number}"
                manifest = {"kind": "Job", "metadata": {"name": key}, "padding": "x" * dice.randrange(9000)}
                entry, _ = store.submit(manifest, Submission(name=key), key=key, now=number)
                known.append(entry)
                print("submitted", key, entry.id, flush=True)
                continue
            place = dice.randrange(len(known))
            steps = [state for state in STATES if may_follow(known[place].state, state)]
            moved = store.move(known[place], dice.choice(steps), now=number, reason="Dice", message="a step")
            print("moved", moved.id, moved.version, moved.state, flush=True)
            known[place] = moved
            if moved.state in ENDED:
                del known[place]


if __name__ == "__main__":
    main()
