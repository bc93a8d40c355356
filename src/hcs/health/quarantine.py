"""What ``ComputeNode.spec.quarantine`` should say, given where the cards stand. Pure.

The healer owns the entries it signs and no others: what people wrote stays. Entries are computed from the state, not
from the steps that led there, so that a write that was lost is simply made again.
"""

from collections.abc import Mapping
from typing import Final

from hcs.health.cards import CardState
from hcs.model.devices import Device, EvictedOwner, Quarantine

HEALER: Final = "hcs-healer"
_OUT_OF_SERVICE: Final = ("Quarantined", "Drained", "Recovering")


def wanted_entries(
    current: tuple[Quarantine, ...],
    devices: tuple[Device, ...],
    states: Mapping[str, CardState],
    evicted: Mapping[str, tuple[EvictedOwner, ...]],
    stamp: str,
) -> tuple[Quarantine, ...]:
    """The entries as they should be: other people's unchanged, then ours by device id.

    Args:
        current: the entries now.
        devices: the node's devices as its agent reports them; an entry for a device it no longer reports stays.
        states: device id → where it stands.
        evicted: device id → owners to be told where to resume.
        stamp: the time, for new entries.
    """
    ours = {entry.device: entry for entry in current if entry.by == HEALER}
    others = tuple(entry for entry in current if entry.by != HEALER)
    taken = {entry.device for entry in others}
    reported = {device.id: device for device in devices}
    result = []
    for identifier in sorted({*ours, *states}):
        state, before = states.get(identifier), ours.get(identifier)
        if identifier in taken or (state is None and before is None):
            continue
        if state is not None and state.phase not in _OUT_OF_SERVICE:
            continue
        device = reported.get(identifier)
        owners = evicted.get(identifier, before.evicted if before else ())
        failed = device is not None and device.verdict == "Failed"
        result.append(
            Quarantine(
                device=identifier,
                reason=(device.verdict_reason if device and failed else "") or (before.reason if before else "Failed"),
                message=device.verdict_message if device and failed else (before.message if before else ""),
                by=HEALER,
                since=before.since if before else stamp,
                evicted=owners,
            )
        )
    return (*others, *result)
