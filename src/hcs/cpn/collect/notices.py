"""Who is told what of a cluster: the controller of every change that counts, the log once of each thing that is amiss.

A change counts when a decision could depend on it; that a figure has grown older is none. What pods ask of the CPU
changes with every pod and only says which guests may join, who are looked at twice a minute anyway.
"""

import logging
from collections.abc import Callable

import msgspec

from hcs.cpn.views import ClusterView, Reading

log = logging.getLogger(__name__)


class Notices:
    """What was told already of one cluster."""

    def __init__(self, name: str, on_change: Callable[[str], None]) -> None:
        """
        Args:
            name: the cluster's.
            on_change: called with it after a change.
        """
        self._name, self._on_change = name, on_change
        self._told: ClusterView | None = None
        self._amiss: dict[str, None] | None = None

    def tell(self, view: ClusterView, *, beginning: bool, unasked: bool) -> None:
        """Look at a view and tell what is new in it.

        Args:
            view: of now.
            beginning: whether the first answer of its API is still awaited.
            unasked: whether that of its Prometheus is.
        """
        if not beginning and not unasked:
            self._report(view)
        plain = _without_ages(view)
        if plain == self._told:
            return
        before, self._told = self._told, plain
        if view.reachable and not (before is not None and before.reachable):
            log.info("cluster reachable: cluster=%s", self._name)
        elif not view.reachable and not beginning and (before is None or before.message != view.message):
            log.warning("cluster unreachable: cluster=%s message=%s", self._name, view.message)
        self._on_change(self._name)

    def _report(self, view: ClusterView) -> None:
        """Say once what is missing, and once that it is back; the first time also that nothing is."""
        now = dict.fromkeys((*view.missing, *view.doubts))
        if self._amiss is None and not now:
            log.info("metrics complete: cluster=%s", self._name)
        before, self._amiss = self._amiss or {}, now
        for sentence in now:
            if sentence not in before:
                log.warning("metrics missing: cluster=%s what=%s", self._name, sentence)
        for sentence in before:
            if sentence not in now:
                log.info("metrics back: cluster=%s what=%s", self._name, sentence)


def _without_ages(view: ClusterView) -> ClusterView:
    """What two views have in common when nothing happened between them but time."""

    def plain(reading: Reading | None) -> Reading | None:
        return None if reading is None else Reading(reading.value)

    return msgspec.structs.replace(
        view,
        pools=tuple(
            msgspec.structs.replace(pool, busy=plain(pool.busy), used=plain(pool.used), cpu_asked=0, cpu_busy=None)
            for pool in view.pools
        ),
        cpu_busy=plain(view.cpu_busy),
        host_free=plain(view.host_free),
        seen=0,
    )
