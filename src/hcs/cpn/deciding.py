"""From what is known to what is done: the planner's snapshot of this moment, and its plan as placements and reasons.

The planner itself is :mod:`hcs.wide`; the simulator runs the same one. Here the queue, the clusters' views and the
forecasts become its values, and its answer becomes values of the queue again. Pure.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from hcs.cpn.forecasts import memory_ask, run_time
from hcs.cpn.ledger import closed_pools, kind_of, pools_of, running_of
from hcs.cpn.pairs import Pairs, has_partner
from hcs.cpn.service import Expectation, Verdict, Why
from hcs.cpn.views import ClusterView
from hcs.model import names
from hcs.model.refusals import Refusal
from hcs.predict.jobs import Forecast
from hcs.wide.entries import Entry, Placement, job_name
from hcs.wide.fleets import Pool, why_never
from hcs.wide.jobs import Bytes, Job, Milliseconds
from hcs.wide.network import Network
from hcs.wide.snapshot import Place, Plan, Running, Snapshot

_GANGS: Final = frozenset((names.GANG, *names.COSCHEDULING_LABELS, *names.VOLCANO_ANNOTATIONS))
"""What makes a pod a member of a gang, whose router plans it with the others: it gets no sharing group."""


class Memory(msgspec.Struct, frozen=True):
    """What a decision must remember for the next one. ``patience`` never shrinks while anybody waits."""

    promises: tuple[Place, ...] = ()
    guide: tuple[Place, ...] = ()
    patience: Milliseconds = 0


class Situation(msgspec.Struct, frozen=True):
    """All that a decision is made from.

    ``forecasts`` by entry and kind; ``refused`` are entries and clusters that would not have them, until when.
    ``threshold`` is the busy share of a cluster's CPUs above which nothing is started there. ``sharing``: jobs whose
    memory is known may share a card. ``gone`` are clusters that nobody expects back soon.
    """

    now: Milliseconds
    views: tuple[ClusterView, ...]
    queued: tuple[Entry, ...]
    placed: tuple[Entry, ...]
    forecasts: Mapping[str, Mapping[str, Forecast]]
    memory: Memory = Memory()
    network: Network | None = None
    refused: Mapping[tuple[str, str], Milliseconds] = {}
    threshold: float = 1.0
    sharing: bool = True
    pairs: Pairs | None = None
    closed: bool = False
    lag: Milliseconds = 0
    gone: frozenset[str] = frozenset()


class Question(msgspec.Struct, frozen=True):
    """A snapshot for the planner, and what is needed to read its answer. ``shut``: clusters where nothing may start."""

    snapshot: Snapshot
    shut: Mapping[str, tuple[str, str]]
    pools: Mapping[str, Pool]
    jobs: Mapping[str, Job]


def ask(situation: Situation) -> Question:
    """The planner's snapshot of a situation."""
    every = pools_of(situation.views, situation.placed, situation.now)
    pools = tuple(pool for pool in every if pool.cluster not in situation.gone)
    shut, why = closed_pools(situation.views, pools, situation.placed, situation.now, situation.threshold)
    jobs = {entry.id: job_of(entry, pools, situation) for entry in situation.queued}
    running = running_of(situation.placed, lambda entry: job_of(entry, pools, situation), situation.lag)
    # Where nothing may start, nobody is a host either.
    running = [_alone(live) if live.pool.partition("/")[0] in why else live for live in running]
    sharing = None
    if situation.sharing and situation.pairs is not None:
        hosts = (live.job for live in running)
        sharing = situation.pairs.sharing(jobs.values(), hosts, pools, situation.threshold)
    snapshot = Snapshot(
        now=situation.now,
        pools=pools,
        waiting=tuple(jobs.values()),
        running=(*running, *shut),
        promises=situation.memory.promises,
        guide=situation.memory.guide,
        attempts={entry.id: entry.attempts for entry in situation.queued if entry.attempts},
        closed=situation.closed,
        patience=situation.memory.patience,
        network=situation.network,
        sharing=sharing,
        away=tuple(pool for pool in every if pool.cluster in situation.gone),
        lag=situation.lag,
    )
    return Question(snapshot, why, {pool.name: pool for pool in pools}, jobs)


def job_of(entry: Entry, pools: Sequence[Pool], situation: Situation) -> Job:
    """An entry as the planner sees it, with a run time for every pool that it may use."""
    asked = entry.submission
    found = situation.forecasts.get(entry.id, {})
    kinds = {kind.casefold() for kind in asked.kinds}
    times = {}
    sizes: list[Bytes | None] = []
    for pool in pools:
        kind = kind_of(pool)
        here = entry.placement is not None and entry.placement.cluster == pool.cluster
        if kinds and kind.casefold() not in kinds and not here:
            continue
        if situation.refused.get((entry.id, pool.cluster), 0) > situation.now and not here:
            continue
        if (forecast := found.get(kind)) is not None:
            times[pool.kind] = run_time(forecast)
            sizes.append(pool.memory)
    known = [size for size in sizes if size is not None]
    largest = max(known) if known and len(known) == len(sizes) else None
    return Job(
        id=entry.id,
        cards=asked.cards,
        times=times,
        arrival=entry.submitted if entry.reason == "Submitted" else entry.changed,
        priority=asked.priority,
        deadline=asked.deadline,
        inputs=asked.inputs,
        memory=memory_ask(entry, next(iter(found.values()), None), largest),
        profile=_profile(entry, next(iter(found.values()), None), situation),
        cpu=asked.cpu * asked.pods,
    )


def _alone(live: Running) -> Running:
    return msgspec.structs.replace(live, job=msgspec.structs.replace(live.job, profile=""))


def _profile(entry: Entry, found: Forecast | None, situation: Situation) -> str:
    """What it computes, where it may share a card: one that has its card to itself stays so until it ends."""
    held = entry.placement
    if held is not None:
        # A card is shared by two.
        taken = not held.shared or held.host is not None or held.rate < 1000
        return "" if taken else entry.submission.model
    return entry.submission.model if may_share(entry, found, sharing=situation.sharing) else ""


def may_share(entry: Entry, found: Forecast | None, *, sharing: bool) -> bool:
    """Whether it may be given a share of a card: its memory is known, and nobody asked for the whole."""
    if not sharing or entry.submission.cards != 1 or memory_ask(entry, found) is None:
        return False
    if found is not None and found.probe_wanted:
        return False
    template = (entry.manifest.get("spec") or {}).get("template") or {}
    metadata = template.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    if {*annotations, *(metadata.get("labels") or {})} & _GANGS:
        return False
    return annotations.get(names.SHARING) != "exclusive"


def placement_of(entry: Entry, place: Place, question: Question, situation: Situation, number: int) -> Placement:
    """A start as it is written down; ``number`` counts the entry's placements, so each has a Job name of its own."""
    pool = question.pools[place.pool]
    kind = kind_of(pool)
    found = situation.forecasts.get(entry.id, {}).get(kind)
    run = question.jobs[entry.id].times[pool.kind]
    sharing, model = question.snapshot.sharing, question.jobs[entry.id].profile
    # Alone on its card, as it was planned, unless there is somebody who could join it with a gain.
    shared = bool(model) and (place.host is not None or has_partner(model, pool.kind, sharing))
    rate, job = 1000, job_name(entry.id, number)
    if place.host is not None and sharing is not None:
        host = next((live.job for live in question.snapshot.running if live.job.id == place.host), None)
        rates = sharing.rates.get((pool.kind, model, host.profile)) if host is not None else None
        rate = rates.guest if rates is not None else rate
    return Placement(
        cluster=pool.cluster,
        kind=kind,
        decided=situation.now,
        expected=situation.now + run.expected * 1000 // rate,
        upper=max(place.end, situation.now + run.upper),
        job=job,
        host=place.host,
        memory=question.jobs[entry.id].memory,
        shared=shared,
        probe=found is not None and found.probe_wanted,
        beside=place.host or "",
        rate=rate,
        group=_group(place.host, job, situation) if shared else "",
    )


def _group(host: str | None, job: str, situation: Situation) -> str:
    """The sharing group: its host's, so that it finds that card and nobody else does; alone, one of its own."""
    if host is None:
        return job
    held = next((entry.placement for entry in situation.placed if entry.id == host), None)
    return held.group if held is not None else job


def expectations(plan: Plan, question: Question, situation: Situation) -> dict[str, Expectation]:
    """What the plan means for each waiting entry."""
    made = {job: Expectation(job, refusal=_readable(refusal, question, situation)) for job, refusal in plan.refused}
    promised = {place.job for place in plan.promises}
    for place in plan.expected:
        pool = question.pools[place.pool]
        kind = kind_of(pool)
        found = situation.forecasts.get(place.job, {}).get(kind)
        run = question.jobs[place.job].times[pool.kind]
        made[place.job] = Expectation(
            place.job,
            pool.cluster,
            kind,
            start=place.start,
            end=place.start + run.expected,
            upper=place.end,
            memory=question.jobs[place.job].memory,
            promised=place.job in promised,
            fallback=found is not None and found.fallback,
        )
    return made


def why(entry: Entry, question: Question, situation: Situation, expected: Expectation | None, note: str) -> Why:
    """Why a waiting entry has not started: a verdict for every pool."""
    job = question.jobs.get(entry.id)
    ahead = sum(other.turn < entry.turn for other in situation.queued)
    if job is None:
        return Why(note or f"{entry.reason}: {entry.message}")
    verdicts = []
    for pool in question.pools.values():
        kind = kind_of(pool)
        verdicts.append(_verdict(job, pool, kind, question, expected))
    if expected is not None and expected.refusal is not None:
        headline = str(expected.refusal)
    elif expected is not None and expected.start is not None:
        word = "promised" if expected.promised else "expected"
        headline = f"waits for {expected.kind} of {expected.cluster}; its start is {word}"
    else:
        headline = "waits for its turn; no place is planned for it yet"
    return Why(headline, ahead, tuple(verdicts), (note,) if note else ())


def _verdict(job: Job, pool: Pool, kind: str, question: Question, expected: Expectation | None) -> Verdict:
    if (refusal := why_never(job, (pool,))) is not None:
        if refusal.reason == "NoRunTime":
            message = (
                f"{kind} of {pool.cluster} is not among the cards it may use, or it did not go well there just now"
            )
            refusal = Refusal("KindExcluded", message)
        return Verdict(pool.cluster, kind, refusal)
    run = job.times[pool.kind]
    if pool.cluster in question.shut:
        return Verdict(pool.cluster, kind, Refusal(*question.shut[pool.cluster]), run=run.expected)
    now = question.snapshot.now
    ready = question.snapshot.ready(job, pool)
    if ready is None:
        return Verdict(
            pool.cluster, kind, Refusal("NoWayForData", f"its data cannot reach {pool.cluster}"), run=run.expected
        )
    if expected is not None and (expected.cluster, expected.kind) == (pool.cluster, kind):
        return Verdict(
            pool.cluster,
            kind,
            start=expected.start,
            end=expected.end,
            upper=expected.upper,
            run=run.expected,
            transfer=ready - now,
        )
    return Verdict(pool.cluster, kind, run=run.expected, transfer=ready - now)


def _readable(refusal: Refusal, question: Question, situation: Situation) -> Refusal:
    if not question.pools:
        return Refusal("NoClusters", "no cluster with cards is known yet; 'hcs cpn clusters' shows what was found")
    if refusal.reason == "NoRunTime":
        kinds = ", ".join(sorted({kind_of(pool) for pool in question.pools.values()}))
        return Refusal(
            "NoKindLeft",
            f"none of the clusters' cards ({kinds}) is one it may use, or it did not go well there just now and pauses",
        )
    return refusal
