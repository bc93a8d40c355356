"""How the plugin is set up: the resources' domain, and how much one id of each resource stands for."""

import re
from typing import Final

import msgspec

from hcs.model.refusals import Refusal, RefusedError
from hcs.neuro.capacities import DOMAIN, WORDS

_DOMAIN: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)+")
FIELDS: Final = tuple(WORDS.values())


class Units(msgspec.Struct, frozen=True):
    """What one id stands for: so many KSPS, streams, thousand activations/s, thousand updates/s, cores."""

    ksps: int = 1
    streams: int = 1
    activations: int = 1000
    updates: int = 1000
    cores: int = 1

    def of(self, field: str) -> int:
        """The unit of a field of :class:`hcs.neuro.capacities.Amounts`."""
        unit: int = getattr(self, field)
        return unit


class Settings(msgspec.Struct, frozen=True):
    """Settings of one node's plugin."""

    domain: str = DOMAIN
    units: Units = Units()
    resources: tuple[str, ...] = tuple(WORDS)
    """Which of the resource words are advertised."""
    device_nodes: tuple[str, ...] = ()
    """Device files of the host that a container gets with any spiking resource; ``{board}`` is the board's id."""
    mounts: tuple[tuple[str, str], ...] = ()
    """(host path, container path), read-only."""

    def check(self) -> "Settings":
        """See that the settings make sense, and give them back.

        Raises:
            RefusedError: with every mistake found.
        """
        refusals = []
        if not _DOMAIN.fullmatch(self.domain) or len(self.domain) > 253:
            refusals.append(
                Refusal("MalformedDomain", f"{self.domain[:80]!r} is no domain; write it like snn.vendor.com")
            )
        elif self.domain == "kubernetes.io" or self.domain.endswith(".kubernetes.io"):
            refusals.append(Refusal("ReservedDomain", f"{self.domain} belongs to Kubernetes; use a domain of your own"))
        refusals.extend(
            Refusal("ImpossibleUnit", f"one id of {field} stands for {self.units.of(field)}; it must be 1 or more")
            for field in FIELDS
            if self.units.of(field) < 1
        )
        if self.units.streams != 1:
            refusals.append(Refusal("ImpossibleUnit", "an event stream is a channel and cannot be divided or bundled"))
        refusals.extend(
            Refusal("UnknownResource", f"there is no resource {word[:60]!r}; there are {', '.join(WORDS)}")
            for word in self.resources
            if word not in WORDS
        )
        if refusals:
            raise RefusedError(*refusals)
        return self
