"""What the router counts, for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class Meters:
    """The router's counters, on a registry of their own so that several routers fit into one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.filter_seconds = Histogram(
            "hcs_router_filter_seconds",
            "Seconds to decide one filter call.",
            buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0),
            registry=self.registry,
        )
        self.filters = Counter(
            "hcs_router_filter_total", "Filter calls by their result.", ["result"], registry=self.registry
        )
        self.binds = Counter("hcs_router_bind_total", "Bind calls by their result.", ["result"], registry=self.registry)
        self.pokes = Counter("hcs_router_pokes_total", "Waiting pods woken by us.", registry=self.registry)
        self.offers = Counter(
            "hcs_router_offers_total", "Substitution offers by what became of them.", ["result"], registry=self.registry
        )
        self.gangs = Counter(
            "hcs_router_gangs_total", "Plans of gangs by what became of them.", ["result"], registry=self.registry
        )
        self.preemptions = Counter(
            "hcs_router_preemptions_total",
            "Preemptions begun, victims evicted, and preemptions given up, by result.",
            ["result"],
            registry=self.registry,
        )
        self.reservations = Gauge("hcs_router_reservations", "Pods with devices held.", registry=self.registry)
        self.waiting = Gauge("hcs_router_waiting_pods", "Pods refused and not yet placed.", registry=self.registry)
