"""``/jobs``: take in, list, show, explain, cancel.

A submission is answered once it is on disk: 201 when it is new, 200 when its key had made it before. A manifest is read
in a thread, since a large one takes longer than others should wait.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from prometheus_client import Counter
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from hcs.cpn.server_answers import answer, read_body, read_count
from hcs.cpn.service import Service, Why
from hcs.cpn.wire import LONGEST_PAGE, PAGE, JobDetail, JobList, JobRow, Submitted, row
from hcs.model.refusals import Refusal, RefusedError
from hcs.wide.amounts import AmountError
from hcs.wide.entries import Entry
from hcs.wide.lifecycle import ENDED, PLACED, STATES, State
from hcs.wide.manifests import MAX_BYTES, read_manifest
from hcs.wide.submissions import KEY, Asked, annotation, read_key, read_submission

LOG_TAIL: Final = 4096
"""Letters of the log that come with a job; ``/log`` has all that is kept."""
GROUPS: Final[dict[str, tuple[State, ...]]] = {
    "live": tuple(state for state in STATES if state not in ENDED),
    "ended": tuple(state for state in STATES if state in ENDED),
    "all": STATES,
}


def job_routes(service: Service) -> list[Route]:
    """The routes."""
    told = Counter("hcs_cpn_submissions", "Submissions by what became of them.", ["result"], registry=service.registry)

    def show(entry: Entry) -> JobRow:
        return row(entry, service.expectations().get(entry.id))

    async def submit(request: Request) -> Response:
        try:
            raw = await read_body(request, MAX_BYTES)
            manifest = await asyncio.to_thread(read_manifest, raw)
            key = _key(request, manifest)
            entry = service.store.keyed(key, manifest) if key is not None else None
            if entry is not None:  # before its deadline is looked at, which may have passed since
                told.labels("repeated").inc()
                return answer(Submitted(entry.id, entry.state, show(entry), created=False))
            now = service.now()
            asked: Asked = await asyncio.to_thread(read_submission, manifest, now)
            entry, created = service.store.submit(manifest, asked.submission, key=key, now=now)
        except RefusedError:
            told.labels("refused").inc()
            raise
        told.labels("created" if created else "repeated").inc()
        service.wake()
        return answer(
            Submitted(entry.id, entry.state, show(entry), created, asked.cautions),
            201 if created else 200,
            {"location": f"/jobs/{entry.id}"},
        )

    async def jobs(request: Request) -> Response:
        states = _states(request.query_params.getlist("state"))
        limit = read_count(request, "limit", PAGE, LONGEST_PAGE)
        offset = read_count(request, "offset", 0, 10**9)
        newest = request.query_params.get("newest", "").lower() in ("1", "true", "yes")
        entries = service.store.entries(states, newest=newest, limit=limit, offset=offset)
        counts = service.store.counts()
        return answer(JobList(tuple(show(entry) for entry in entries), sum(counts[state] for state in states)))

    async def job(request: Request) -> Response:
        entry = _find(service, request)
        last = service.store.last_log(entry.id)
        return answer(
            JobDetail(
                id=entry.id,
                state=entry.state,
                job=show(entry),
                submission=entry.submission,
                transitions=tuple(service.store.transitions(entry.id)),
                manifest=entry.manifest,
                key=entry.key,
                memory_floor=entry.floor,
                placement=entry.placement,
                expectation=service.expectations().get(entry.id),
                cautions=_cautions(entry),
                log=last[1][-LOG_TAIL:] if last else "",
                note=_note(service, entry),
            )
        )

    async def why(request: Request) -> Response:
        entry = _find(service, request)
        if entry.state in ENDED:
            return answer(Why(f"{entry.state}: {entry.message}" if entry.message else entry.state))
        return answer(service.why(entry))

    async def log(request: Request) -> Response:
        entry = _find(service, request)
        if "attempt" in request.query_params:
            attempt = read_count(request, "attempt", 0, 10**6)
            text = service.store.log(entry.id, attempt)
        else:
            found = service.store.last_log(entry.id)
            attempt, text = found if found else (0, None)
        if text is None:
            raise RefusedError(
                Refusal("NoLog", f"no log of job {entry.id} is kept; it is {entry.state}, and logs come at the end")
            )
        return PlainTextResponse(text, headers={"hcs-attempt": str(attempt)})

    async def cancel(request: Request) -> Response:
        entry = _find(service, request)
        if entry.state in ("Cancelled", "Cancelling"):
            return answer(show(entry))
        if entry.state in ENDED:
            raise RefusedError(
                Refusal("AlreadyEnded", f"job {entry.id} is {entry.state} already; there is nothing to cancel")
            )
        after: State = "Cancelled" if entry.state == "Queued" else "Cancelling"
        message = "on request, before it had a place" if after == "Cancelled" else "on request, its Job is removed"
        moved = service.store.move(entry, after, now=service.now(), reason="Requested", message=message)
        service.wake()
        return answer(show(moved))

    return [
        Route("/jobs", submit, methods=["POST"]),
        Route("/jobs", jobs, methods=["GET"]),
        Route("/jobs/{id}", job, methods=["GET"]),
        Route("/jobs/{id}", cancel, methods=["DELETE"]),
        Route("/jobs/{id}/why", why, methods=["GET"]),
        Route("/jobs/{id}/log", log, methods=["GET"]),
    ]


def _key(request: Request, manifest: dict[str, Any]) -> str | None:
    header, written = request.headers.get("idempotency-key"), annotation(manifest, KEY)
    try:
        given = None if header is None else read_key(header)
        noted = None if written in (None, "") else read_key(written)
    except AmountError as error:
        raise RefusedError(Refusal("BadKey", str(error))) from error
    if given is not None and noted is not None and given != noted:
        raise RefusedError(Refusal("BadKey", f"header Idempotency-Key and annotation {KEY} differ; keep one of them"))
    return given or noted


def _states(words: Iterable[str]) -> tuple[State, ...]:
    by_name = {state.lower(): (state,) for state in STATES} | GROUPS
    found: dict[State, None] = {}
    for word in (part.strip() for text in words for part in text.split(",")):
        if word.lower() not in by_name:
            raise RefusedError(
                Refusal("BadQuery", f"there is no state {word[:40]!r}; known are {', '.join([*STATES, *GROUPS])}")
            )
        found.update(dict.fromkeys(by_name[word.lower()]))
    return tuple(found) or STATES


def _find(service: Service, request: Request) -> Entry:
    """The job somebody means; of several of one name, the one submitted last."""
    text = request.path_params["id"]
    found = service.store.find(text)
    if not found:
        raise RefusedError(Refusal("UnknownJob", f"there is no job {text[:80]!r}; 'hcs cpn queue' lists them"))
    if len(found) > 1 and found[0].submission.name != text:
        some = ", ".join(entry.id for entry in found[:5])
        raise RefusedError(Refusal("AmbiguousJob", f"{text[:80]!r} begins several ids: {some}; write one of them out"))
    return found[0]


def _note(service: Service, entry: Entry) -> str:
    """Why it stands still where it is; what its last step said is shown anyway."""
    said = service.why(entry).headline if entry.state in PLACED else ""
    return "" if said == f"{entry.reason}: {entry.message}" else said


def _cautions(entry: Entry) -> tuple[Refusal, ...]:
    try:
        return read_submission(entry.manifest, entry.submitted).cautions
    except RefusedError:  # an older program took it, by other rules
        return ()
