"""What ``ComputeNode.spec.quarantine`` should say, given where the cards stand. Pure.

The healer owns the entries it signs, and in everybody's entries the notes about those it evicted, for there can be but
one entry for a card; what people wrote stays. Entries are computed from the state, not from the steps that led there,
so that a write that was lost is simply made again. Nothing is asked for that the ComputeNode's schema would refuse: a
refused quarantine is none.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from hcs.health.cards import OUT_OF_SERVICE, CardState
from hcs.model.devices import Device, EvictedOwner, Quarantine

HEALER: Final = "hcs-healer"
_REASON: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,63}")
_MESSAGE_LIMIT: Final = 1024


def wanted_entries(
    current: tuple[Quarantine, ...],
    devices: tuple[Device, ...],
    states: Mapping[str, CardState],
    notes: Mapping[str, tuple[EvictedOwner, ...]],
    stamp: str,
) -> tuple[Quarantine, ...]:
    """The entries as they should be: other people's with our notes in them, then ours by device id.

    Args:
        current: the entries now.
        devices: the node's devices as far as known; an entry for a device nobody reports stays.
        states: device id → where it stands.
        notes: device id → all notes its entry should have.
        stamp: the time, for new entries.
    """
    ours = {entry.device: entry for entry in current if entry.by == HEALER}
    others = [entry for entry in current if entry.by != HEALER]
    taken = {entry.device for entry in others}
    reported = {device.id: device for device in devices}
    result = [msgspec.structs.replace(entry, evicted=notes.get(entry.device, ())) for entry in others]
    for identifier in sorted(({*ours, *states}) - taken):
        state, before, owed = states.get(identifier), ours.get(identifier), notes.get(identifier, ())
        if state is None or state.phase in OUT_OF_SERVICE:
            if before is not None and before.lifted and state is not None:
                before = None  # it failed again: a new quarantine
            result.append(_entry(identifier, reported.get(identifier), before, owed, stamp))
        elif before is not None and any(not note.replaced_by for note in owed):
            result.append(msgspec.structs.replace(before, evicted=owed, lifted=True))
    return tuple(result)


def _entry(
    identifier: str, device: Device | None, before: Quarantine | None, notes: tuple[EvictedOwner, ...], stamp: str
) -> Quarantine:
    if device is not None and device.verdict == "Failed":
        reason = device.verdict_reason if _REASON.fullmatch(device.verdict_reason) else "Failed"
        message = device.verdict_message[:_MESSAGE_LIMIT]
    else:
        reason, message = (before.reason, before.message) if before is not None else ("Failed", "")
    since = before.since if before is not None else stamp
    lifted = before.lifted if before is not None else False
    return Quarantine(identifier, reason, message, HEALER, since, notes, lifted)
