"""Who lost a card, and who took over: the notes from which replacements learn where to resume. Pure.

A note is open until another pod of the same controller is bound in its place; then it names that pod and tells nobody
else. Each replacement closes one note, so that of two pods lost together both resume. What closed a note is written
into it: a healer that was restarted goes on where the last one was.

Times of notes are the healer's, creation times are the API server's; :data:`SKEW` is how far the two may be apart.
"""

import datetime
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from hcs.model import names
from hcs.model.allocations import allocation_of
from hcs.model.devices import EvictedOwner
from hcs.model.pods import Pod

NOBODY: Final = "nobody"
"""In ``replaced_by``: no replacement came in time, and a later one must not resume from so old a place."""
SKEW: Final = datetime.timedelta(seconds=2)
KEEP: Final = datetime.timedelta(seconds=60)
"""How long a closed note stays at least: longer than the skew, so that its replacement is not counted for another."""
MOST_NOTES: Final = 128
MOST_CHARACTERS: Final = 1024
"""What the ComputeNode's schema allows, of notes in an entry and of a place to resume from."""


def note_of(pod: Pod, vendor: str, resume_from: str, since: datetime.datetime) -> EvictedOwner:
    """The note about a pod that loses a card of ``vendor``; a place too long to be written down is left out."""
    owner = pod.controller
    return EvictedOwner(
        owner_uid=owner.uid if owner is not None else "",
        namespace=pod.metadata.namespace or "default",
        pod=pod.metadata.name,
        vendor=vendor,
        resume_from=resume_from if len(resume_from) <= MOST_CHARACTERS else "",
        pod_uid=pod.metadata.uid,
        since=stamp(since),
    )


def replacements(notes: Iterable[EvictedOwner], pods: Iterable[Pod]) -> dict[str, str]:
    """Find out who took over for whom.

    Args:
        notes: all notes of all cards.
        pods: all pods.

    Returns:
        UID of a lost pod → what its notes say in ``replaced_by``, for those that can be closed and those that are.
    """
    notes = sorted(notes, key=lambda note: (note.since, note.pod))
    closed = {note.pod_uid: note.replaced_by for note in notes if note.replaced_by}
    used = set(closed.values())
    open_notes = [note for note in notes if note.pod_uid not in closed]
    wanted = {note.owner_uid for note in open_notes}
    candidates: dict[str, list[Pod]] = {}
    for pod in pods:
        owner = pod.controller
        if owner is not None and owner.uid in wanted and allocation_of(pod) is not None:
            candidates.setdefault(owner.uid, []).append(pod)
    for note in open_notes:
        if note.pod_uid in closed:  # it held several cards and has a note on each
            continue
        able = [p for p in candidates.get(note.owner_uid, ()) if p.metadata.uid not in used and _took_over(p, note)]
        if able:  # a StatefulSet gives the replacement the same name
            first = min(able, key=lambda p: (p.metadata.name != note.pod, p.metadata.creationTimestamp or ""))
            closed[note.pod_uid] = first.metadata.uid
            used.add(first.metadata.uid)
    return closed


def _took_over(pod: Pod, note: EvictedOwner) -> bool:
    if pod.metadata.uid == note.pod_uid or (pod.metadata.namespace or "default") != note.namespace:
        return False
    created, since = moment(pod.metadata.creationTimestamp), moment(note.since)
    if created is None or since is None:
        return False
    since = since.replace(microsecond=0)  # creation times have whole seconds
    if names.RESUME in pod.annotations or not note.resume_from:
        return created >= since - SKEW
    return created > since + SKEW  # bound by a router that had not seen the note; too late now to tell


def kept(notes: Iterable[EvictedOwner], present: Iterable[str], now: datetime.datetime) -> frozenset[str]:
    """Which notes are still of use, as UIDs of lost pods.

    Open notes are, and closed ones as long as their pod exists (it would be noted again), a note of the same owner is
    open (its replacement would be counted again), or they are younger than :data:`KEEP`.

    Args:
        notes: all notes of all cards.
        present: UIDs of the pods that exist.
        now: the time.
    """
    notes, there = list(notes), frozenset(present)
    waiting = {note.owner_uid for note in notes if not note.replaced_by}
    return frozenset(
        note.pod_uid
        for note in notes
        if note.owner_uid in waiting
        or note.pod_uid in there
        or ((since := moment(note.since)) is not None and now - since < KEEP)
    )


def fitting(notes: Iterable[EvictedOwner]) -> tuple[EvictedOwner, ...]:
    """As many notes as an entry may have, the open ones first; in order of pods' names."""
    chosen = sorted(notes, key=lambda note: (bool(note.replaced_by), not note.resume_from, note.since, note.pod))
    return tuple(sorted(chosen[:MOST_NOTES], key=lambda note: (note.pod, note.pod_uid)))


def merged(
    written: Iterable[EvictedOwner], places: Mapping[str, str], closed: Mapping[str, str]
) -> tuple[EvictedOwner, ...]:
    """The notes with what is known by now.

    Args:
        written: the notes as they are.
        places: UID of a lost pod → where to resume, as last found out.
        closed: UID of a lost pod → who took over; see :func:`replacements`.
    """
    return tuple(
        msgspec.structs.replace(
            note,
            resume_from=note.resume_from if note.replaced_by else _place(note, places),
            replaced_by=closed.get(note.pod_uid, ""),
        )
        for note in written
    )


def _place(note: EvictedOwner, places: Mapping[str, str]) -> str:
    place = places.get(note.pod_uid, note.resume_from)
    return place if len(place) <= MOST_CHARACTERS else note.resume_from


def failed_at(pod: Pod) -> datetime.datetime | None:
    """When the last container of a failed pod ended; None when it did not fail, or nobody wrote down when."""
    if pod.status.phase != "Failed":
        return None
    ends = []
    for status in pod.status.containerStatuses or ():
        ended = (status.get("state") or {}).get("terminated")
        found = moment(ended.get("finishedAt")) if isinstance(ended, dict) else None
        if found is not None:
            ends.append(found)
    return max(ends, default=None)


def stamp(time: datetime.datetime) -> str:
    """A time as notes and entries have it, to the microsecond."""
    return time.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def moment(text: object) -> datetime.datetime | None:
    """Read an RFC 3339 time; None for anything else."""
    try:
        found = datetime.datetime.fromisoformat(text) if isinstance(text, str) and text else None
    except ValueError:
        return None
    return found if found is None or found.tzinfo is not None else found.replace(tzinfo=datetime.UTC)
