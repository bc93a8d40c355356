"""Times of jobs that compute the same must agree: how much faster one kind is than another does not depend on the job.

Jobs of one profile and width differ in length only, so the logarithm of a time is a length of the job plus a speed of
the kind. Where predictions scatter around that, the scatter is error that is independent from job to job; fitting the
two averages it out, and the interval shrinks by just that part. Error that all jobs of a profile have in common leaves
no scatter, and then nothing changes.
"""

from collections import defaultdict
from collections.abc import Iterable
from math import exp, log

import msgspec
import numpy as np

from hcs.wide.jobs import UPPER_QUANTILE, Job, RunTime


def consistent(jobs: Iterable[Job]) -> dict[str, Job]:
    """The jobs by id with times that agree; jobs without a profile, or alone of theirs, stay as they are."""
    made = {job.id: job for job in jobs}
    groups: dict[tuple[str, int, tuple[str, ...]], list[Job]] = defaultdict(list)
    for job in made.values():
        if job.profile and len(job.times) > 1:
            groups[job.profile, job.cards, tuple(sorted(job.times))].append(job)
    for (_, _, kinds), group in groups.items():
        if len(group) > 1:
            made |= _agreed(group, kinds)
    return made


def _agreed(group: list[Job], kinds: tuple[str, ...]) -> dict[str, Job]:
    logs = np.array([[log(job.times[kind].expected) for kind in kinds] for job in group])
    spread = np.array([[log(job.times[kind].upper) for kind in kinds] for job in group]) - logs
    count, width = logs.shape
    fitted = logs.mean(axis=1, keepdims=True) + logs.mean(axis=0) - logs.mean()
    scatter = float(((logs - fitted) ** 2).sum()) / ((count - 1) * (width - 1))
    if scatter <= 0:
        return {}
    made = {}
    kept = (count + width - 1) / (count * width)
    for job, means, reaches in zip(group, fitted, spread, strict=True):
        times = {}
        for kind, mean, reach in zip(kinds, means, reaches, strict=True):
            variance = (float(reach) / UPPER_QUANTILE) ** 2
            independent = min(scatter, variance)
            # With less scatter than that seen, or a narrower interval than the scatter, the fit counts for less.
            weight = independent / scatter
            expected = exp(weight * float(mean) + (1 - weight) * log(job.times[kind].expected))
            sigma = (variance - independent * (1 - kept)) ** 0.5
            guess = max(1, round(expected))
            times[kind] = RunTime(guess, max(guess, round(expected * exp(UPPER_QUANTILE * sigma))))
        made[job.id] = msgspec.structs.replace(job, times=times)
    return made
