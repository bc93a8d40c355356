"""Which checkpoint is the newest complete one.

The rule is small so that any program can keep it: entries of the checkpoint directory named ``step-<number>``
(anything may follow, like ``.json`` or ``-rank0``) are checkpoints; one whose name ends in ``.partial`` or ``.tmp`` is
still being written. Write under such a name and rename: then a complete name means complete contents.
"""

import re
from collections.abc import Iterable

_STEP = re.compile(r"step-([0-9]{1,18})(?![0-9]).*")
_INCOMPLETE = (".partial", ".tmp")


def step_of(name: str) -> int | None:
    """The step in an entry's name, or None when it is no complete checkpoint.

    >>> step_of("step-000120.json"), step_of("step-000130.json.partial")
    (120, None)
    """
    match = _STEP.fullmatch(name)
    return None if match is None or name.endswith(_INCOMPLETE) else int(match.group(1))


def newest_complete(names: Iterable[str]) -> str | None:
    """The entry with the highest step; among equals the last by name. None when there is none."""
    steps = [(step, name) for name in names if (step := step_of(name)) is not None]
    return max(steps)[1] if steps else None
