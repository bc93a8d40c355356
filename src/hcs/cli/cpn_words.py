"""How jobs and moments of the queue read: seconds as people say them, a state with its colour, a place."""

from typing import Final

from hcs.cpn.wire import JobRow, QueueView
from hcs.wide.jobs import Milliseconds

STYLES: Final = {
    "Queued": "",
    "Placing": "cyan",
    "Created": "cyan",
    "Running": "green",
    "Cancelling": "yellow",
    "Succeeded": "dim",
    "Failed": "red",
    "Cancelled": "dim",
    "Refused": "red",
}
_UNITS: Final = ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def span(milliseconds: Milliseconds) -> str:
    """A length of time in at most two units.

    >>> span(0), span(59_400), span(5_430_000), span(90_000_000), span(-5000)
    ('0s', '59s', '1h30m', '1d1h', '0s')
    """
    seconds = max(0, milliseconds // 1000)
    for place, (size, unit) in enumerate(_UNITS):
        if seconds >= size:
            count, rest = divmod(seconds, size)
            if place + 1 < len(_UNITS):
                lower, name = _UNITS[place + 1]
                if rest // lower and count < 100:
                    return f"{count}{unit}{rest // lower}{name}"
            return f"{count}{unit}"
    return "0s"


def when(moment: Milliseconds | None, now: Milliseconds) -> str:
    """A moment as seen from now.

    >>> when(None, 0), when(60_000, 0), when(0, 60_000), when(500, 0)
    ('-', 'in 1m', '1m ago', 'now')
    """
    if moment is None:
        return "-"
    if abs(moment - now) < 1000:
        return "now"
    return f"in {span(moment - now)}" if moment > now else f"{span(now - moment)} ago"


def place(job: JobRow) -> str:
    """Where a job is, or is expected to go."""
    if not job.cluster:
        return "-"
    return f"{job.cluster}/{job.kind}" if job.kind else job.cluster


def ends(job: JobRow, now: Milliseconds) -> str:
    """When it ended, or is expected to; overdue where that has passed."""
    if job.end is None:
        return "-"
    if job.state not in ("Succeeded", "Failed", "Cancelled", "Refused") and job.end < now - 1000:
        return f"{span(now - job.end)} late"
    return when(job.end, now)


def progress(job: JobRow) -> str:
    """How far it is, as far as it told."""
    return "-" if job.progress is None else f"{min(100, max(0, int(job.progress * 100)))}%"


def headline(view: QueueView) -> str:
    """The queue in one line.

    >>> headline(QueueView("q", 0, {"Queued": 2, "Running": 1}, end=60_000, upper=90_000))
    '2 waiting, 1 running; all done in 1m, at the latest in 1m30s'
    """
    counts = view.counts
    words = (
        ("waiting", counts.get("Queued", 0)),
        ("starting", counts.get("Placing", 0) + counts.get("Created", 0)),
        ("running", counts.get("Running", 0)),
        ("being cancelled", counts.get("Cancelling", 0)),
        ("succeeded", counts.get("Succeeded", 0)),
        ("failed", counts.get("Failed", 0)),
        ("cancelled", counts.get("Cancelled", 0)),
        ("refused", counts.get("Refused", 0)),
    )
    text = ", ".join(f"{count} {word}" for word, count in words if count) or "the queue is empty"
    if view.end is not None:
        text += f"; {'those with a place' if view.unplanned else 'all'} done {when(view.end, view.now)}"
        if view.upper is not None and view.upper > view.end:
            text += f", at the latest {when(view.upper, view.now)}"
    return text


def remarks(view: QueueView) -> list[str]:
    """What else somebody who looks at the queue should know."""
    found = []
    if view.refusal is not None:
        found.append(f"nothing is decided now: {view.refusal.message}")
    if view.unplanned:
        jobs = "1 waiting job has" if view.unplanned == 1 else f"{view.unplanned} waiting jobs have"
        found.append(f"{jobs} no expected place; hcs cpn why ID tells")
    if view.late:
        found.append(f"{view.late} will miss {'its deadline' if view.late == 1 else 'their deadlines'}")
    return found
