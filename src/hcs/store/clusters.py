"""A cluster as a named object of the queue: how to reach it, and what is peculiar there.

Clusters come and go without a restart: the store keeps these objects, and whoever watches them connects or lets go.
"""

from typing import Any, Final

import msgspec

from hcs.wide.jobs import Milliseconds
from hcs.wide.network import Link

LOST_AFTER: Final[Milliseconds] = 5 * 60 * 1000
"""How long an unreachable cluster keeps its jobs, where nothing else is said."""


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line between a cluster and another place, equally fast both ways: another cluster, or a store of data."""

    place: str
    bytes_per_second: int
    latency: Milliseconds = 0


class ClusterConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    """One cluster.

    Its API is found by ``kubeconfig``, a path on the controller's machine, or ``kubeconfig_text``, the file itself,
    with ``context`` (empty: the current one); ``server`` overrides the API's address there. ``prometheus`` and
    ``blobs`` are base URLs; empty: none. ``namespace`` is where Jobs are made that do not name one. ``overlay`` is
    merged into the pod template of every Job sent there: another scheduler's name, annotations, limits. ``lost_after``
    is how long it may be out of reach, in milliseconds, until its jobs are planned anew. ``prometheus_token_file``
    holds a bearer token for it, ``prometheus_ca_file`` the authority of its certificate, and ``prometheus_labels`` tell
    this cluster's series from those of others.
    """

    name: str
    kubeconfig: str = ""
    kubeconfig_text: str = ""
    context: str = ""
    server: str = ""
    prometheus: str = ""
    blobs: str = ""
    namespace: str = "default"
    overlay: dict[str, Any] = {}
    lines: tuple[Line, ...] = ()
    lost_after: Milliseconds = LOST_AFTER
    prometheus_token_file: str = ""
    prometheus_ca_file: str = ""
    prometheus_labels: dict[str, str] = {}

    def links(self) -> tuple[Link, ...]:
        """Its lines as one-way links of the planner's network, both ways."""
        ways = (
            ((self.name, line.place, line) for line in self.lines),
            ((line.place, self.name, line) for line in self.lines),
        )
        return tuple(
            Link(source, target, line.bytes_per_second, line.latency) for way in ways for source, target, line in way
        )
