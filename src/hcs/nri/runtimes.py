"""What a container runtime can do for a plugin, by its name and version.

A runtime ignores in silence what it does not know, and ends the connection when it is asked for an event it does not
know. So what may be sent follows from the version alone.

Source: behaviour of containerd 1.7.24, 2.1.9, 2.2.7 and 2.3.4, tried; CRI-O read (``docs/verified.md``).
"""

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from hcs.model.devices import Abilities
from hcs.nri.messages import CREATE, REMOVE, RUN_POD, START, VALIDATE

_NUMBERS: Final = re.compile(r"(\d+)\.(\d+)")
_FIRST: Final = {  # the first version with: CDI, arguments, validation
    "containerd": ((2, 0), (2, 2), (2, 2)),
    "cri-o": ((1, 34), (1, 34), (1, 34)),
}


class Runtime(msgspec.Struct, frozen=True):
    """A container runtime as it introduced itself. An unknown one can do the least."""

    name: str
    version: str
    cdi: bool = False
    args: bool = False
    validates: bool = False

    def __str__(self) -> str:
        return f"{self.name} {self.version}".strip()

    def abilities(self, *, fail_closed: bool) -> Abilities:
        """What is published about it."""
        return Abilities(runtime=str(self), args=self.args, cdi=self.cdi, fail_closed=fail_closed)


def runtime_of(name: str, version: str) -> Runtime:
    """What a runtime can do.

    >>> runtime_of("containerd", "v2.2.7").validates, runtime_of("containerd", "1.7.24~ds1").cdi
    (True, False)
    """
    found = _NUMBERS.search(version)
    number = (int(found[1]), int(found[2])) if found else (0, 0)
    first = _FIRST.get(name.lower())
    if first is None:
        return Runtime(name, version)
    cdi, args, validates = (number >= version for version in first)
    return Runtime(name, version, cdi=cdi, args=args, validates=validates)


PLUGIN_EVENTS: Final = (RUN_POD, CREATE, REMOVE, VALIDATE)
"""What the agent hears: pods that come, containers that come and go, and a last look at each."""
GUARD_EVENTS: Final = (START,)


def subscription(runtime: Runtime, events: Iterable[int]) -> int:
    """The bit mask of those events that the runtime knows."""
    return sum(1 << event - 1 for event in events if event != VALIDATE or runtime.validates)
