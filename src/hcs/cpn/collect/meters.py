"""What is known of the clusters, for Prometheus: computed when asked, from what was last seen."""

from collections.abc import Callable, Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from hcs.cpn.collect.cluster import LiveCluster

SUCCEEDED = "Answered"


class ClusterMeters(Collector):
    """One family for each figure; a cluster that is gone has no line any more."""

    def __init__(self, clusters: Callable[[], Mapping[str, LiveCluster]]) -> None:
        """Take where the clusters are found; nothing is read here."""
        self._clusters = clusters

    def collect(self) -> Iterable[Metric]:
        """Read all views once."""
        reachable = _gauge("hcs_cpn_cluster_reachable", "Whether the cluster's API answers.")
        seen = _gauge("hcs_cpn_cluster_seen_timestamp_seconds", "When its API last answered, in seconds since 1970.")
        cards = _gauge("hcs_cpn_cluster_cards", "Cards by state: usable, taken by others, ours.", "model", "state")
        jobs = _gauge("hcs_cpn_cluster_foreign_jobs", "Jobs of others that run there.")
        missing = _gauge("hcs_cpn_cluster_missing_metrics", "Sentences about figures that are not there.")
        doubts = _gauge("hcs_cpn_cluster_doubted_metrics", "Sentences about figures that are hard to believe.")
        age = _gauge("hcs_cpn_cluster_metrics_age_seconds", "How old the oldest figure in use is.")
        rounds = CounterMetricFamily(
            "hcs_cpn_metric_rounds", "Rounds of questions to its Prometheus.", labels=["cluster", "result"]
        )
        seconds = CounterMetricFamily(
            "hcs_cpn_metric_rounds_seconds", "Seconds these rounds took together.", labels=["cluster"]
        )
        for name, cluster in self._clusters().items():
            view = cluster.view()
            reachable.add_metric([name], view.reachable)
            if view.seen:
                seen.add_metric([name], view.seen / 1000)
            for pool in view.pools:
                for state, count in (("usable", pool.usable), ("taken", pool.taken), ("ours", pool.ours)):
                    cards.add_metric([name, pool.kind, state], count)
            jobs.add_metric([name], view.foreign_jobs)
            missing.add_metric([name], len(view.missing))
            doubts.add_metric([name], len(view.doubts))
            readings = [view.cpu_busy, view.host_free, *(one for pool in view.pools for one in (pool.busy, pool.used))]
            if ages := [reading.age for reading in readings if reading is not None]:
                age.add_metric([name], max(ages) / 1000)
            for reason, count in sorted(cluster.rounds.items()):
                rounds.add_metric([name, reason or SUCCEEDED], count)
            seconds.add_metric([name], cluster.round_seconds)
        yield from (reachable, seen, cards, jobs, missing, doubts, age, rounds, seconds)


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=["cluster", *labels])
