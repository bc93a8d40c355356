"""A certificate: no schedule without sharing can end before this.

The linear program lets a job be cut into parts that run on several pools, one after the other. Every real schedule is a
solution of it, so its optimum is a lower bound of the makespan. Jobs that come later give one program for each arrival
considered: what arrives from then on cannot start before.

    least T:  sum_g x_jg = 1;  sum_j cards_j time_jg x_jg <= cards_g T;  sum_g time_jg x_jg <= T
"""

from collections.abc import Sequence
from math import floor, inf

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from hcs.wide.fleets import Pool
from hcs.wide.jobs import Job, Milliseconds

Shares = dict[str, dict[str, float]]
"""Of each job, which part of it runs on which pool."""


def fractional(
    jobs: Sequence[Job],
    pools: Sequence[Pool],
    free_from: Sequence[float] = (),
    longest: float = inf,
    caution: int = 0,
) -> tuple[float, Shares]:
    """The least fractional makespan in milliseconds, and the shares that reach it.

    ``free_from`` holds for each pool the card-milliseconds already taken there. Pools on which a job would take longer
    than ``longest`` are not used for it. Where times are uncertain, ``caution`` per mille of their error are added to
    the time a job takes by itself, not to what it takes from the pool. Jobs that no pool admits are left out.
    """
    columns = [
        (row, place, run.expected, run.cautious(caution))
        for row, job in enumerate(jobs)
        for place, pool in enumerate(pools)
        if (run := pool.admits(job)) is not None and run.cautious(caution) <= longest
    ]
    if not columns:
        return 0.0, {}
    count, total = len(columns), len(jobs)
    rows_eq, cols_eq, rows_ub, cols_ub, values = [], [], [], [], []
    unit = max(time for _, _, time, _ in columns)
    for column, (row, place, time, alone) in enumerate(columns):
        rows_eq.append(row)
        cols_eq.append(column)
        rows_ub += [place, len(pools) + row]
        cols_ub += [column, column]
        values += [jobs[row].cards * time / unit / pools[place].cards, alone / unit]
    placed = sorted({row for row, _, _, _ in columns})
    index = {row: at for at, row in enumerate(placed)}
    rows_ub += [*range(len(pools) + total)]
    cols_ub += [count] * (len(pools) + total)
    values += [-1.0] * (len(pools) + total)
    cost = np.zeros(count + 1)
    cost[count] = 1.0
    taken = np.zeros(len(pools) + total)
    for place, amount in enumerate(free_from):
        taken[place] = -amount / unit / pools[place].cards
    answer = linprog(  # type: ignore[call-overload] # the stubs know no sparse matrices; linprog takes them
        cost,
        A_ub=coo_array((values, (rows_ub, cols_ub)), shape=(len(pools) + total, count + 1)).tocsr(),
        b_ub=taken,
        A_eq=coo_array(
            (np.ones(count), ([index[row] for row in rows_eq], cols_eq)), shape=(len(placed), count + 1)
        ).tocsr(),
        b_eq=np.ones(len(placed)),
        method="highs",
    )
    if answer.x is None:
        raise RuntimeError(f"the linear bound found no answer: {answer.message}")
    shares: Shares = {}
    for (row, place, _, _), share in zip(columns, answer.x[:count], strict=True):
        if share > 1e-9:
            shares.setdefault(jobs[row].id, {})[pools[place].name] = float(share)
    return float(answer.x[count]) * unit, shares


def lower_bound(jobs: Sequence[Job], pools: Sequence[Pool], arrivals: int = 32) -> Milliseconds:
    """Milliseconds from the first arrival that every schedule without sharing needs, whatever the policy.

    At most ``arrivals`` moments are looked at, evenly over the list; more can only raise the bound.
    """
    if not jobs:
        return 0
    ordered = sorted(jobs, key=lambda job: job.arrival)
    first = ordered[0].arrival
    picks = sorted({round(at * (len(ordered) - 1) / max(1, arrivals - 1)) for at in range(arrivals)})
    moments = sorted({ordered[pick].arrival for pick in picks})
    best = 0.0
    for moment in moments:
        later = [job for job in ordered if job.arrival >= moment]
        best = max(best, moment - first + fractional(later, pools)[0])
    return floor(best * (1 - 1e-7))
