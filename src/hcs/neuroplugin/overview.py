"""All boards at a glance, for operators: capacities, who holds which cores, faults, relay points, use."""

from collections.abc import Mapping
from typing import Any

import msgspec

from hcs.neuro.drivers import Usage
from hcs.neuro.pictures import BoardPicture, Patch
from hcs.neuro.service import NeuralService
from hcs.neuroplugin.operator import described


def overview(service: NeuralService, usage: Mapping[int, Usage]) -> dict[str, Any]:
    """Everything ``hcs neuro`` shows.

    Args:
        service: the boards.
        usage: what each loaded task has used.
    """
    boards = []
    for site in sorted(service.sites.values(), key=lambda s: s.board.id):
        free, capacity = site.free(), site.capacity
        boards.append(
            {
                "id": site.board.id,
                "model": site.board.model.name,
                "emulated": site.board.emulated,
                "capacity": msgspec.to_builtins(capacity),
                "taken": msgspec.to_builtins(capacity - free),
                "picture": msgspec.to_builtins(picture(service, site.board.id)),
            }
        )
    tasks = [
        {**described(task, cores=True), "usage": msgspec.to_builtins(usage.get(task.id, Usage()))}
        for task in sorted(service.tasks.values(), key=lambda t: t.id)
    ]
    leases = [
        {
            "id": lease.number,
            "tenant": lease.tenant,
            "lease": next((n for n, id in service.tenants[lease.tenant].leases.items() if id == lease.number), None),
            "board": lease.board,
            "rectangle": msgspec.structs.astuple(lease.rectangle),
            "cores": lease.cores,
            "free": lease.inner.free_cores,
            "tasks": len(lease.tasks),
        }
        for lease in sorted(service.leases.values(), key=lambda lease: lease.number)
    ]
    return {"boards": boards, "tasks": tasks, "leases": leases}


def picture(service: NeuralService, board: str) -> BoardPicture:
    """What one board looks like."""
    site = service.sites[board]
    patches = [
        Patch(rectangle, service.leases[key].tenant if key in service.leases else "pods", str(key))
        for key, rectangle in sorted(site.cores.held.items())
    ]
    return BoardPicture(
        title=f"{board}: {site.board.model.title}" + (" (emulated)" if site.board.emulated else ""),
        width=site.board.model.width,
        height=site.board.model.height,
        patches=tuple(patches),
        dead_cores=tuple(sorted(site.board.dead_cores)),
        dead_routers=tuple(sorted(site.board.dead_routers)),
        controllers=tuple(sorted(site.board.model.controllers)),
        relays=tuple(sorted(site.ledger.relays)),
        ports=tuple((port.name, port.cell) for port in site.board.model.ports),
    )
