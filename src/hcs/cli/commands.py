"""The list of commands: name, module, and one line for the overview.

Nothing here imports a command. ``hcs --help`` prints this list, and only the command that is called is loaded, so the
overview is fast and a command whose extra is not installed hurts nobody else.
"""

from typing import Final

import msgspec


class Registered(msgspec.Struct, frozen=True):
    """One command. ``module`` has a function ``run``, or, where there are subcommands, a Typer application ``app``.

    ``extra`` is the optional part of the distribution it needs; ``program`` marks what runs in a cluster.
    """

    name: str
    module: str
    summary: str
    extra: str = ""
    program: bool = False


COMMANDS: Final = (
    Registered("convert", "hcs.cli.convert", "What is a card, or an amount of compute, worth in other cards?"),
    Registered("measure", "hcs.cli.measure", "What do the cards of this machine really do?"),
    Registered("ura", "hcs.cli.ura", "Take in what others measured, as exchange rates."),
    Registered("fleet", "hcs.cli.fleet", "All cards of the cluster in one view, by node and model."),
    Registered("devices", "hcs.cli.devices", "One row a card: memory, tenants, health, quarantine."),
    Registered("probe", "hcs.cli.probe", "What does a vendor's tool say about its cards?"),
    Registered("top", "hcs.cli.top", "What is given away of every card, live."),
    Registered("why", "hcs.cli.why", "Why is this pod where it is, or still pending?"),
    Registered("offers", "hcs.cli.offers", "What could I get now, on which cards?"),
    Registered("simulate", "hcs.cli.simulate", "What would happen to this work on that fleet?"),
    Registered("defrag", "hcs.cli.defrag", "Which moves would free whole nodes or cards?"),
    Registered("asks", "hcs.cli.asks", "Which pods are offered other cards than they named?"),
    Registered("accept", "hcs.cli.accept", "Accept what a pod is offered."),
    Registered("decline", "hcs.cli.decline", "Decline it."),
    Registered("rtos", "hcs.cli.rtos", "RTOS guests: what a container's settings become; the guests of this node."),
    Registered("neuro", "hcs.cli.neuro", "Spiking hardware: boards, placements, leases, tasks."),
    Registered("cpn", "hcs.cli.cpn", "Many clusters, one queue: submit, watch, why, cancel; and its controller."),
    Registered("demo", "hcs.cli.demo.command", "See it all work, with no cluster and no card.", "sandbox"),
    Registered("sandbox", "hcs.cli.sandbox", "A small cluster with emulated cards on this machine.", "sandbox"),
    Registered("quota", "hcs.cli.quota", "Hold a program to a share of a card, without Kubernetes."),
    Registered("router", "hcs.router.command", "Decides which cards a pod gets.", "router", program=True),
    Registered("injector", "hcs.injector.command", "The admission webhook.", program=True),
    Registered("agent", "hcs.agent.command", "Publishes a node's cards, hands them to pods.", "agent", program=True),
    Registered("guard", "hcs.agent.guard", "Holds back containers the agent did not adjust.", "agent", program=True),
    Registered("neuroplugin", "hcs.neuroplugin.command", "Shares spiking boards of a node.", "neuro", program=True),
    Registered("healer", "hcs.healer.command", "Quarantines sick cards and moves their pods.", program=True),
)
