"""How densely cores are packed, and how fast: one JSON line.

    python -m benchmarks.neuro --grid 24x24 --load 0.7 --jobs 8000 --sides 1-12 --dead 0.0 --seed 1 --json

Loss model: jobs arrive as a Poisson process, stay for an exponential time, and want a rectangle whose width and height
are uniform in ``--sides``; who finds no place is lost. ``--load`` is offered core-time over live core-time. The first
10 % of the jobs are not counted. With ``--saturated`` there is an endless queue instead, first come first served;
``--backfill`` lets others pass a first one that does not fit, as long as they do not delay it. ``--migrate`` moves
running jobs to make room. Jobs say how long they stay, as in batch systems, and these estimates are exact; with
``--no-estimates`` nobody knows, which is the harder game.

acceptance_pct        accepted jobs / offered jobs
acceptance_area_pct   the same weighed by cores
utilisation_pct       busy core-time / live core-time (cores asked for; growth over dead cores is no use)
rejected              why: capacity (too few free cores), fragmentation (enough, but no rectangle), beyond (no board)
pairs_per_s, p99_ms   allocate and release, on a grid of this size that is 60 % full, without estimates; processor time,
                      so that whoever else is busy on the machine does not count
"""

import argparse
import heapq
import json
import platform
import random
import sys
import time
from collections import deque
from typing import Any

from hcs.neuro.allocator import Allocator, CoreRequest
from hcs.neuro.grids import layout
from hcs.neuro.migration import MigrationPlan, plan_migration
from hcs.neuro.queues import Waiting, decide, foresee

FULL = 0.6
PAIRS = 4000


class Job:
    """One job: what it wants and for how long."""

    def __init__(self, key: int, options: argparse.Namespace, source: random.Random) -> None:
        low, high = options.sides
        self.key = key
        self.request = CoreRequest(source.randint(low, high), source.randint(low, high), not options.no_rotation)
        self.seconds = source.expovariate(1.0)


def main(arguments: list[str] | None = None) -> int:
    """Run one benchmark."""
    options = parse(arguments)
    source = random.Random(options.seed)
    board = build(options, source)
    live = board.live.bit_count()
    run = saturated if options.saturated else loss
    found = run(options, board, live, source)
    found.update(speed(options))
    if options.json or not sys.stdout.isatty():
        print(json.dumps(found))
    else:
        shown = " ".join(sys.argv[1:])
        print(f"python -m benchmarks.neuro {shown}      (Python {platform.python_version()}, {platform.machine()})")
        for key, value in found.items():
            print(f"  {key:20} {value}")
    return 0


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line; a mistake ends the program with a sentence."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.neuro", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--grid", type=_pair("x"), default=(24, 24), metavar="WxH", help="columns x rows of cores")
    parser.add_argument("--load", type=float, default=0.7, help="offered core-time / live core-time")
    parser.add_argument("--jobs", type=int, default=8000, help="number of jobs")
    parser.add_argument("--sides", type=_pair("-"), default=(1, 12), metavar="A-B", help="sides of the rectangles")
    parser.add_argument("--dead", type=float, default=0.0, help="share of dead cores")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--saturated", action="store_true", help="an endless queue instead of losses")
    parser.add_argument("--migrate", action="store_true", help="move running jobs to make room")
    parser.add_argument("--backfill", action="store_true", help="let others pass a first one that does not fit")
    parser.add_argument("--no-rotation", action="store_true", help="rectangles may not be turned")
    parser.add_argument("--no-estimates", action="store_true", help="nobody knows how long jobs stay")
    parser.add_argument("--json", action="store_true", help="one JSON line")
    options = parser.parse_args(arguments)
    for wrong, sentence in (
        (min(options.grid) < 1 or max(options.grid) > 1024, "--grid has sides from 1 to 1024, like 24x24"),
        (not 0 < options.load <= 100, "--load is above 0, like 0.7"),
        (options.jobs < 10, "--jobs is at least 10"),
        (not 1 <= options.sides[0] <= options.sides[1], "--sides goes from a small to a large one, like 1-12"),
        (not 0 <= options.dead < 1, "--dead is a share from 0.0 to below 1.0"),
        (options.backfill and not options.saturated, "--backfill needs a queue: add --saturated"),
    ):
        if wrong:
            parser.error(sentence)
    return options


def _pair(mark: str) -> Any:
    def read(text: str) -> tuple[int, int]:
        first, _, second = text.partition(mark)
        if not (first.isdecimal() and second.isdecimal()):
            raise argparse.ArgumentTypeError(f"{text!r} is not two numbers with {mark!r} between them")
        return int(first), int(second)

    return read


def build(options: argparse.Namespace, source: random.Random) -> Allocator:
    """An empty board with that share of dead cores."""
    width, height = options.grid
    cells = [(x, y) for y in range(height) for x in range(width)]
    return Allocator(layout(width, height), dead_cores=source.sample(cells, round(options.dead * len(cells))))


def loss(options: argparse.Namespace, board: Allocator, live: int, source: random.Random) -> dict[str, Any]:
    """Jobs that find no place are lost."""
    low, high = options.sides
    rate = options.load * live / ((low + high) / 2) ** 2
    skipped = options.jobs // 10
    now, begun, busy_time, busy = 0.0, 0.0, 0.0, 0
    ends: list[tuple[float, int]] = []
    running: dict[int, CoreRequest] = {}
    expected: dict[int, float] = {}
    offered = offered_area = accepted = accepted_area = 0
    rejected = {"capacity": 0, "fragmentation": 0, "beyond": 0}
    for key in range(options.jobs):
        arrival = now + source.expovariate(rate)
        job = Job(key, options, source)
        while ends and ends[0][0] <= arrival:
            end, gone = heapq.heappop(ends)
            busy_time += busy * (end - now)
            now = end
            board.release(gone)
            busy -= running.pop(gone).cores
            del expected[gone]
        busy_time += busy * (arrival - now)
        now = arrival
        if key == skipped:
            begun, busy_time = now, 0.0
        later = () if options.no_estimates else foresee(board, expected, now, job.seconds)
        placed = board.find(job.request, later=later)
        if placed is None and options.migrate:
            plan = plan_migration(board, job.request, running)
            if plan is not None:
                migrate(board, plan)
                placed = plan.placed
        if key >= skipped:
            offered += 1
            offered_area += job.request.cores
            if placed is not None:
                accepted += 1
                accepted_area += job.request.cores
            elif board.free_cores < job.request.cores:
                rejected["beyond" if live < job.request.cores else "capacity"] += 1
            else:
                rejected["fragmentation"] += 1
        if placed is not None:
            board.hold(key, placed.rectangle)
            running[key] = job.request
            expected[key] = now + job.seconds
            busy += job.request.cores
            heapq.heappush(ends, (now + job.seconds, key))
    return {
        "acceptance_pct": round(100 * accepted / offered, 2),
        "acceptance_area_pct": round(100 * accepted_area / offered_area, 2),
        "utilisation_pct": round(100 * busy_time / (live * (now - begun)), 2),
        "rejected": rejected,
    }


def migrate(board: Allocator, plan: MigrationPlan) -> None:
    """Carry a plan out."""
    for move in plan.moves:
        board.release(move.holder)
        board.hold(move.holder, move.target.rectangle)


def saturated(options: argparse.Namespace, board: Allocator, live: int, source: random.Random) -> dict[str, Any]:
    """An endless queue; only how busy the cores are matters."""
    skipped = options.jobs // 10
    queue: deque[Job] = deque()
    running: dict[int, tuple[CoreRequest, float]] = {}
    ends: list[tuple[float, int]] = []
    now = begun = busy_time = 0.0
    busy = made = started = beyond = 0
    while started < options.jobs:
        while len(queue) < 65:
            job = Job(made, options, source)
            made += 1
            if made > 100 * options.jobs:
                raise SystemExit("error: hardly any job of these --sides fits this --grid; the queue never moves")
            if board.live.bit_count() >= job.request.cores and fits_empty(board, job.request):
                queue.append(job)
            else:
                beyond += 1
        jobs = {job.key: job for job in queue}
        known = {} if options.no_estimates else {key: end for key, (_, end) in running.items()}
        decision = decide(
            board,
            [Waiting(job.key, job.request, None if options.no_estimates else job.seconds) for job in queue],
            known,
            now,
            backfill=options.backfill,
        )
        for start in decision.starts:
            job = jobs[start.key]
            board.hold(job.key, start.placed.rectangle)
            running[job.key] = (job.request, now + job.seconds)
            heapq.heappush(ends, (now + job.seconds, job.key))
            busy += job.request.cores
            started += 1
            if started == skipped:
                begun, busy_time = now, 0.0
        gone = {start.key for start in decision.starts}
        if gone:
            queue = deque(job for job in queue if job.key not in gone)
        if not decision.starts and options.migrate:
            plan = plan_migration(board, queue[0].request, {key: request for key, (request, _) in running.items()})
            if plan is not None:
                migrate(board, plan)
                continue
        if not decision.starts or len(queue) < 65:
            if gone:
                continue
            end, key = heapq.heappop(ends)
            busy_time += busy * (end - now)
            now = end
            board.release(key)
            busy -= running.pop(key)[0].cores
    return {
        "acceptance_pct": 100.0,
        "acceptance_area_pct": 100.0,
        "utilisation_pct": round(100 * busy_time / (live * (now - begun)), 2),
        "rejected": {"capacity": 0, "fragmentation": 0, "beyond": beyond},
    }


def fits_empty(board: Allocator, request: CoreRequest) -> bool:
    """Whether the board, empty, could hold a request."""
    try:
        board.check(request)
    except ValueError:
        return False
    return True


def speed(options: argparse.Namespace) -> dict[str, float]:
    """Time allocate and release, on a grid filled to 60 % by the same kind of jobs."""
    source = random.Random(options.seed + 1)
    board = build(options, source)
    target = FULL * board.live.bit_count()
    key, held, failures = 0, 0, 0
    while held < target and failures < 50:
        job = Job(key, options, source)
        placed = board.find(job.request)
        if placed is None or held + job.request.cores > target * 1.1:
            failures += 1
            continue
        board.hold(key, placed.rectangle)
        held += job.request.cores
        key += 1
    keys = list(range(key))
    times: list[float] = []
    for number in range(PAIRS):
        # One goes, another comes: the board stays as full, and is never twice the same.
        job = Job(key + number, options, source)
        begin = time.process_time()
        placed = board.find(job.request)
        if placed is not None:
            board.hold(job.key, placed.rectangle)
            if keys:
                place = number % len(keys)
                board.release(keys[place])
        took = time.process_time() - begin
        if placed is not None:
            if keys:
                keys[place] = job.key
            else:
                keys.append(job.key)
            times.append(took)
    if not times:
        return {"pairs_per_s": 0.0, "p99_ms": 0.0}
    times.sort()
    return {
        "pairs_per_s": round(len(times) / sum(times), 1),
        "p99_ms": round(times[len(times) * 99 // 100] * 1000, 3),
    }


if __name__ == "__main__":
    sys.exit(main())
