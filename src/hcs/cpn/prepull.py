"""Has images of jobs that wait pulled where they are expected, so that their start does not wait for a registry.

A small Job with no card, bound to one node of the expected kind by its hostname, names the image; what it would run
does not matter, for the kubelet has pulled by then. That needs no more rights than sending jobs does. It is a courtesy:
it decides nothing, runs beside the decisions, is bounded in number and time, and its failures change nothing for the
job. All that must be known of it is on the clusters, under a label of its own, so one that is started anew goes on.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import msgspec
from lightkube import ApiError

from hcs.cpn.clusterjobs import AGAIN
from hcs.cpn.endings import over
from hcs.cpn.orphans import first_seen
from hcs.cpn.pullmanifest import images_of, images_on, may_go, normal, pull_manifest, pull_name, sent_template
from hcs.cpn.watching import Station
from hcs.kube import manifests, resources
from hcs.kube.informer import ALL_NAMESPACES
from hcs.wide.entries import LABEL_PULL, Entry
from hcs.wide.jobs import Milliseconds

log = logging.getLogger(__name__)

_MOST_JOBS: Final = 50
"""So many of the jobs that start next are looked at."""
_VISIT: Final = 30.0
"""Seconds that one look at a cluster may take."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``images``: whether any are pulled in advance; ``nodes``: on how many of a kind; ``at_once``: so many a cluster.

    Times in seconds: ``deadline`` is how long a pull may take, ``keep`` how long one that is over is left for people to
    look at, and not tried again; ``gap`` lies between two looks, and after ``again`` one is due though nothing changed.
    """

    images: bool = True
    nodes: int = 2
    at_once: int = 4
    deadline: int = 1800
    keep: int = 900
    gap: float = 5.0
    again: float = 60.0


class Expected(msgspec.Struct, frozen=True):
    """A job that waits, and where the plan has it start later."""

    entry: Entry
    cluster: str
    kind: str


class Prepuller:
    """``run`` it beside the decisions; tell it with :meth:`want` what they expect."""

    def __init__(
        self,
        stations: Callable[[], Iterable[Station]],
        queue: str,
        *,
        waits: Callable[[Entry], bool],
        now: Callable[[], Milliseconds],
        may_act: Callable[[], bool],
        settings: Settings,
    ) -> None:
        """
        Args:
            stations: the clusters that are connected.
            queue: the id of the queue.
            waits: whether an entry still waits.
            now: milliseconds since 1970.
            may_act: whether this process is the one that acts now.
            settings: limits.
        """
        self._stations, self._queue, self._waits = stations, queue, waits
        self._now, self._may_act, self.settings = now, may_act, settings
        self._expected: tuple[Expected, ...] = ()
        self._changed = asyncio.Event()
        self._seen: dict[str, dict[str, Milliseconds]] = {}
        """By cluster: UIDs of pulls and whether they are over, and since when they were seen to be."""
        self._empty: set[str] = set()
        """Clusters that were looked at and hold no pull of ours."""
        self._refused: dict[tuple[str, str], Milliseconds] = {}
        """Cluster and name of pulls that it would not have, and until when they are not tried again."""
        self._troubled: set[str] = set()

    def want(self, expected: Iterable[Expected]) -> None:
        """What the last plan expects, the soonest first; takes no time."""
        first = tuple(islice(expected, _MOST_JOBS))
        if [_key(one) for one in first] != [_key(one) for one in self._expected]:
            self._changed.set()
        self._expected = first

    async def run(self) -> None:
        """Look after every change, until cancelled."""
        while self.settings.images:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.settings.again):
                    await self._changed.wait()
            self._changed.clear()
            if self._may_act():
                await asyncio.gather(*(self._visit(station) for station in list(self._stations())))
            await asyncio.sleep(self.settings.gap)

    async def _visit(self, station: Station) -> None:
        """One cluster. Whatever goes wrong there is told once, and is no matter for the controller."""
        name = station.name
        wanted = [one for one in self._expected if one.cluster == name]
        if (name in self._empty and not wanted) or not station.cluster.view().reachable:
            return
        try:
            async with asyncio.timeout(_VISIT):
                refused = await self._serve(station, wanted)
        except Exception as error:
            refused = repr(error)
        if refused and name not in self._troubled:
            log.warning("images are not pulled in advance: cluster=%s error=%s", name, refused)
        (self._troubled.add if refused else self._troubled.discard)(name)

    async def _serve(self, station: Station, wanted: Sequence[Expected]) -> str:
        """Remove old pulls, create new ones; what the cluster said if it refused any."""
        refused, now = "", self._now()
        ours: dict[str, Any] = {LABEL_PULL: self._queue}
        listed = station.client.list(resources.Job, namespace=ALL_NAMESPACES, labels=ours)
        pulls = {job.metadata.uid: job async for job in listed}
        await self._remove_old(station, pulls)
        (self._empty.discard if pulls else self._empty.add)(station.name)
        tried = {(job.metadata.name, job.metadata.namespace) for job in pulls.values()}
        tried |= {(job.metadata.name, None) for job in pulls.values() if over(job) != "Failed"}
        running = sum(over(job) is None for job in pulls.values())
        self._refused = {key: until for key, until in self._refused.items() if until > now}
        async for one, spec, image, node in self._missing(station, wanted):
            name, namespace = pull_name(self._queue, image, node.metadata.name), one.entry.submission.namespace
            if (station.name, name) in self._refused or tried & {(name, None), (name, namespace)}:
                continue
            if running >= self.settings.at_once or not self._may_act():
                break
            if not self._waits(one.entry):
                continue
            self._empty.discard(station.name)
            problem = await _create(station, self._manifest(image, node, spec, namespace))
            if problem:
                refused = problem
                self._refused[station.name, name] = now + self.settings.keep * 1000
                continue
            log.info("pulling in advance: cluster=%s node=%s image=%s", station.name, node.metadata.name, image)
            tried.add((name, None))
            running += 1
        return refused

    def _manifest(self, image: str, node: resources.Node, spec: Mapping[str, Any], namespace: str) -> dict[str, Any]:
        deadline, keep = self.settings.deadline, self.settings.keep
        return pull_manifest(self._queue, image, node, spec, namespace, deadline=deadline, keep=keep)

    async def _missing(
        self, station: Station, wanted: Sequence[Expected]
    ) -> AsyncIterator[tuple[Expected, Mapping[str, Any], str, resources.Node]]:
        """Images of the jobs, and nodes which may get these jobs and do not report them."""
        nodes = dict[str, resources.Node | None]()
        for one in wanted:
            template = sent_template(one.entry.manifest, station.overlay)
            for image in images_of(template):
                for name in self._nodes(station, one.kind):
                    if name not in nodes:
                        nodes[name] = await _node(station, name)
                    node = nodes[name]
                    if node is None or not may_go(template["spec"], node) or normal(image) in images_on(node):
                        continue
                    yield one, template["spec"], image, node

    async def _remove_old(self, station: Station, pulls: Mapping[str, resources.Job]) -> None:
        """The clusters end and remove them too; but none shall stay where that does not work."""
        now, name, keep = self._now(), station.name, self.settings.keep
        marks = {uid: f"{uid} {over(job)}" for uid, job in pulls.items()}
        self._seen[name] = first_seen(self._seen.get(name, {}), set(marks.values()), now)
        for uid, job in pulls.items():
            limit = keep if over(job) is not None else self.settings.deadline + keep
            if now - self._seen[name][marks[uid]] >= limit * 1000 and self._may_act():
                await station.actions.delete(job.metadata.name, job.metadata.namespace or "default")

    def _nodes(self, station: Station, kind: str) -> Sequence[str]:
        """Those with most cards of a kind, always the same ones, so all that wait for it ask for the same pulls."""
        find: Callable[[str], Sequence[str]] | None = getattr(station.cluster, "nodes_with", None)
        return find(kind)[: self.settings.nodes] if find is not None else ()


async def _create(station: Station, manifest: dict[str, Any]) -> str:
    """Why the cluster will not have it; empty where it is there, by this request or an earlier one."""
    try:
        await manifests.create(station.client, manifest)
    except ApiError as error:
        if error.status.code is None or error.status.code in AGAIN:
            raise
        return "" if error.status.code == 409 else str(error)
    return ""


async def _node(station: Station, name: str) -> resources.Node | None:
    """One node, by a list: that is the right we have."""
    only: dict[str, Any] = {"metadata.name": name}
    return next(iter([node async for node in station.client.list(resources.Node, fields=only)]), None)


def _key(one: Expected) -> tuple[str, str, str]:
    return one.entry.id, one.cluster, one.kind
