"""How well a policy orders and places a trace of jobs on a fleet, and how long its decisions take.

The simulator runs the planner's own code in virtual time. Prints one JSON object; hours are of the trace's time,
seconds are of this machine.

    python -m benchmarks.cpn --trace FILE --fleet v100=8,p100=16,k80=24 --policy hcs --times true --json
    python -m benchmarks.cpn --decision-time 1000 --fleet v100=8,p100=16,k80=24 --json
"""

import argparse
import csv
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hcs.wide.bound import lower_bound
from hcs.wide.fleets import parse_pools
from hcs.wide.jobs import Job, RunTime
from hcs.wide.planner import Settings, policy
from hcs.wide.simulation import Simulation
from hcs.wide.snapshot import Plan, Snapshot

HOUR = 3_600_000
POLICIES = ("fifo", "fifo-exclusive", "binpack", "spread", "easy", "sjf", "ljf", "hcs")


def read_trace(path: str):
    with open(path, newline="") as lines:
        rows = list(csv.DictReader(lines))
    jobs = []
    for row in rows:
        times = {
            name[4:]: RunTime.exactly(max(1, round(float(value) * 1000)))
            for name, value in row.items()
            if name.startswith("sec_") and value
        }
        jobs.append(Job(row["job"], int(row["gpus"]), times, round(float(row["submit_s"]) * 1000)))
    return jobs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace")
    parser.add_argument("--fleet", default="v100=8,p100=16,k80=24")
    parser.add_argument("--policy", default="hcs")
    parser.add_argument("--percent", type=int, default=50)
    parser.add_argument("--json", action="store_true")
    o = parser.parse_args()
    jobs = read_trace(o.trace)
    pools = parse_pools(o.fleet)
    closed = len({j.arrival for j in jobs}) == 1
    took = []
    decide = policy(o.policy)
    def timed(s):
        b = time.perf_counter()
        p = decide(s)
        took.append(time.perf_counter() - b)
        return p
    sim = Simulation(jobs, pools, closed=closed)
    sim._line._percent = o.percent
    r = sim.run(timed)
    c = np.array([x.completion for x in r.outcomes]) / HOUR
    w = np.array([x.wait for x in r.outcomes]) / HOUR
    first = min(j.arrival for j in jobs)
    print(json.dumps(dict(policy=o.policy, makespan_h=round((max(x.ended for x in r.outcomes)-first)/HOUR,2), mean=round(c.mean(),2), p99=round(np.quantile(c,.99),2), wait=round(w.max(),2), plan=round(sum(took),2), p99d=round(np.quantile(took,.99),3), bound=round(lower_bound(jobs,pools)/HOUR,2), n=len(c), broken=r.broken, refused=len(r.refused), pat=round(sim._line.patience/HOUR,1))))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
