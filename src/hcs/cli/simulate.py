"""``hcs simulate``: what would happen to this work on that fleet, without touching either."""

import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from hcs.cli.errors import USAGE, CommandError
from hcs.cli.fleets import FleetFile, SnapshotFile, Standing, standing
from hcs.cli.jobs import EXAMPLE, read_jobs, work_of
from hcs.cli.options import Context, Json, Kubeconfig, NoHeaders, Output, chosen_format
from hcs.cli.output import Column, Table, say, tell, write_data, write_table
from hcs.placement.policies import POLICIES
from hcs.router.references import reference_rates
from hcs.simulate.simulation import Outcome, Story, simulate


class Row(msgspec.Struct, frozen=True, rename="camel"):
    """What became of one pod. Times are seconds from the beginning; null where it never came to that."""

    pod: str
    job: str
    state: str
    arrived: float
    started: float | None
    ended: float | None
    node: str | None
    vendor: str | None
    model: str | None
    devices: tuple[str, ...]
    substituted: bool
    why: str


class Report(msgspec.Struct, frozen=True, rename="camel"):
    """The whole answer. ``*_share`` are parts, from 0 to 1, of all usable cards' memory and ACU."""

    policy: str
    nodes: int
    cards: int
    pods: int
    placed: int
    waiting: int
    refused: int
    seconds: float
    mean_wait_seconds: float | None
    longest_wait_seconds: float | None
    vram_share_peak: float
    vram_share_mean: float
    acu_share_peak: float
    acu_share_mean: float
    rows: tuple[Row, ...]


def run(
    jobs: Annotated[
        Path | None, typer.Option("--jobs", "-f", metavar="FILE", help="Jobs, or manifests; --example prints one.")
    ] = None,
    fleet: FleetFile = None,
    snapshot: SnapshotFile = None,
    policy: Annotated[str, typer.Option("--policy", help="How places are chosen.", metavar="NAME")] = "hcs",
    example: Annotated[bool, typer.Option("--example", help="Print a jobs file and stop.")] = False,
    output: Output = None,
    json: Json = False,
    no_headers: NoHeaders = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """What would happen to this work on that fleet?

    Plays the jobs through with the router's own placement, in no time and touching nothing. The fleet is a file, a
    router's /debug/snapshot, or the cluster as it is now. With --snapshot alone, the pods that were waiting when it was
    taken are decided again.

        hcs simulate --fleet demo --jobs jobs.yaml

        hcs simulate --jobs examples/01-share.yaml

        hcs simulate --snapshot snapshot.json
    """
    if example:
        say(EXAMPLE.rstrip())
        return
    format = chosen_format(output, json)
    if policy not in POLICIES:
        raise CommandError(
            f"there is no policy {policy}", f"there are {', '.join(sorted(POLICIES))}", "--policy hcs", code=USAGE
        )
    if jobs is None and snapshot is None:
        raise CommandError(
            "there is nothing to simulate",
            "neither --jobs nor --snapshot is given",
            "hcs simulate --example > jobs.yaml",
            code=USAGE,
        )
    work = read_jobs(jobs) if jobs is not None else ()
    where = standing(fleet, snapshot, kubeconfig, context)
    work = (*(work_of(pod) for pod in where.waiting), *work)
    story = simulate(
        where.snapshot,
        work,
        rooms=where.rooms,
        reference_rates=reference_rates(),
        policy=policy,
        progress=_progress(len(work)),
    )
    report = report_of(story, where, policy)
    if write_data(report, format, names=[row.pod for row in report.rows]):
        return
    if not work:
        tell("no pod was waiting when the snapshot was taken; add --jobs FILE")
    elif format == "wide":
        write_table(_every_pod(report), headers=not no_headers)
    else:
        write_table(_by_job(story), headers=not no_headers)
    if not no_headers:
        say()
        for line in totals(report):
            say(line)


def report_of(story: Story, where: Standing, policy: str) -> Report:
    """A story as data."""
    waits = story.waits()
    states = [outcome.state for outcome in story.outcomes]
    return Report(
        policy=policy,
        nodes=len(where.inventories),
        cards=sum(len(node.devices) for node in where.inventories),
        pods=len(states),
        placed=states.count("Done") + states.count("Running"),
        waiting=states.count("Waiting"),
        refused=states.count("Refused"),
        seconds=story.seconds,
        mean_wait_seconds=story.mean_wait,
        longest_wait_seconds=waits[-1] if waits else None,
        vram_share_peak=round(story.usage.vram_peak, 4),
        vram_share_mean=round(story.usage.vram_mean, 4),
        acu_share_peak=round(story.usage.acu_peak, 4),
        acu_share_mean=round(story.usage.acu_mean, 4),
        rows=tuple(_row(outcome) for outcome in story.outcomes),
    )


def _row(outcome: Outcome) -> Row:
    placement = outcome.placement
    return Row(
        pod=outcome.work.name,
        job=outcome.work.job,
        state=outcome.state,
        arrived=outcome.work.arrive,
        started=outcome.started,
        ended=outcome.ended,
        node=placement.node if placement else None,
        vendor=placement.vendor if placement else None,
        model=placement.model if placement else None,
        devices=tuple(sorted(placement.devices)) if placement else (),
        substituted=placement is not None and placement.exchange is not None,
        why=outcome.why,
    )


def totals(report: Report) -> list[str]:
    """The sums in words."""
    parts = [f"{report.placed} of {report.pods} pods got a place"]
    if report.waiting:
        parts.append(f"{report.waiting} never did")
    if report.refused:
        parts.append(f"{report.refused} refused at admission")
    lines = [", ".join(parts)]
    if report.mean_wait_seconds is not None and report.longest_wait_seconds:
        lines.append(
            f"waited {_time(report.mean_wait_seconds)} on average, {_time(report.longest_wait_seconds)} at most"
        )
    lines.append(
        f"held at most {report.vram_share_peak:.0%} of the memory and {report.acu_share_peak:.0%} of the ACU of "
        f"{report.cards} cards" + (f"; simulated time {_time(report.seconds)}" if report.seconds else "")
    )
    return lines


def _by_job(story: Story) -> Table:
    """One row for each job and fate, so that a thousand equal pods are one line."""
    groups: dict[tuple[str, str, str, str], list[Outcome]] = {}
    for outcome in story.outcomes:
        placement = outcome.placement
        where = f"{placement.vendor} {placement.model}" if placement else ""
        why = outcome.why if placement is None or placement.exchange else ""
        key = (outcome.work.job, outcome.state, where, why.partition(": ")[2] if placement else why)
        groups.setdefault(key, []).append(outcome)
    rows: list[tuple[str, ...]] = []
    for (job, state, where, why), outcomes in groups.items():
        nodes = sorted({o.placement.node for o in outcomes if o.placement})
        waits = [o.waited for o in outcomes if o.waited is not None]
        shown = ",".join(nodes[:3]) + (f" and {len(nodes) - 3} more" if len(nodes) > 3 else "")
        wait = _time(sum(waits) / len(waits)) if waits else "-"
        rows.append((job, str(len(outcomes)), state, wait, where or "-", shown or "-", why))
    return Table(
        (
            Column("JOB"),
            Column("PODS", right=True),
            Column("STATE"),
            Column("MEAN WAIT", right=True),
            Column("CARD"),
            Column("NODES", flexible=True),
            Column("WHY", flexible=True),
        ),
        rows,
    )


def _every_pod(report: Report) -> Table:
    return Table(
        (
            Column("POD"),
            Column("STATE"),
            Column("ARRIVED", right=True),
            Column("STARTED", right=True),
            Column("ENDED", right=True),
            Column("NODE"),
            Column("DEVICES", flexible=True),
            Column("WHY", flexible=True),
        ),
        [
            (
                row.pod,
                row.state,
                _time(row.arrived),
                _time(row.started),
                _time(row.ended),
                row.node or "-",
                ",".join(row.devices) or "-",
                row.why,
            )
            for row in report.rows
        ],
    )


def _time(seconds: float | None) -> str:
    """Seconds as people read them.

    >>> _time(5400.0), _time(0.5), _time(None)
    ('1h30m', '0.5s', '-')
    """
    if seconds is None:
        return "-"
    if seconds < 60:
        return f"{seconds:.3g}s"
    whole = round(seconds)
    parts = ((whole // 86400, "d"), (whole // 3600 % 24, "h"), (whole // 60 % 60, "m"), (whole % 60, "s"))
    return "".join(f"{amount}{unit}" for amount, unit in parts if amount)


def _progress(pods: int) -> Any:
    """A line on a terminal's stderr while a long simulation runs; nothing otherwise."""
    if pods < 1000 or not sys.stderr.isatty():
        return None
    told = [0]

    def progress(arrived: int, every: int) -> None:
        if arrived * 100 // every > told[0]:
            told[0] = arrived * 100 // every
            sys.stderr.write(f"\r{told[0]} % of {every} pods arrived" + ("\n" if arrived == every else ""))
            sys.stderr.flush()

    return progress
