"""Virtual stream addresses: a tenant writes to stream 1 of its own, and a table says where that is today.

What a Service is to pods, this is to streams: a stable number in front of something that moves. A task that is mapped
anew keeps its numbers. Every tenant has its own numbers, and an entry leads only to cores of the same tenant: a packet
is looked up under the tenant it came from, never under what it says of itself, so none crosses.
"""

from typing import Any

import msgspec

from hcs.neuro.grids import Cell


class Endpoint(msgspec.Struct, frozen=True):
    """Where a stream enters: a board, one of its ports and channels, the core it leads to, and its rate in KSPS."""

    board: str
    port: str
    channel: int
    core: Cell
    ksps: int
    task: int


class ForwardingTable:
    """(tenant, virtual address) → endpoint."""

    def __init__(self) -> None:
        """Begin empty."""
        self._entries: dict[tuple[str, int], Endpoint] = {}
        self._next: dict[str, int] = {}

    def add(self, tenant: str, endpoint: Endpoint) -> int:
        """Give an endpoint the tenant's next address, and say which."""
        address = self._next.get(tenant, 1)
        self._next[tenant] = address + 1
        self._entries[tenant, address] = endpoint
        return address

    def move(self, tenant: str, address: int, endpoint: Endpoint) -> None:
        """Let an address lead elsewhere.

        Raises:
            KeyError: the tenant has no such address.
        """
        if (tenant, address) not in self._entries:
            raise KeyError(address)
        self._entries[tenant, address] = endpoint

    def remove(self, tenant: str, address: int) -> None:
        """Forget an address; it is not given again."""
        self._entries.pop((tenant, address), None)

    def forward(self, tenant: str, address: int) -> Endpoint | None:
        """Where a tenant's packet goes; None where the tenant has no such address, whoever else may."""
        return self._entries.get((tenant, address))

    def of(self, tenant: str) -> dict[int, Endpoint]:
        """All addresses of a tenant."""
        return {address: endpoint for (owner, address), endpoint in self._entries.items() if owner == tenant}

    def everything(self) -> dict[tuple[str, int], Endpoint]:
        """All entries; for the drivers and for checks."""
        return dict(self._entries)

    def copy(self) -> "ForwardingTable":
        """An independent copy."""
        twin = ForwardingTable()
        twin._entries, twin._next = dict(self._entries), dict(self._next)
        return twin


def network_policy(namespace: str, *, service: str = "hcs-neuroplugin", port: int = 8460) -> dict[str, Any]:
    """The NetworkPolicy for the host side of a tenant: its pods reach each other, the service, and name lookup only.

    Args:
        namespace: the tenant's.
        service: the ``app.kubernetes.io/name`` of the pods that carry streams.
        port: their port.
    """
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": "hcs-neural-streams",
            "namespace": namespace,
            "labels": {
                "app.kubernetes.io/part-of": "hetero-compute-router",
                "app.kubernetes.io/component": "neuroplugin",
            },
        },
        "spec": {
            "podSelector": {"matchLabels": {"snn.ai.compute/task": "true"}},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [{"podSelector": {}}]}],
            "egress": [
                {"to": [{"podSelector": {}}]},
                {
                    "to": [
                        {
                            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "hcs-system"}},
                            "podSelector": {"matchLabels": {"app.kubernetes.io/name": service}},
                        }
                    ],
                    "ports": [{"protocol": "TCP", "port": port}],
                },
                {"ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]},
            ],
        },
    }
