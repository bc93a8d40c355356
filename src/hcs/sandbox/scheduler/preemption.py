"""The scheduler's own preemption: victims for CPU, memory and pod slots, looked over by the extenders.

As in kube-scheduler: only nodes whose refusal eviction could change are tried; all pods of lower priority are taken
away, then spared again one by one from the highest priority down, as long as the pod fits. The extenders then drop
nodes or change victims among the pods of a node; a UID that is not there fails the cycle. The node whose worst victim
has the lowest priority is taken, then the fewest victims. Disruption budgets and the age of victims are left out.
"""

from collections.abc import Mapping, Sequence

import msgspec

from hcs.sandbox.scheduler.cluster import Cluster
from hcs.sandbox.scheduler.extenders import ExtenderCaller, ExtenderError
from hcs.sandbox.scheduler.nodes import NodeView, why_not
from hcs.sandbox.scheduler.objects import WholePod


class Chosen(msgspec.Struct, frozen=True):
    """Evict these pods and nominate the node."""

    node: str
    victims: tuple[WholePod, ...]


async def choose(
    pod: WholePod,
    cluster: Cluster,
    reasons: Mapping[str, Sequence[str]],
    extenders: Sequence[ExtenderCaller],
    ignored: frozenset[str],
) -> Chosen | None:
    """Choose victims for a pod that fits nowhere; None where nobody need or may die for it.

    Args:
        pod: the pod.
        cluster: nodes and the pods on them.
        reasons: why each node refused it.
        extenders: those that are asked, in order.
        ignored: resources that the node checks leave to extenders.

    Raises:
        ExtenderError: a call failed, or named a pod that is not there.
    """
    if pod.spec.get("preemptionPolicy") == "Never":
        return None
    found: dict[str, tuple[WholePod, ...]] = {}
    for view in cluster.views():
        if _resolvable(reasons.get(view.name, ())) and (victims := _victims(pod, cluster, view, ignored)):
            found[view.name] = victims
    for caller in extenders:
        if not found:
            return None
        if caller.extender.preempt_verb and caller.extender.wants(pod.resource_names()):
            found = await _asked(caller, pod, cluster, found)
    if not found:
        return None
    node = min(found, key=lambda name: (max(v.priority for v in found[name]), len(found[name]), name))
    return Chosen(node, found[node])


def _resolvable(reasons: Sequence[str]) -> bool:
    """Whether the node's own check refused for want of something that other pods hold."""
    return bool(reasons) and all(text.startswith("Insufficient ") or text == "Too many pods" for text in reasons)


def _victims(pod: WholePod, cluster: Cluster, view: NodeView, ignored: frozenset[str]) -> tuple[WholePod, ...]:
    lower = sorted(
        (one for one in cluster.on(view.name) if one.priority < pod.priority),
        key=lambda one: (-one.priority, one.metadata.creationTimestamp or ""),
    )
    gone = {one.uid for one in lower}
    if why_not(pod, cluster.view_without(view.name, gone), ignored):
        return ()
    for one in lower:
        gone.discard(one.uid)
        if why_not(pod, cluster.view_without(view.name, gone), ignored):
            gone.add(one.uid)
    return tuple(one for one in lower if one.uid in gone)


async def _asked(
    caller: ExtenderCaller, pod: WholePod, cluster: Cluster, found: Mapping[str, tuple[WholePod, ...]]
) -> dict[str, tuple[WholePod, ...]]:
    answer = await caller.preempt(pod, {node: [one.uid for one in victims] for node, victims in found.items()})
    changed = {}
    for node, uids in answer.items():
        here = {one.uid: one for one in cluster.on(node)}
        unknown = [uid for uid in uids if uid not in here]
        if node not in found or unknown:
            raise ExtenderError(f"extender named pod {', '.join(unknown) or '?'} on node {node}, which is not there")
        if uids:
            changed[node] = tuple(here[uid] for uid in uids)
    return changed
