"""Sets of CPUs as lists write them: ``0-2,4``.

A set is kept as sorted ranges, so that ``0-1000000`` costs no more than ``0-1`` and the canonical text, which micad
gets, falls out of it: sorted, merged, without blanks (micad splits a command on blanks).
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from hcs.model.refusals import Refusal, RefusedError

_ITEM: Final = re.compile(r"[ \t]*([0-9]{1,9})[ \t]*(?:-[ \t]*([0-9]{1,9})[ \t]*)?")


class CpuSet(msgspec.Struct, frozen=True):
    """CPUs by number, as inclusive ranges: sorted, disjoint, and none touches the next."""

    ranges: tuple[tuple[int, int], ...] = ()

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.ranges)

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __iter__(self) -> Iterator[int]:
        for first, last in self.ranges:
            yield from range(first, last + 1)

    def __str__(self) -> str:
        return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in self.ranges)

    def __or__(self, other: "CpuSet") -> "CpuSet":
        return _merged((*self.ranges, *other.ranges))

    def below(self, count: int) -> "CpuSet":
        """Those of the first ``count`` CPUs, which are the ones a host with so many has."""
        return CpuSet(tuple((first, min(last, count - 1)) for first, last in self.ranges if first < count))

    def without(self, other: "CpuSet") -> "CpuSet":
        """Those that are not in the other set."""
        left: list[tuple[int, int]] = []
        for first, last in self.ranges:
            for taken_first, taken_last in other.ranges:
                if taken_last < first or taken_first > last:
                    continue
                if taken_first > first:
                    left.append((first, taken_first - 1))
                first = taken_last + 1
            if first <= last:
                left.append((first, last))
        return CpuSet(tuple(left))


NONE: Final = CpuSet()


def parse_cpuset(text: str) -> CpuSet:
    """Read a list of CPUs; an empty text is the empty set.

    Items are separated by commas; an item is ``N`` or ``A-B`` with A <= B; blanks may stand around numbers, and what is
    named twice counts once.

    Raises:
        RefusedError: ``MalformedCpuset``, with the item that cannot be read.

    >>> str(parse_cpuset("3,1,2,2,0 , 7"))
    '0-3,7'
    """
    if not text.strip(" \t"):
        return NONE
    ranges = []
    for item in text.split(","):
        match = _ITEM.fullmatch(item)
        first = int(match[1]) if match else 0
        last = int(match[2]) if match and match[2] else first
        if match is None or first > last:
            what = f"{item[:40]!r} in {text[:60]!r}" if item != text else f"{text[:60]!r}"
            raise RefusedError(
                Refusal(
                    "MalformedCpuset",
                    f"cpuset: cannot read {what}; write numbers and ranges, the smaller number first, like 0-2,4",
                )
            )
        ranges.append((first, last))
    return _merged(ranges)


def union(sets: Iterable[CpuSet]) -> CpuSet:
    """All CPUs that any of the sets names."""
    return _merged([item for one in sets for item in one.ranges])


def _merged(ranges: Iterable[tuple[int, int]]) -> CpuSet:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return CpuSet(tuple(merged))
