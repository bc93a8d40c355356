"""``hcs defrag --dry-run``: which moves would free whole nodes, or whole cards, and at what price.

Only the plan: nothing is evicted, and without ``--dry-run`` the command refuses, so that no script that is written
today empties nodes with a later version.
"""

import datetime
from typing import Annotated, Literal

import typer
from lightkube import ApiError, AsyncClient

from hcs.cli.cluster import Cluster, call, read_cluster
from hcs.cli.errors import USAGE, CommandError
from hcs.cli.options import Context, Json, Kubeconfig, NoHeaders, Output, chosen_format
from hcs.cli.output import Column, Table, say, tell, write_data, write_table
from hcs.kube import resources
from hcs.model.refusals import RefusedError
from hcs.model.requests import read_request
from hcs.placement.consolidation import ConsolidationPlan, Movable, plan_consolidation
from hcs.router.bystanders import UNTOUCHABLE, budgets_of, running_pods
from hcs.router.machines import Machines


def run(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only plan; this version does nothing else.")] = False,
    goal: Annotated[
        Literal["nodes", "cards"], typer.Option("--goal", help="What is to be freed whole.", metavar="nodes|cards")
    ] = "nodes",
    max_moves: Annotated[int, typer.Option("--max-moves", help="At most so many pods.", min=1)] = 20,
    max_lost: Annotated[
        int | None, typer.Option("--max-lost", help="At most so many seconds of lost work in all.", min=0)
    ] = None,
    output: Output = None,
    json: Json = False,
    no_headers: NoHeaders = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Which moves would free whole nodes or cards, and what would they cost?

    Shares fray a fleet: every node a little used, none free for a job that wants all its cards. The plan moves pods of
    controllers only, onto cards that are in use already, within disruption budgets; a move costs the work since the
    pod started or wrote its last checkpoint.

    Example: hcs defrag --dry-run --goal nodes --max-moves 10
    """
    if not dry_run:
        raise CommandError(
            "hcs defrag only plans in this version",
            "carrying a plan out is not implemented, and nothing shall be evicted by surprise",
            "hcs defrag --dry-run",
            code=USAGE,
        )
    format = chosen_format(output, json)
    cluster = read_cluster(kubeconfig, context)
    budgets = call(kubeconfig, context, _budgets)
    plan = plan_of(cluster, budgets, datetime.datetime.now(datetime.UTC), goal, max_moves, max_lost)
    if write_data(plan, format, names=[f"pod/{move.key}" for move in plan.moves]):
        return
    if plan.moves:
        write_table(_table(plan), headers=not no_headers)
        say()
    say(plan.summary)
    shown = plan.skipped if format == "wide" else plan.skipped[:3]
    for place, why in shown:
        say(f"not {place}: {why}")
    if len(shown) < len(plan.skipped):
        say(f"and {len(plan.skipped) - len(shown)} more are left as they are; -o wide shows why")
    tell("nothing was moved")


def plan_of(
    cluster: Cluster,
    budgets: list[resources.PodDisruptionBudget],
    today: datetime.datetime,
    goal: Literal["nodes", "cards"] = "nodes",
    max_moves: int = 20,
    max_lost: int | None = None,
) -> ConsolidationPlan:
    """Plan on a cluster as it was read."""
    machines = Machines()
    for node in cluster.nodes:
        machines.node_changed("ADDED", node)
    for pod in cluster.pods:
        machines.pod_changed("ADDED", pod)
    names = [inventory.name for inventory in cluster.inventories]
    held = {uid: allocation for uid, (_, allocation) in cluster.held.items()}
    movables = []
    for running in running_pods(machines, names, held, today, {}):
        found = machines.pod(running.uid)
        if running.allocation is None or found is None:
            continue
        try:
            request = read_request(found)
        except RefusedError:
            request = None
        if request is not None:
            replaced = bool(running.owner) and running.priority != UNTOUCHABLE
            movables.append(Movable(running, request, replaced))
    return plan_consolidation(
        cluster.snapshot,
        movables,
        goal=goal,
        max_moves=max_moves,
        max_lost_seconds=max_lost,
        rooms=machines.rooms(names),
        budgets=budgets_of(budgets, machines.pods()),
        reference_rates=cluster.rates,
    )


async def _budgets(client: AsyncClient) -> list[resources.PodDisruptionBudget]:
    try:
        return [budget async for budget in client.list(resources.PodDisruptionBudget, namespace="*")]
    except ApiError as error:
        if error.status.code in (401, 403):
            raise CommandError(
                "not allowed to see disruption budgets",
                error.status.message or "the API server refused",
                "kubectl auth can-i list poddisruptionbudgets -A      with another --context",
            ) from error
        raise


def _table(plan: ConsolidationPlan) -> Table:
    rows: list[tuple[str, ...]] = [
        (
            move.key,
            move.source,
            move.target.node,
            f"{len(move.target.devices)} x {move.target.model}",
            _span(move.lost_seconds),
        )
        for move in plan.moves
    ]
    return Table(
        (
            Column("POD", flexible=True),
            Column("FROM"),
            Column("TO"),
            Column("CARDS"),
            Column("LOST WORK", right=True),
        ),
        rows,
    )


def _span(seconds: int) -> str:
    """Whole minutes, as people say them.

    >>> _span(59), _span(3600), _span(4000)
    ('0m', '1h0m', '1h6m')
    """
    hours, minutes = divmod(seconds // 60, 60)
    return f"{hours}h{minutes}m" if hours else f"{minutes}m"
