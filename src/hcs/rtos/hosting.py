"""Which node can host a pod's guests: the same plan as everywhere, made with what each node reports of itself.

Memory is counted twice and the worse count holds: what the node's agent reports as taken, and what the pods bound to
the node were planned to take, for the agent reports a guest only once it is there. CPU is a matter of weights and is
not counted: kube-scheduler does that by the pod's requests.

Sentences name what was asked, never what is free, so that they stay the same while the facts do.
"""

from collections.abc import Iterable, Mapping, Sequence

from hcs.model import names
from hcs.model.devices import NodeInventory, RtosHost
from hcs.model.pods import Pod
from hcs.model.refusals import Refusal, RefusedError
from hcs.rtos.annotations import names_guests, read_annotations
from hcs.rtos.configuration import Config
from hcs.rtos.hosts import XEN, Host
from hcs.rtos.planning import GuestPlan, plan
from hcs.rtos.podresources import resources_of
from hcs.rtos.resources import Resources

_CONFIG = Config()


def asks_for_guests(pod: Pod) -> bool:
    """Whether the pod's containers are guests: its annotations say so, or it names the resource admission writes."""
    for container in pod.spec.containers:  # plain loops: every decision of the router asks this
        resources = container.resources
        if names.RTOS_GUESTS in (resources.limits or ()) or names.RTOS_GUESTS in (resources.requests or ()):
            return True
    return names_guests(pod.annotations)


def check_guests(pod: Pod) -> list[Refusal]:
    """Find what no node could ever host; the host is as the pod's own annotations want it, its size not known."""
    try:
        pedestal = (read_annotations(pod.annotations).pedestal or XEN).lower()
    except RefusedError as error:
        return list(error.refusals)
    answers = [made for _, made in _plans(pod, Host(pedestal=pedestal))]
    return [answer for answer in answers if isinstance(answer, Refusal)]


def unable(
    pod: Pod, nodes: Sequence[str], inventories: Iterable[NodeInventory], bound: Mapping[str, Sequence[Pod]]
) -> dict[str, Refusal]:
    """The nodes that cannot host the pod's guests, with the reason.

    Args:
        pod: what asks.
        nodes: the nodes in question.
        inventories: what is known of nodes; one that is missing reports nothing.
        bound: node → the pods with guests that are bound there, or about to be.
    """
    hosts = {inventory.name: inventory for inventory in inventories}
    found = {}
    for name in nodes:
        inventory = hosts.get(name)
        host = inventory.rtos if inventory is not None else None
        others = [other for other in bound.get(name, ()) if other.metadata.uid != pod.metadata.uid]
        refusal = _no_host() if host is None else _refusal(pod, host, others)
        if refusal is not None:
            found[name] = refusal
    return found


def _no_host() -> Refusal:
    return Refusal("NoRtosHost", "asks for RTOS guests; the agent of this node reports no micad and no hypervisor")


def _refusal(pod: Pod, host: RtosHost, others: Sequence[Pod]) -> Refusal | None:
    if not host.ready:
        return Refusal("MicadSilent", "asks for RTOS guests; micad does not run on this node")
    facts = Host(host.pcpus, host.total_memory_mb, host.pedestal)
    plans = _plans(pod, facts)
    for container, answer in plans:
        if isinstance(answer, Refusal):
            return Refusal(answer.reason, f"container {container}: {answer.message}")
    if host.max_guests and len(plans) > host.max_guests - max(host.guests, _count(others)):
        return Refusal(
            "TooManyGuests", f"asks for {len(plans)} guests; the node is allowed {host.max_guests} and has no room left"
        )
    wanted = sum(made.memory_mb for _, made in plans if isinstance(made, GuestPlan))
    if host.total_memory_mb:
        planned = sum(
            made.memory_mb for other in others for _, made in _plans(other, facts) if isinstance(made, GuestPlan)
        )
        if wanted > min(host.free_memory_mb, host.total_memory_mb - planned):
            return Refusal("InsufficientGuestMemory", f"asks for {wanted} MiB for guests; the node has no room")
    return None


def _plans(pod: Pod, host: Host) -> list[tuple[str, GuestPlan | Refusal]]:
    found: list[tuple[str, GuestPlan | Refusal]] = []
    for container in pod.spec.containers:
        raw = {"resources": {"limits": container.resources.limits, "requests": container.resources.requests}}
        try:
            asked: Resources = resources_of(raw, container.name)
        except RefusedError as error:
            found.append((container.name, error.refusals[0]))
            continue
        found.append((container.name, plan(asked, pod.annotations, _CONFIG, host)))
    return found


def _count(pods: Iterable[Pod]) -> int:
    return sum(len(pod.spec.containers) for pod in pods)
