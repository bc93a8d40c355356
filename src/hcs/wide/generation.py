"""A queue made up from a seed: models of different appetite, their CPU and host memory, images and data.

For soak runs and demonstrations; nothing in it is measured. Equal seeds give equal queues.
"""

from math import exp

import msgspec
import numpy as np

from hcs.wide.jobs import Blob, Bytes, Job, Milliseconds, RunTime

GIB = 1 << 30
MIB = 1 << 20


class Generated(msgspec.Struct, frozen=True):
    """A job of the planner, and beside it: model, millicores of CPU, bytes of host memory."""

    job: Job
    model: str
    cpu: int
    host_memory: Bytes


def generate(count: int, seed: int, kinds: tuple[str, ...], gap: Milliseconds = 0, models: int = 6) -> list[Generated]:
    """``count`` jobs; on average ``gap`` milliseconds between arrivals, 0: all at once.

    Jobs of one model share an image layer of its own, and all share a base layer; some share a data set.
    """
    dice = np.random.default_rng(seed)
    speeds = {(model, kind): exp(float(dice.normal(0, 0.6))) for model in range(models) for kind in kinds}
    lengths = [exp(float(dice.normal(8.0, 0.7))) for _ in range(models)]
    peaks = [int(dice.integers(1, 13)) * GIB for _ in range(models)]
    loads = [int(dice.integers(300, 1001)) for _ in range(models)]
    layers = [Blob(f"layer-{model}", int(dice.integers(500, 6000)) * MIB) for model in range(models)]
    base = Blob("layer-base", 2 * GIB)
    moment, made = 0, []
    for number in range(count):
        model = int(dice.integers(models))
        length = lengths[model] * exp(float(dice.normal(0, 0.8))) * 1000
        times = {kind: RunTime.exactly(max(1000, round(length / speeds[model, kind]))) for kind in kinds}
        data = int(dice.integers(2 * models))
        inputs = (base, layers[model], Blob(f"data-{data}", (1 + data) * GIB))
        cards = int(dice.choice([1, 1, 1, 1, 2, 4]))
        job = Job(f"job-{number:05d}", cards, times, moment, inputs=inputs, memory=peaks[model], load=loads[model])
        cpu = cards * int(dice.integers(1, 9)) * 1000
        made.append(Generated(job, f"model-{model}", cpu, cards * int(dice.integers(4, 33)) * GIB))
        moment += round(float(dice.exponential(gap))) if gap else 0
    return made
