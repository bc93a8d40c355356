"""Which nodes' agents have fallen silent: their Leases, judged by our own clock.

An agent renews the Lease named like its node every ten seconds. What counts is when we *saw* it change, as in
Kubernetes' own node controller: the clocks of nodes are not ours, and a difference between them must not take a node
out of service. Only at first sight, when there is nothing else to go by, is the written time believed, so that a router
that restarts does not trust an agent which died long before. A node without a Lease is not judged: nobody promised one.
"""

import datetime
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hcs.model.refusals import Refusal

DEFAULT_SECONDS: Final = 40
NO_LEASES: Final[Mapping[str, Refusal]] = {}


class Beat(msgspec.Struct, frozen=True):
    """The last heartbeat: what was written, how long it holds, and until when on our clock, both in seconds."""

    renewed: str
    seconds: int
    until: float


class Heartbeats:
    """The heartbeats of all agents, by node."""

    def __init__(self) -> None:
        self._beats: dict[str, Beat] = {}
        self._silent: dict[str, Refusal] = {}
        self._check_at = 0.0

    def seen(self, node: str, spec: Mapping[str, Any], now: float, today: datetime.datetime) -> bool:
        """A Lease as it is now; tells whether the node's agent speaks again after a silence.

        Args:
            node: the Lease's name.
            spec: its ``spec``.
            now: our clock, seconds.
            today: the wall clock.
        """
        renewed = str(spec.get("renewTime") or "")
        seconds = spec.get("leaseDurationSeconds") or DEFAULT_SECONDS
        before = self._beats.get(node)
        if before is not None and before.renewed == renewed and before.seconds == seconds:
            return False
        age = 0.0 if before is not None else max(0.0, age_of(renewed, today))
        self._beats[node] = Beat(renewed, int(seconds), now + seconds - age)
        self._check_at = min(self._check_at, self._beats[node].until)
        return self._silent.pop(node, None) is not None and now < self._beats[node].until

    def gone(self, node: str) -> bool:
        """The Lease was deleted, with its node as a rule; tells whether the node was silent."""
        self._beats.pop(node, None)
        return self._silent.pop(node, None) is not None

    def silent(self, now: float) -> Mapping[str, Refusal]:
        """The nodes whose agent is silent, with what to say about each."""
        if now >= self._check_at:
            self._silent = {
                node: silence(beat.seconds) for node, beat in sorted(self._beats.items()) if beat.until <= now
            }
            self._check_at = min((b.until for b in self._beats.values() if b.until > now), default=float("inf"))
        return self._silent


def silence(seconds: int) -> Refusal:
    """The refusal of a node whose agent has not renewed its Lease for so long; the words do not change."""
    return Refusal(
        "AgentSilent",
        f"the HCS agent of this node has not renewed its lease of {seconds} s; no new work until it does, "
        "see whether its pod runs",
    )


def age_of(renewed: str, today: datetime.datetime) -> float:
    """Seconds since a Lease was renewed by its own words; 0 where those cannot be read."""
    try:
        return (today - datetime.datetime.fromisoformat(renewed.replace("Z", "+00:00"))).total_seconds()
    except (ValueError, TypeError):
        return 0.0


def silent_by_wall_clock(leases: Mapping[str, Mapping[str, Any]], today: datetime.datetime) -> dict[str, Refusal]:
    """The same from one look at all Leases, node → ``spec``: for a command that cannot watch for a while."""
    found = {}
    for node, spec in sorted(leases.items()):
        seconds = int(spec.get("leaseDurationSeconds") or DEFAULT_SECONDS)
        if age_of(str(spec.get("renewTime") or ""), today) > seconds:
            found[node] = silence(seconds)
    return found
