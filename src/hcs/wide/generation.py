"""A queue made up from a seed: models of different appetite, their CPU and host memory, images and data.

For soak runs and demonstrations; nothing in it is measured. Equal arguments give equal queues. A job of the planner and
the manifest that is submitted for it say the same: the steps are epochs x samples / batch.
"""

from hashlib import sha256
from math import exp, log2
from typing import Any

import msgspec
import numpy as np

from hcs.wide.fleets import Pool
from hcs.wide.jobs import Blob, Bytes, Job, Milliseconds, RunTime
from hcs.wide.sharing import Rates, symmetric
from hcs.wide.submissions import BATCH_SIZE, DATA_SIZE, DEADLINE, EPOCH, INPUTS, MODEL, PRIORITY

GIB = 1 << 30
MIB = 1 << 20
CARD_MEMORY = 16 * GIB
CARD_CPU = 8000


class Model(msgspec.Struct, frozen=True):
    """What jobs of one model have in common. ``step`` is milliseconds of one step by kind, ``cpu`` is for each card."""

    name: str
    batch: int
    step: dict[str, float]
    memory: Bytes
    load: int
    cpu: int
    layer: Blob


class Generated(msgspec.Struct, frozen=True):
    """A job of the planner, and beside it what its manifest says."""

    job: Job
    model: str
    batch: int
    samples: int
    epochs: int
    cpu: int
    host_memory: Bytes

    @property
    def steps(self) -> int:
        """Steps of all its cards together."""
        return max(1, self.epochs * self.samples // self.batch)


def generate(
    count: int, seed: int, kinds: tuple[str, ...], gap: Milliseconds = 0, models: int = 6, urgent: int = 0
) -> list[Generated]:
    """``count`` jobs; on average ``gap`` milliseconds between arrivals, 0: all at once.

    Jobs of one model share an image layer of its own, and all share a base layer; each model has two data sets.
    ``urgent`` per cent have a priority, and as many a deadline.
    """
    dice = np.random.default_rng(seed)
    known = [_model(dice, number, kinds) for number in range(models)]
    base = _blob("base", 2 * GIB)
    sets = [(int(dice.integers(10, 200)) * 1000, int(dice.integers(1, 13)) * GIB) for _ in range(2 * models)]
    moment, made = 0, []
    for number in range(count):
        which = int(dice.integers(models))
        model = known[which]
        data = 2 * which + int(dice.integers(2))
        samples, size = sets[data]
        cards = int(dice.choice([1, 1, 1, 1, 2, 4]))
        epoch = samples / model.batch * min(model.step.values())
        epochs = max(1, round(exp(float(dice.normal(15.0, 0.8))) / epoch))
        steps = max(1, epochs * samples // model.batch)
        # Cards that exchange gradients gain a little less than their number.
        each = steps / cards * (1 + 0.1 * log2(cards))
        times = {kind: RunTime.exactly(max(1000, round(each * model.step[kind]))) for kind in kinds}
        priority, deadline = 0, None
        if urgent:
            priority = int(dice.integers(1, 4)) if dice.random() * 100 < urgent else 0
            slack = float(dice.uniform(1, 5)) * min(run.expected for run in times.values())
            deadline = moment + round(slack) if dice.random() * 100 < urgent else None
        job = Job(
            f"job-{number:05d}",
            cards,
            times,
            moment,
            priority=priority,
            deadline=deadline,
            inputs=(base, model.layer, _blob(f"data {data}", size)),
            memory=model.memory,
            load=model.load,
            profile=f"{model.name}/{model.batch}",
            cpu=cards * model.cpu,
        )
        host = cards * int(dice.integers(4, 33)) * GIB
        made.append(Generated(job, model.name, model.batch, samples, epochs, job.cpu, host))
        moment += round(float(dice.exponential(gap))) if gap else 0
    return made


def _model(dice: np.random.Generator, number: int, kinds: tuple[str, ...]) -> Model:
    batch = int(2 ** dice.integers(4, 9))
    step = exp(float(dice.normal(5.0, 0.7)))
    return Model(
        name=f"model-{number}",
        batch=batch,
        step={kind: step * exp(float(dice.normal(0, 0.6))) for kind in kinds},
        memory=int(dice.integers(1, 13)) * GIB,
        load=int(dice.integers(300, 1001)),
        cpu=int(dice.integers(1, 9)) * 1000,
        layer=_blob(f"layer {number}", int(dice.integers(500, 6000)) * MIB),
    )


def _blob(name: str, size: Bytes) -> Blob:
    """Bytes that were never made, under a digest as stores know them; another size is other content."""
    return Blob("sha256:" + sha256(f"{name} {size}".encode()).hexdigest(), size)


def equipped(pools: tuple[Pool, ...]) -> tuple[Pool, ...]:
    """The pools with the memory and the CPU for each card that generated jobs are made for."""
    return tuple(msgspec.structs.replace(pool, memory=CARD_MEMORY, cpu=CARD_CPU) for pool in pools)


def pair_rates(queue: list[Generated], kinds: tuple[str, ...]) -> dict[tuple[str, str, str], Rates]:
    """What the models of a queue leave each other on one card: its time in equal parts once both want more than all."""
    loads = {each.job.profile: each.job.load for each in queue}
    made = {}
    for kind in kinds:
        for one, mine in loads.items():
            for other, theirs in loads.items():
                # A little is lost to the other's kernels even where both leave room.
                rate = min(950, 950_000 // (mine + theirs))
                made[kind, one, other] = Rates(rate, rate)
    return symmetric(made)


def manifest(made: Generated, image: str = "train:1") -> dict[str, Any]:
    """The batch/v1 Job that is submitted for it: what it works on as annotations, what it needs as limits.

    Its deadline is a time from when it is submitted, in seconds.
    """
    job = made.job
    annotations = {
        MODEL: made.model,
        DATA_SIZE: str(made.samples),
        EPOCH: str(made.epochs),
        BATCH_SIZE: str(made.batch),
        INPUTS: ", ".join(f"{blob.digest}={blob.size}" for blob in job.inputs),
    }
    if job.priority:
        annotations[PRIORITY] = str(job.priority)
    if job.deadline is not None:
        annotations[DEADLINE] = f"{max(1, (job.deadline - job.arrival) // 1000)}s"
    limits = {
        "cpu": f"{made.cpu}m",
        "memory": str(made.host_memory),
        "ai.compute/vram": str(job.memory),
        "ai.compute/cards": str(job.cards),
    }
    container = {"name": "train", "image": image, "resources": {"limits": limits}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": job.id, "annotations": annotations},
        "spec": {
            "backoffLimit": 0,
            "template": {"spec": {"containers": [container], "restartPolicy": "Never"}},
        },
    }
