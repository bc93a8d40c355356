"""Which node is meant by what an exporter calls it: one of its names or addresses, or the address of a pod on it.

Prometheus knows a host as it scrapes it, an exporter as its own system does, and the API by the name it registered
with. Each text leads to one node or to none: where two nodes could be meant, nobody guesses.
"""

import ipaddress
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from hcs.cpn.collect.inventory import Machine


class Places:
    """The nodes of a cluster by all that they are called."""

    def __init__(self, machines: Mapping[str, Machine], node_of_pod: Callable[[str], str | None]) -> None:
        """
        Args:
            machines: the nodes, by name.
            node_of_pod: the node of the pod that has an address.
        """
        self._machines, self._node_of_pod = machines, node_of_pod
        exact, short = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
        for machine in machines.values():
            for address in machine.addresses:
                exact[plain(address)].add(machine.name)
                short[without_domain(address)].add(machine.name)
        self._exact, self._short = _certain(exact), _certain(short)

    def node(self, texts: Iterable[str]) -> str | None:
        """The node that the first of these texts means which means any; None where none does."""
        known = [text for text in texts if text]
        for text in known:
            if (found := self._exact.get(plain(text))) is not None:
                return found
        for text in known:
            if (found := self._node_of_pod(plain(text))) in self._machines:
                return found
        return next((self._short[name] for text in known if (name := without_domain(text)) in self._short), None)


def plain(text: str) -> str:
    """A name or address in the one way it is compared.

    >>> plain("Node-1"), plain("FD00:0:0::7")
    ('node-1', 'fd00::7')
    """
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return text.casefold()


def without_domain(text: str) -> str:
    """A host's name without its domain; an address as it is.

    >>> without_domain("node-1.site.example"), without_domain("10.0.0.1")
    ('node-1', '10.0.0.1')
    """
    whole = plain(text)
    try:
        return str(ipaddress.ip_address(whole))
    except ValueError:
        return whole.partition(".")[0]


def _certain(found: Mapping[str, set[str]]) -> dict[str, str]:
    return {text: next(iter(nodes)) for text, nodes in found.items() if len(nodes) == 1}
