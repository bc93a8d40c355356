"""Where a node stands in the network, read from its labels.

A site's own labels come first, then those that clouds and vendors write. What a person states on the ComputeNode
(``spec.location``) wins over all of them. A level nobody names stays empty: nodes without it count as standing
together there, because nothing says that they do not.
"""

from collections.abc import Mapping
from typing import Final

from hcs.model import names
from hcs.model.devices import Location

ZONE: Final = (
    names.ZONE_LABEL,
    "topology.kubernetes.io/zone",  # Kubernetes, well-known labels
)
FABRIC: Final = (
    names.FABRIC_LABEL,
    "cloud.google.com/gce-topology-block",  # one fast network
    "topology.k8s.aws/network-node-layer-2",
    "oci.oraclecloud.com/host.network_block_id",
)
RACK: Final = (
    names.RACK_LABEL,
    "topology.kubernetes.io/rack",  # a custom of sites, no standard
    "cloud.google.com/gce-topology-subblock",
    "topology.k8s.aws/network-node-layer-3",  # the leaf switch
    "oci.oraclecloud.com/host.rack_id",
)
DOMAIN: Final = (
    names.LINK_DOMAIN_LABEL,
    "nvidia.com/gpu.clique",  # GPU feature discovery: cluster UUID and clique of a multi-node NVLink domain
    "topology.k8s.aws/ultraserver-id",
)


def locate(labels: Mapping[str, str], stated: Location | None = None) -> Location:
    """The node's place on each level.

    Args:
        labels: the node's.
        stated: what a person says; each level that is not empty wins.
    """
    known = stated or Location()
    return Location(
        zone=known.zone or _first(labels, ZONE),
        fabric=known.fabric or _first(labels, FABRIC),
        rack=known.rack or _first(labels, RACK),
        domain=known.domain or _first(labels, DOMAIN),
    )


def _first(labels: Mapping[str, str], keys: tuple[str, ...]) -> str:
    return next((labels[key] for key in keys if labels.get(key)), "")
