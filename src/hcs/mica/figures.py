"""Figures of this node's guests, and of what is left for more: for the ComputeNode, metrics and the command line."""

import msgspec

from hcs.mica.records import GuestRecord
from hcs.mica.settings import Xl, XlError
from hcs.model.devices import RtosHost
from hcs.rtos.configuration import Config
from hcs.rtos.hosts import XEN, Host


class GuestFigures(msgspec.Struct, frozen=True):
    """One guest: what it has now, what its container was given, and how it is.

    ``capacity`` and ``limit`` are percent of one pCPU, 0 for no bound; memory is MiB; ``cpu_seconds`` is None where
    nobody counts them.
    """

    name: str
    sandbox: str
    status: str
    weight: int
    capacity: int
    cpuset: str
    vcpus: int
    memory_mb: int
    threshold_mb: int
    shared_weight: int
    limit: int
    pid: int
    pooled: bool = False
    cpu_seconds: float | None = None


def figures_of(records: list[GuestRecord], config: Config) -> list[GuestFigures]:
    """The figures of all guests that are not pause containers.

    Args:
        records: of this node.
        config: says which tool knows what guests use.
    """
    guests = [record for record in records if not record.infra and record.plan is not None and record.given is not None]
    used = _used(config) if guests else {}
    found = []
    for record in guests:
        assert record.plan is not None
        assert record.given is not None
        given = record.given
        found.append(
            GuestFigures(
                name=record.id,
                sandbox=record.sandbox,
                status=record.now,
                weight=given.cpu_weight or 0,
                capacity=given.cpu_capacity,
                cpuset=given.cpuset,
                vcpus=given.vcpus,
                memory_mb=given.memory.memory_mb,
                threshold_mb=given.memory.threshold_mb,
                shared_weight=record.plan.cpu_weight or 0,
                limit=record.plan.cpu_capacity,
                pid=record.pid,
                pooled=record.pooled,
                cpu_seconds=used.get(record.id),
            )
        )
    return found


def host_figures(host: Host, config: Config, figures: list[GuestFigures], *, ready: bool) -> RtosHost:
    """What the node offers.

    Args:
        host: what is known of the machine.
        config: the site's bounds.
        figures: all guests.
        ready: whether micad is there.
    """
    there = [guest for guest in figures if guest.status != "stopped"]
    claimed = sum(guest.capacity or 100 * guest.vcpus for guest in there)
    return RtosHost(
        pedestal=host.pedestal,
        pcpus=host.pcpus,
        total_memory_mb=host.total_memory_mb,
        free_memory_mb=max(0, host.total_memory_mb - sum(guest.memory_mb for guest in there)),
        free_capacity=max(0, 100 * host.pcpus - claimed),
        guests=len(there),
        running=sum(guest.status == "running" for guest in there),
        max_guests=config.max_client_number,
        ready=ready,
    )


def _used(config: Config) -> dict[str, float]:
    if (config.pedestal.lower() or XEN) != XEN:
        return {}
    try:
        return {name: domain.seconds for name, domain in Xl(config.xl).list().items()}
    except (XlError, ValueError):
        return {}
