"""What a running job says about itself: how far it is, and how much memory it took at most.

A job that wants to be seen prints lines such as ``hcs.progress 0.25`` (or ``25%``, or ``3/12``) and
``hcs.peak-memory 3Gi`` (or bytes), or sets pod annotations of these names. Anybody can add these to a script in any
language; nothing depends on them. The last one counts. What is not a number, or out of range, is not heard. Pure.
"""

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from hcs.model.pods import Pod
from hcs.model.quantities import MAX_AMOUNT, QuantityError, parse_bytes

PROGRESS: Final = "hcs.progress"
PEAK_MEMORY: Final = "hcs.peak-memory"
_PROGRESS: Final = re.compile(r"hcs\.progress[ \t=:]+([0-9.]+)[ \t]*(%|/[ \t]*[0-9.]+)?")
_MEMORY: Final = re.compile(r"hcs\.peak-memory[ \t=:]+([0-9][0-9.]*[A-Za-z]*)")


class Report(msgspec.Struct, frozen=True):
    """``progress`` from 0 to 1; ``peak_memory`` in bytes on the fullest card; None: not told."""

    progress: float | None = None
    peak_memory: int | None = None

    def over(self, other: "Report") -> "Report":
        """This one, and what only the other tells."""
        return Report(
            other.progress if self.progress is None else self.progress,
            other.peak_memory if self.peak_memory is None else self.peak_memory,
        )


def read_log(log: str) -> Report:
    """What the lines of a log tell.

    >>> read_log("epoch 1\\nhcs.progress 3/12\\nhcs.peak-memory 2Gi\\n")
    Report(progress=0.25, peak_memory=2147483648)
    """
    progress = memory = None
    for line in log.splitlines():
        if (found := _PROGRESS.search(line)) is not None and (heard := _share(found[1], found[2] or "")) is not None:
            progress = heard
        if (found := _MEMORY.search(line)) is not None and (size := _bytes(found[1])) is not None:
            memory = size
    return Report(progress, memory)


def read_pods(pods: Iterable[Pod]) -> Report:
    """What the annotations of a job's pods tell: the least progress, the most memory."""
    found = [
        read_log("".join(f"{key} {pod.annotations.get(key, '')}\n" for key in (PROGRESS, PEAK_MEMORY))) for pod in pods
    ]
    return Report(
        min((report.progress for report in found if report.progress is not None), default=None),
        max((report.peak_memory for report in found if report.peak_memory is not None), default=None),
    )


def _share(number: str, unit: str) -> float | None:
    try:
        share = float(number)
        if unit == "%":
            share /= 100
        elif unit:
            share /= float(unit[1:])
    except (ValueError, ZeroDivisionError):
        return None
    return share if 0 <= share <= 1 else None


def _bytes(text: str) -> int | None:
    try:
        size = parse_bytes(text)
    except QuantityError:
        return None
    return size if 0 < size <= MAX_AMOUNT else None
