"""When bytes are where a job needs them: stores, links between clusters, and what is under way.

A link carries one blob after the other, so blobs that share a link share its bandwidth. What a store holds is free;
what is on its way is waited for once, whoever asked first. Each blob comes from the store, and along the way, that
delivers it first: links are first come first served, so a shortest-path search over arrival times is exact.
"""

import heapq
from collections.abc import Iterable
from itertools import pairwise

import msgspec

from hcs.wide.jobs import Blob, Bytes, Milliseconds


class Link(msgspec.Struct, frozen=True):
    """A one-way connection between two places."""

    source: str
    target: str
    bytes_per_second: int
    latency: Milliseconds = 0

    def __post_init__(self) -> None:
        if self.bytes_per_second < 1:
            raise ValueError(f"link {self.source} to {self.target} needs at least 1 byte a second")

    def takes(self, size: Bytes) -> Milliseconds:
        """Milliseconds the link is busy with so many bytes, rounded up."""
        return -(-size * 1000 // self.bytes_per_second)


class Transfer(msgspec.Struct, frozen=True):
    """One blob on its way over links, by place in ``way``; there at ``arrives``."""

    blob: Blob
    way: tuple[str, ...]
    arrives: Milliseconds


class Network:
    """Stores and links with what is booked on them. ``copy`` before trying things out."""

    def __init__(self, links: Iterable[Link] = (), stored: Iterable[tuple[str, str]] = ()) -> None:
        """``stored`` names places and digests of what lies there."""
        self._links: dict[str, list[Link]] = {}
        for link in links:
            self._links.setdefault(link.source, []).append(link)
        self._there: dict[tuple[str, str], Milliseconds] = dict.fromkeys(stored, 0)
        self._busy: dict[tuple[str, str], Milliseconds] = {}
        self.moved: Bytes = 0

    def copy(self) -> "Network":
        """An independent copy; links are shared, they never change."""
        twin = Network()
        twin._links, twin.moved = self._links, self.moved
        twin._there, twin._busy = self._there.copy(), self._busy.copy()
        return twin

    def ready(self, cluster: str, inputs: Iterable[Blob], now: Milliseconds) -> Milliseconds | None:
        """When all inputs could be there if fetched from now on; None where no way leads there. Books nothing."""
        missing = [blob for blob in inputs if (cluster, blob.digest) not in self._there]
        if missing:
            twin = self.copy()
            if twin.fetch(cluster, missing, now) is None:
                return None
            return max(twin.present(cluster, blob.digest, now) for blob in inputs)
        return max((self.present(cluster, blob.digest, now) for blob in inputs), default=now)

    def present(self, cluster: str, digest: str, now: Milliseconds) -> Milliseconds:
        """When what was fetched is there; not before now."""
        return max(now, self._there[cluster, digest])

    def fetch(self, cluster: str, inputs: Iterable[Blob], now: Milliseconds) -> tuple[Transfer, ...] | None:
        """Book what is missing, each blob once; None where one cannot come, and then nothing is booked for it."""
        made = []
        for blob in inputs:
            if (cluster, blob.digest) in self._there:
                continue
            ways = self._ways(blob, now)
            if cluster not in ways:
                return None
            _, way = ways[cluster]
            moment = max(now, self._there[way[0], blob.digest])
            for source, target in pairwise(way):
                link = min(
                    (link for link in self._links[source] if link.target == target),
                    key=lambda link: link.takes(blob.size) + link.latency,
                )
                leaves = max(moment, self._busy.get((source, target), 0)) + link.takes(blob.size)
                self._busy[source, target] = leaves
                moment = leaves + link.latency
                self.moved += blob.size
            self._there[cluster, blob.digest] = moment
            made.append(Transfer(blob, way, moment))
        return tuple(made)

    def _ways(self, blob: Blob, now: Milliseconds) -> dict[str, tuple[Milliseconds, tuple[str, ...]]]:
        """Where the blob could be when, and on which way, from every store that holds it."""
        queue: list[tuple[Milliseconds, tuple[str, ...]]] = [
            (max(now, at), (place,)) for (place, digest), at in self._there.items() if digest == blob.digest
        ]
        heapq.heapify(queue)
        found: dict[str, tuple[Milliseconds, tuple[str, ...]]] = {}
        while queue:
            moment, way = heapq.heappop(queue)
            if way[-1] in found:
                continue
            found[way[-1]] = moment, way
            for link in self._links.get(way[-1], ()):
                if link.target not in found:
                    leaves = max(moment, self._busy.get((link.source, link.target), 0)) + link.takes(blob.size)
                    heapq.heappush(queue, (leaves + link.latency, (*way, link.target)))
        return found
