"""One look at the cluster, for commands that only read: nodes, cards, pods and runtimes as they are now."""

import asyncio
import datetime
from collections.abc import Awaitable, Callable
from functools import cached_property, partial
from typing import Any, TypeVar

import httpx2
import msgspec
from lightkube import ApiError, AsyncClient

from hcs.cli.errors import TIMEOUT, CommandError
from hcs.kube import resources
from hcs.kube.connection import ApiUnreachableError, connect
from hcs.model import names
from hcs.model.allocations import Allocation, allocation_of
from hcs.model.devices import Location, NodeInventory
from hcs.model.locations import locate
from hcs.model.pods import Pod
from hcs.model.refusals import Refusal
from hcs.neuro.capacities import DOMAIN
from hcs.neuro.scheduling import offered_by
from hcs.placement.appraisals import ReferenceRates
from hcs.placement.snapshot import Snapshot
from hcs.router.heartbeats import silent_by_wall_clock
from hcs.router.images import RuntimeImage, read_profiles
from hcs.router.references import overlaid, read_site_rates, reference_rates, with_site_rates
from hcs.router.spikes import capacities_of, taken_elsewhere

T = TypeVar("T")


class Cluster(msgspec.Struct, frozen=True, dict=True):
    """What the API server said. ``namespace`` is the context's."""

    namespace: str
    nodes: tuple[resources.Node, ...] = ()
    inventories: tuple[NodeInventory, ...] = ()
    pods: tuple[Pod, ...] = ()
    offers: tuple[RuntimeImage, ...] = ()
    silent: dict[str, Refusal] = {}
    """Nodes whose agent does not answer."""
    rates: ReferenceRates = {}
    """Of models outside the fleet: the site's own over the catalogue's."""
    domain: str = DOMAIN
    """Of the spiking resources."""

    @cached_property
    def held(self) -> dict[str, tuple[Pod, Allocation]]:
        """Pod UID → the pod and what it holds; finished pods hold nothing."""
        found = ((pod, None if pod.finished else allocation_of(pod)) for pod in self.pods)
        return {pod.metadata.uid: (pod, allocation) for pod, allocation in found if allocation is not None}

    @cached_property
    def taken(self) -> dict[str, Allocation]:
        """Pod UID → what it holds, also of spikes that another scheduler gave it."""
        found = {uid: allocation for uid, (_, allocation) in self.held.items()}
        for pod in self.pods:
            if pod.metadata.uid not in found and not pod.finished:
                elsewhere = taken_elsewhere(pod, self.domain)
                if elsewhere is not None:
                    found[pod.metadata.uid] = elsewhere
        return found

    @cached_property
    def snapshot(self) -> Snapshot:
        """What there is, and what bound pods hold of it: the router's view, without promises still under way."""
        return Snapshot.build(self.inventories, self.taken.values())

    def pod(self, name: str, namespace: str) -> Pod | None:
        """A pod by name."""
        return next((pod for pod in self.pods if pod.key == f"{namespace}/{name}"), None)


def read_cluster(kubeconfig: str | None, context: str | None, *, domain: str = DOMAIN) -> Cluster:
    """Read all of it, in one process-long connection.

    Args:
        kubeconfig: a file; None for the usual one.
        context: in it; None for the current one.
        domain: of the spiking resources, as router and neuroplugin are set.

    Raises:
        CommandError: no server, no answer in time, no permission, or HCS is not installed there.
    """
    return call(kubeconfig, context, partial(_read, domain=domain))


def call(kubeconfig: str | None, context: str | None, work: Callable[[AsyncClient], Awaitable[T]]) -> T:
    """Do something with a connection, and say what went wrong in our three lines.

    Raises:
        CommandError: as for :func:`read_cluster`.
    """

    async def connected() -> T:
        client = connect(kubeconfig, context)
        try:
            return await work(client)
        finally:
            await client.close()

    try:
        return asyncio.run(connected())
    except ApiUnreachableError as error:
        raise CommandError(
            "no cluster to ask", str(error), "hcs sandbox up      or: --kubeconfig FILE --context NAME"
        ) from error
    except ApiError as error:
        raise _refused(error.status.code, error.status.message or "") from error
    except httpx2.HTTPStatusError as error:  # an unknown group's path is answered in plain text
        raise _refused(error.response.status_code, error.response.text.strip()) from error
    except httpx2.TimeoutException as error:
        raise CommandError(
            "the API server did not answer in time",
            f"asked {_address(error)}, waited 10 seconds",
            "kubectl cluster-info      to see whether it is alive",
            code=TIMEOUT,
        ) from error
    except httpx2.HTTPError as error:
        raise CommandError(
            "the API server cannot be reached",
            f"{_address(error)}: {error}",
            "kubectl cluster-info      or another --context",
        ) from error


async def _read(client: AsyncClient, domain: str) -> Cluster:
    nodes = await _listed(client, resources.Node)
    site = read_site_rates(
        rate.spec for rate in sorted(await _listed(client, resources.ExchangeRate), key=lambda r: r.metadata.name)
    )
    labels = {node.metadata.name: node.metadata.labels or {} for node in nodes}
    found = {
        node.metadata.name: with_site_rates(node.inventory(labels.get(node.metadata.name)), site)
        for node in await _listed(client, resources.ComputeNode)
    }
    for node in nodes:
        name, spikes = node.metadata.name, offered_by(node.status.get("allocatable") or {}, domain=domain)
        if spikes:
            bare = NodeInventory(name=name, location=locate(labels[name], Location()))
            found[name] = capacities_of(found.get(name, bare), spikes)
    profiles = await _listed(client, resources.RuntimeProfile)
    pods = await _listed(client, resources.Pod, namespace="*")
    return Cluster(
        namespace=client.namespace,
        nodes=tuple(sorted(nodes, key=lambda node: node.metadata.name)),
        inventories=tuple(found[name] for name in sorted(found)),
        pods=tuple(pods),
        offers=read_profiles(profile.spec for profile in profiles),
        silent=silent_by_wall_clock(await _leases(client), datetime.datetime.now(datetime.UTC)),
        rates=overlaid(reference_rates(), site),
        domain=domain,
    )


async def _leases(client: AsyncClient) -> dict[str, dict[str, Any]]:
    """The agents' heartbeats; none where we may not look: people see the fleet without a right in our namespace."""
    try:
        found = await _listed(client, resources.Lease, namespace=names.NAMESPACE)
    except ApiError as error:
        if error.status.code not in (401, 403):
            raise
        return {}
    return {lease.metadata.name: lease.spec for lease in found}


async def _listed(client: AsyncClient, kind: type[Any], **select: Any) -> list[Any]:
    return [item async for item in client.list(kind, **select)]


def _refused(code: int | None, message: str) -> CommandError:
    if code == 404:
        return CommandError(
            "HCS is not installed in this cluster",
            f"its resource definitions are missing: {message or 'not found'}",
            "kubectl apply -f config/crds      or: hcs sandbox up",
        )
    if code in (401, 403):
        return CommandError(
            "not allowed to look",
            message or "the API server refused",
            "kubectl auth can-i list computenodes      with another --context",
        )
    return CommandError("the API server refused", message or f"status {code}", "the same once more")


def _address(error: httpx2.HTTPError) -> str:
    try:
        return str(error.request.url.copy_with(path="/", query=None))
    except RuntimeError:
        return "the API server"
