"""Who uses what, as metrics: memory, compute and cards by pod and by namespace, computed when somebody asks.

Counted is what is *given*, by the allocations of bound pods that have not ended: a quota's worth, whether the pod works
or sleeps. Compute is in ACU of the default class, as in allocations. A share counts as one card, because it keeps a
card from being given whole; ``kind`` tells shares from whole cards.
"""

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from hcs.model.allocations import Allocation
from hcs.router.view import FleetView

_POD_LABELS = ("namespace", "pod", "node", "vendor", "model")
_KINDS = ("shared", "whole")


class Usage(Collector):
    """Collects the usage of one router's view."""

    def __init__(self, view: FleetView) -> None:
        self._view = view

    def describe(self) -> list[GaugeMetricFamily]:
        """The families, empty: so that registering them computes nothing."""
        return list(_families())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Every bound pod of ours, and the sums of its namespace."""
        vram, acu, cards, ns_vram, ns_acu, ns_cards = _families()
        sums: Counter[tuple[str, str]] = Counter()
        namespaces: dict[str, None] = {}
        for uid, held in sorted(self._view.allocations.items()):
            pod = self._view.pod(uid)
            if pod is None or not held.containers:
                continue
            namespace = pod.metadata.namespace or "default"
            labels = [namespace, pod.metadata.name, held.node, held.vendor, held.model]
            grants = [grant for grants in held.containers.values() for grant in grants]
            bytes_, milliacu = sum(g.bytes for g in grants), sum(g.milliacu for g in grants)
            kind = self._kind(held)
            vram.add_metric(labels, bytes_)
            acu.add_metric(labels, milliacu / 1000)
            cards.add_metric([*labels, kind], len(held.devices()))
            namespaces[namespace] = None
            sums[namespace, "vram"] += bytes_
            sums[namespace, "milliacu"] += milliacu
            sums[namespace, kind] += len(held.devices())
        for namespace in sorted(namespaces):
            ns_vram.add_metric([namespace], sums[namespace, "vram"])
            ns_acu.add_metric([namespace], sums[namespace, "milliacu"] / 1000)
            for kind in _KINDS:
                ns_cards.add_metric([namespace, kind], sums[namespace, kind])
        yield from (vram, acu, cards, ns_vram, ns_acu, ns_cards)

    def _kind(self, held: Allocation) -> str:
        """Whether the cards are given whole: by the allocation's word, or because all memory of each is in it."""
        if held.exclusive:
            return "whole"
        fleet = self._view.placer.fleet
        for grants in held.containers.values():
            for grant in grants:
                position = fleet.device_index.get((held.node, grant.device))
                if position is None or grant.bytes < int(fleet.vram[position]):
                    return "shared"
        return "whole"


def _families() -> tuple[GaugeMetricFamily, ...]:
    return (
        GaugeMetricFamily("hcs_router_pod_vram_bytes", "Card memory given to a pod, in bytes.", labels=_POD_LABELS),
        GaugeMetricFamily("hcs_router_pod_acu", "Compute given to a pod, in ACU (gemm).", labels=_POD_LABELS),
        GaugeMetricFamily("hcs_router_pod_cards", "Cards a pod is on.", labels=(*_POD_LABELS, "kind")),
        GaugeMetricFamily(
            "hcs_router_namespace_vram_bytes", "Card memory given to a namespace, in bytes.", labels=("namespace",)
        ),
        GaugeMetricFamily(
            "hcs_router_namespace_acu", "Compute given to a namespace, in ACU (gemm).", labels=("namespace",)
        ),
        GaugeMetricFamily(
            "hcs_router_namespace_cards", "Cards that pods of a namespace are on.", labels=("namespace", "kind")
        ),
    )
