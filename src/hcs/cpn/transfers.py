"""Brings a job's bytes to the cluster where it will run, while it still waits.

The stores do the work: each fetches from another one and checks what came. Here it is known what lies where, what is
on its way, and how fast the links really are; the planner counts with that. What is there is free, and a blob that two
jobs need comes once. Nothing here is lost with the process: what a store was told to fetch it goes on fetching, and
what lies where is asked anew.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import pairwise
from typing import Annotated, Any, Final

import httpx2
import msgspec

from hcs.cpn.blobs import Progress
from hcs.kube.transport import Transport
from hcs.wide.jobs import Blob, Milliseconds
from hcs.wide.network import Link, Network

log = logging.getLogger(__name__)

RATES: Final = "bandwidth"
"""Under this name learnt bandwidths are kept: a list of source, target and bytes a second."""
MOVABLE: Final = "sha256:"
_LEARNT_FROM: Final = 1 << 20
"""Bytes from which on a transfer says something about the link; smaller ones tell of the start only."""
_WEIGHT: Final = 0.3
_MOST_LISTED: Final = 64 << 20
"""Bytes of the list of what a store holds: some half a million blobs."""
_ODD: Final = (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError, RecursionError)
"""What an address may lead to that is no store's."""
_SILENCES: Final = 20
"""Requests without an answer, one after the other, until a transfer is given up for a while."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds between looks at a store and at a transfer, and after a failure; ``default_rate`` in bytes a second is
    assumed between stores for which no line is configured and nothing was learnt."""

    listing: float = 30.0
    poll: float = 0.5
    after_failure: float = 30.0
    default_rate: int = 50_000_000


class _Listing(msgspec.Struct, frozen=True):
    blobs: dict[str, Annotated[int, msgspec.Meta(ge=0)]]


class _Coming(msgspec.Struct):
    blob: Blob
    source: str
    got: int = 0


class Mover:
    """What lies where, and what is on its way. ``run`` it beside the controller."""

    def __init__(
        self,
        stores: Callable[[], Mapping[str, str]],
        lines: Callable[[], Iterable[Link]],
        *,
        now: Callable[[], Milliseconds],
        http: Callable[[], httpx2.AsyncClient] = lambda: httpx2.AsyncClient(
            timeout=15.0, transport=Transport(), trust_env=False
        ),
        token: str = "",
        kept: bytes | None = None,
        keep: Callable[[bytes], None] = lambda _: None,
        changed: Callable[[], None] = lambda: None,
        pause: Callable[[float], Awaitable[Any]] = asyncio.sleep,
        settings: Settings | None = None,
    ) -> None:
        """
        Args:
            stores: places and the addresses of their stores, as they are now.
            lines: configured links.
            now: milliseconds since 1970.
            http: makes a client towards the stores.
            token: the bearer token they want of writers.
            kept: what ``keep`` was given last by an earlier process.
            keep: keeps learnt bandwidths.
            changed: called when something came or could not come.
            pause: how to wait.
            settings: times.
        """
        self._stores, self._lines, self._now, self._http = stores, lines, now, http
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._keep, self._changed, self._pause = keep, changed, pause
        self.settings = settings or Settings()
        self._rates: dict[tuple[str, str], int] = {}
        for source, target, rate in msgspec.json.decode(kept, type=list[tuple[str, str, int]]) if kept else ():
            self._rates[source, target] = rate
        self._there: dict[str, dict[str, int]] = {}
        self._coming: dict[tuple[str, str], _Coming] = {}
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._failed: dict[tuple[str, str], tuple[Milliseconds, str]] = {}
        self.moved = 0
        """Bytes that stores say they really moved for us."""

    # What the controller asks

    def network(self, now: Milliseconds) -> Network | None:
        """Stores and links for the planner, with what is on its way booked; None where nobody named a store."""
        if not self._stores():
            return None
        stored = [(place, digest) for place, blobs in self._there.items() for digest in blobs]
        network = Network(self.links(), stored)
        for (place, _), coming in self._coming.items():
            left = max(1, coming.blob.size - coming.got)
            network.fetch(place, (Blob(coming.blob.digest, left),), now)
        return network

    def links(self) -> tuple[Link, ...]:
        """All links: as configured, corrected by what was learnt; between other stores, what is usual."""
        configured = {(link.source, link.target): link for link in self._lines()}
        places = sorted(self._stores())
        made = []
        for source in places:
            for target in places:
                if source == target:
                    continue
                link = configured.pop((source, target), None)
                rate = self._rates.get((source, target)) or (link.bytes_per_second if link else None)
                if rate is None and any(target == end for _, end in configured):
                    continue  # somebody drew a map, and this line is not on it
                latency = link.latency if link else 0
                made.append(Link(source, target, max(1, rate or self.settings.default_rate), latency))
        return (*made, *configured.values())

    def present(self, cluster: str, inputs: Iterable[Blob]) -> bool:
        """Whether all of these are there. Where nobody named any store, jobs bring their inputs themselves."""
        there = self._there.get(cluster, {})
        return not self._stores() or all(blob.digest in there for blob in inputs)

    def trouble(self, cluster: str, inputs: Iterable[Blob]) -> str:
        """Why something of this is not coming; empty where all is well."""
        return next(
            (self._failed[cluster, blob.digest][1] for blob in inputs if (cluster, blob.digest) in self._failed), ""
        )

    def fetch(self, cluster: str, inputs: Iterable[Blob]) -> None:
        """Have these brought there, each once."""
        if not self._stores():
            return
        for blob in inputs:
            key = (cluster, blob.digest)
            until, _ = self._failed.get(key, (0, ""))
            if blob.digest in self._there.get(cluster, {}) or key in self._tasks or until > self._now():
                continue
            self._coming[key] = _Coming(blob, "")
            self._tasks[key] = asyncio.get_running_loop().create_task(self._bring(cluster, blob))

    async def run(self) -> None:
        """Ask the stores what they hold, again and again, until cancelled."""
        try:
            while True:
                await self.look()
                await self._pause(self.settings.listing)
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def look(self) -> None:
        """Ask all stores once. One that does not answer is believed to hold what it held."""
        stores = self._stores()
        self._there = {place: held for place, held in self._there.items() if place in stores}
        before = {place: set(held) for place, held in self._there.items()}
        await asyncio.gather(*(self._look_at(place, url) for place, url in stores.items()))
        if before != {place: set(held) for place, held in self._there.items()}:
            self._changed()

    # How it is done

    async def _look_at(self, place: str, url: str) -> None:
        try:
            async with self._http() as http, http.stream("GET", f"{url.rstrip('/')}/blobs") as answer:
                answer.raise_for_status()
                content = bytearray()
                async for piece in answer.aiter_bytes():
                    content += piece
                    if len(content) > _MOST_LISTED:
                        raise ValueError(f"more than {_MOST_LISTED >> 20} MiB, which is no list of blobs")
            self._there[place] = msgspec.json.decode(content, type=_Listing).blobs
        except _ODD as error:
            log.warning("store not readable: place=%s url=%s error=%r", place, url, error)

    async def _bring(self, cluster: str, blob: Blob) -> None:
        key = (cluster, blob.digest)
        try:
            network = Network(self.links(), [(p, d) for p, held in self._there.items() for d in held])
            found = network.fetch(cluster, (blob,), self._now())
            if not found or not blob.digest.startswith(MOVABLE):
                raise _NotComingError(f"no store that holds {blob.digest} has a way to {cluster}")
            for source, target in pairwise(found[0].way):
                await self._move(source, target, blob, self._coming[key])
            self._failed.pop(key, None)
        except (_NotComingError, *_ODD) as error:
            again = self._now() + round(self.settings.after_failure * 1000)
            self._failed[key] = again, str(error) if isinstance(error, _NotComingError) else f"{cluster}: {error!r}"
            log.warning("transfer failed: cluster=%s digest=%s error=%s", cluster, blob.digest, error)
        finally:
            self._coming.pop(key, None)
            self._tasks.pop(key, None)
        self._changed()

    async def _move(self, source: str, target: str, blob: Blob, coming: _Coming) -> None:
        """One hop: told once, then looked at until it is over; a store that is away for a while is waited for."""
        stores = self._stores()
        if source not in stores or target not in stores:
            raise _NotComingError(f"{source} or {target} has no store any more")
        url, body = stores[target].rstrip("/"), {"digest": blob.digest, "source": stores[source]}
        coming.source, coming.got = source, 0
        progress, silent = None, 0
        async with self._http() as http:
            while progress is None or progress.state != "done":
                try:
                    if progress is None:
                        answer = await http.post(f"{url}/fetch", json=body, headers=self._headers)
                    else:
                        await self._pause(self.settings.poll)
                        answer = await http.get(f"{url}/fetch/{blob.digest}")
                except (httpx2.HTTPError, OSError) as error:
                    silent += 1
                    if silent > _SILENCES:
                        raise _NotComingError(f"store {target} does not answer: {error!r}") from error
                    await self._pause(self.settings.poll * min(silent, 10))
                    continue
                silent = 0
                if answer.status_code == 404 and progress is not None:
                    progress = None  # it was started anew and has forgotten what it was told
                    continue
                if answer.status_code >= 400:
                    raise _NotComingError(f"store {target} says {answer.status_code}: {answer.text[:300]}")
                progress = msgspec.json.decode(answer.content, type=Progress)
                coming.got = progress.got
                if progress.state == "failed":
                    raise _NotComingError(progress.message)
        self._there.setdefault(target, {})[blob.digest] = progress.size or blob.size
        self.moved += progress.moved
        self._learn(source, target, progress)
        log.info("transferred: digest=%s from=%s to=%s bytes=%d", blob.digest, source, target, progress.moved)

    def _learn(self, source: str, target: str, progress: Progress) -> None:
        if progress.moved < _LEARNT_FROM or progress.seconds <= 0:
            return
        rate, before = progress.moved / progress.seconds, self._rates.get((source, target))
        mixed = rate if before is None else before * (1 - _WEIGHT) + rate * _WEIGHT
        self._rates[source, target] = max(1, round(mixed))
        self._keep(msgspec.json.encode([(*link, rate) for link, rate in sorted(self._rates.items())]))


class _NotComingError(Exception):
    """A blob cannot be brought."""
