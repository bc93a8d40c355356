"""``hcs cpn job``, ``why``, ``log`` and ``cancel``: one job, looked at and ended."""

import sys
import textwrap
from collections.abc import Iterator
from typing import Annotated, Final

import typer

from hcs.cli.cpn_client import DEFAULT_SERVER, Authority, Server, TokenFile, opened
from hcs.cli.cpn_words import STYLES, ends, place, progress, span, when
from hcs.cli.errors import USAGE, CommandError
from hcs.cli.options import Json, Output, chosen_format
from hcs.cli.output import say, say_styled, tell, width, write_data
from hcs.cpn.service import Verdict, Why
from hcs.cpn.wire import JobDetail, JobRow, QueueView
from hcs.model.quantities import show_bytes
from hcs.wide.jobs import Milliseconds
from hcs.wide.lifecycle import ENDED

EPILOGS: Final = {
    "job": "Examples: hcs cpn job 01h8xt2k; hcs cpn job train -o yaml. A name means the job submitted last.",
    "why": "Example: hcs cpn why train",
    "log": "Examples: hcs cpn log train; hcs cpn log 01h8xt2k --attempt 0",
    "cancel": "Examples: hcs cpn cancel train; hcs cpn cancel 01h8 01h9 --yes",
}
JobId = Annotated[str, typer.Argument(help="Id, the beginning of one, or a name.", metavar="JOB")]
Line = tuple[str, str]
"""Text and style."""


def job(
    id: JobId,
    output: Output = None,
    json: Json = False,
    server: Server = DEFAULT_SERVER,
    token_file: TokenFile = None,
    authority: Authority = None,
) -> None:
    """Everything about one job: what it asks for, where it is, what happened, and the end of its log."""
    format = chosen_format(output, json)
    with opened(server, token_file, authority) as api:
        detail = api.ask(JobDetail, "GET", f"/jobs/{_path(id)}")
        if write_data(detail, format, names=[f"job/{detail.job.id}"]):
            return
        now = api.ask(QueueView, "GET", "/queue").now
    say_styled(screen(detail, now, columns=min(width(), 120)))


def screen(detail: JobDetail, now: Milliseconds, *, columns: int = 100) -> Iterator[Line]:
    """A job on one screen."""
    shown, asked = detail.job, detail.submission

    def line(label: str, text: str, style: str = "") -> Iterator[Line]:
        lead = f"  {label:<9} "
        for part in textwrap.wrap(text, columns, initial_indent=lead, subsequent_indent=" " * len(lead)):
            yield part, style

    yield from _wrapped(f"job {shown.id} {shown.name}: {shown.state}", "bold", columns, "", "  ")
    if shown.message:
        yield from line("reason", f"{shown.message} ({shown.reason})", STYLES.get(shown.state, ""))
    if detail.note:
        yield from line("now", detail.note, "yellow")
    yield from line("asks", _asks(detail))
    if shown.cluster:
        verb = "on" if detail.placement else "expected"
        yield from line(verb, _where(detail))
    times = [f"submitted {when(shown.submitted, now)}"]
    if shown.start is not None:
        times.append(f"{'starts' if shown.start > now else 'started'} {when(shown.start, now)}")
    if shown.end is not None:
        ended = shown.state in ENDED
        times.append(f"{'ended' if ended else 'ends'} {ends(shown, now)}")
        if not ended and shown.upper is not None and shown.upper > shown.end:
            times.append(f"at the latest {when(shown.upper, now)}")
    yield from line("times", ", ".join(times))
    if shown.deadline is not None:
        late = shown.end is not None and shown.end > shown.deadline
        yield from line(
            "deadline", when(shown.deadline, now) + (", will be missed" if late else ""), "red" if late else ""
        )
    if shown.progress is not None:
        yield from line("done", progress(shown))
    expected = detail.expectation
    if expected is not None and expected.refusal is not None:
        yield from line("no place", f"{expected.refusal.message} ({expected.refusal.reason})", "yellow")
    if asked.inputs:
        total = show_bytes(sum(blob.size for blob in asked.inputs))
        yield from line(
            "inputs", f"{total} in {len(asked.inputs)}: " + ", ".join(blob.digest for blob in asked.inputs[:8])
        )
    for caution in detail.cautions:
        yield from line("note", caution.message, "yellow")
    yield "", ""
    yield "history", "bold"
    for step in detail.transitions:
        where = f" on {step.placement.cluster}/{step.placement.kind}" if step.placement else ""
        yield from line(when(step.at, now), f"{step.after}{where}: {step.message or step.reason}")
    if detail.log:
        yield "", ""
        yield f"log (hcs cpn log {shown.id} shows all that is kept)", "bold"
        for text in detail.log.splitlines()[-8:]:
            yield f"  {text[: columns - 2]}", ""


def _asks(detail: JobDetail) -> str:
    asked = detail.submission
    cards = "1 card" if asked.cards == 1 else f"{asked.cards} cards"
    if asked.pods > 1:
        cards += f" in {asked.pods} pods"
    if asked.kinds:
        cards += f" of {' or '.join(asked.kinds)}"
    parts = [cards, f"{show_bytes(asked.memory)} on each" if asked.memory else "memory as predicted"]
    if asked.cpu or asked.host_memory:
        parts.append(f"{asked.cpu / 1000:g} CPU, {show_bytes(asked.host_memory)} of host memory")
    if asked.model:
        work = f", {asked.steps:,.0f} steps" if asked.steps else ""
        parts.append(f"model {asked.model}{work}")
    if asked.priority:
        parts.append(f"priority {asked.priority}")
    return "; ".join(parts)


def _where(detail: JobDetail) -> str:
    text = place(detail.job)
    if detail.job.promised:
        text += ", promised"
    if detail.job.probe:
        text += ", a probe: nothing is known of such a job yet"
    found = detail.placement
    if found is not None:
        text += f", as Job {found.job}"
        if found.memory:
            text += f" with {show_bytes(found.memory)} a card"
        if found.shared:
            text += ", may share its card"
    return text


def why(
    id: JobId,
    output: Output = None,
    json: Json = False,
    server: Server = DEFAULT_SERVER,
    token_file: TokenFile = None,
    authority: Authority = None,
) -> None:
    """Why is this job where it is, or still waiting? What each cluster would mean for it."""
    format = chosen_format(output, json)
    with opened(server, token_file, authority) as api:
        answer = api.ask(Why, "GET", f"/jobs/{_path(id)}/why")
        if write_data(answer, format, names=[id]):
            return
        now = api.ask(QueueView, "GET", "/queue").now
    say_styled(reasons(id, answer, now, columns=min(width(), 120)))


def reasons(id: str, answer: Why, now: Milliseconds, *, columns: int = 100) -> Iterator[Line]:
    """The answer as lines."""
    yield from _wrapped(f"job {id}: {answer.headline}", "bold", columns, "", "  ")
    if answer.ahead:
        yield f"  {answer.ahead} {'job is' if answer.ahead == 1 else 'jobs are'} before it", ""
    possible = [verdict for verdict in answer.verdicts if verdict.refusal is None]
    for verdict in sorted(possible, key=lambda verdict: (verdict.end is None, verdict.end or 0)):
        yield from _wrapped(f"{verdict.cluster}/{verdict.kind}: {_promise(verdict, now)}", "green", columns)
    for verdict in answer.verdicts:
        if verdict.refusal is not None:
            yield f"  {verdict.cluster}/{verdict.kind}: {verdict.refusal.reason}", "yellow"
            yield from _wrapped(verdict.refusal.message, "", columns, "    ", "    ")
    for note in answer.notes:
        yield from _wrapped(note, "", columns, "  note: ", "        ")


def _promise(verdict: Verdict, now: Milliseconds) -> str:
    parts = []
    if verdict.start is not None:
        parts.append(f"could start {when(verdict.start, now)}")
    if verdict.run is not None:
        parts.append(f"runs {span(verdict.run)}")
    if verdict.transfer:
        parts.append(f"its bytes take {span(verdict.transfer)}")
    if verdict.end is not None:
        parts.append(f"ends {when(verdict.end, now)}")
    if verdict.upper is not None and verdict.upper > (verdict.end or 0):
        parts.append(f"at the latest {when(verdict.upper, now)}")
    return ", ".join(parts) or "it may run here"


def _wrapped(text: str, style: str, columns: int, first: str = "  ", rest: str = "    ") -> Iterator[Line]:
    for part in textwrap.wrap(text, columns, initial_indent=first, subsequent_indent=rest):
        yield part, style


def log(
    id: JobId,
    attempt: Annotated[int | None, typer.Option("--attempt", help="Which run; the last one otherwise.", min=0)] = None,
    server: Server = DEFAULT_SERVER,
    token_file: TokenFile = None,
    authority: Authority = None,
) -> None:
    """The log of a job's last run: its end, as much as is kept."""
    with opened(server, token_file, authority) as api:
        query = {} if attempt is None else {"attempt": attempt}
        answer = api.raw("GET", f"/jobs/{_path(id)}/log", query=query)
    if attempt is None and answer.headers.get("hcs-attempt", "0") != "0":
        tell(f"this is run {int(answer.headers['hcs-attempt']) + 1}; --attempt 0 shows the first")
    sys.stdout.write(answer.text if answer.text.endswith("\n") else answer.text + "\n")


def cancel(
    ids: Annotated[list[str], typer.Argument(help="Ids, beginnings of ids, or names.", metavar="JOB...")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask about jobs that run.")] = False,
    json: Json = False,
    server: Server = DEFAULT_SERVER,
    token_file: TokenFile = None,
    authority: Authority = None,
) -> None:
    """End jobs, wherever they are. One that runs loses what it did since its last checkpoint."""
    done = []
    with opened(server, token_file, authority) as api:
        found = [api.ask(JobDetail, "GET", f"/jobs/{_path(id)}").job for id in ids]
        running = [job for job in found if job.state == "Running"]
        if running and not yes and sys.stdin.isatty():
            names = ", ".join(f"{job.name} ({job.id})" for job in running)
            typer.confirm(f"{names}: running. Cancel?", abort=True, err=True)
        for wanted in found:
            done.append(api.ask(JobRow, "DELETE", f"/jobs/{wanted.id}"))
            if not json:
                say(f"job/{done[-1].id} {done[-1].name}: {done[-1].state}")
    if json:
        write_data(done, "line")


def _path(id: str) -> str:
    """An id as part of a path.

    Raises:
        CommandError: it cannot be one.
    """
    id = id.removeprefix("job/").strip()
    if not id or not all(letter.isalnum() or letter in "-._" for letter in id) or id.strip(".") == "":
        raise CommandError(
            f"{id!r} is no job", "an id or a name has letters, digits and dashes", "hcs cpn queue", code=USAGE
        )
    return id
