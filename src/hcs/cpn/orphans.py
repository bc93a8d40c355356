"""Jobs of our queue that no entry claims: found by label, judged by what the queue says, and never in a hurry.

Three things leave such Jobs behind. A creation whose answer was lost may be carried out after its entry went elsewhere:
that Job is suspended and never ran. A placement that was given up on a cluster out of reach is still there when the
cluster is back. And a database that was put back from a copy does not know what was sent since: those Jobs are work
somebody wants, so an entry that waits takes its running Job back instead of starting a second one, and what no entry
knows at all is left alone for a long while, and told. Pure.
"""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from hcs.cpn.endings import over
from hcs.kube.resources import Job
from hcs.wide.entries import LABEL_ENTRY, Entry
from hcs.wide.jobs import Milliseconds
from hcs.wide.lifecycle import PLACED

Action = Literal["keep", "delete", "adopt"]


class Graces(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """For how long a Job must have been seen without a claim until it is deleted, in milliseconds.

    ``suspended``: it never ran. ``leftover``: its entry is elsewhere by now. ``unknown``: no entry knows it.
    ``finished``: it is over, and kept for people to look at.
    """

    suspended: Milliseconds = 60_000
    leftover: Milliseconds = 60_000
    unknown: Milliseconds = 3_600_000
    finished: Milliseconds = 900_000


class Verdict(msgspec.Struct, frozen=True):
    """What is to become of a Job, and why."""

    action: Action
    reason: str
    message: str = ""


KEEP: Final = Verdict("keep", "Claimed")


def judge(
    job: Job, cluster: str, entry: Entry | None, since: Milliseconds, now: Milliseconds, graces: Graces
) -> Verdict:
    """What is to become of a Job with our label.

    Args:
        job: as it was last seen on the cluster.
        cluster: where.
        entry: the one its label names, as the queue has it now; None: the queue does not know it.
        since: when this process first saw the Job without a claim.
        now: milliseconds since 1970.
        graces: how long to wait.
    """
    if job.metadata.deletionTimestamp is not None:
        return KEEP
    name, waited, suspended = job.metadata.name, now - since, bool(job.spec.get("suspend"))
    if entry is None:
        id = (job.metadata.labels or {}).get(LABEL_ENTRY, "")
        message = f"Job {name} on {cluster} names entry {id or '(none)'}, which this queue does not know"
        return Verdict("delete" if waited >= graces.unknown else "keep", "UnknownEntry", message)
    placement = entry.placement
    claimed = placement is not None and (placement.cluster, placement.job) == (cluster, name)
    if claimed and placement is not None and entry.state in PLACED:
        return KEEP
    if entry.state == "Queued" and (over(job) == "Complete" or (over(job) is None and not suspended)):
        return Verdict("adopt", "TakenBack", f"Job {name} is on {cluster} although its entry waits")
    if over(job) is not None:
        return Verdict("delete" if waited >= graces.finished else "keep", "Finished", f"Job {name} is over")
    if suspended:
        message = f"Job {name} on {cluster} was never released"
        return Verdict("delete" if waited >= graces.suspended else "keep", "NeverRan", message)
    message = f"Job {name} runs on {cluster}, but its entry is {entry.state}"
    if entry.placement is not None:
        message += f" on {entry.placement.cluster} as {entry.placement.job}"
    return Verdict("delete" if waited >= graces.leftover else "keep", "Leftover", message)


def first_seen(known: Mapping[str, Milliseconds], uids: set[str], now: Milliseconds) -> dict[str, Milliseconds]:
    """Since when each of these is seen; what is seen no more is forgotten."""
    return {uid: known.get(uid, now) for uid in uids}
