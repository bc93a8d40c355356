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
    Registered("fleet", "hcs.cli.fleet", "All cards of the cluster in one view, by node and model."),
    Registered("devices", "hcs.cli.devices", "One row a card: memory, tenants, health, quarantine."),
    Registered("why", "hcs.cli.why", "Why is this pod where it is, or still pending?"),
    Registered("demo", "hcs.cli.demo.command", "See it all work, with no cluster and no card.", "sandbox"),
    Registered("sandbox", "hcs.cli.sandbox", "A small cluster with emulated cards on this machine.", "sandbox"),
    Registered("quota", "hcs.cli.quota", "Hold a program to a share of a card, without Kubernetes."),
    Registered("router", "hcs.router.command", "Decides which cards a pod gets.", "router", program=True),
    Registered("injector", "hcs.injector.command", "The admission webhook.", program=True),
    Registered("agent", "hcs.agent.command", "Publishes a node's cards, hands them to pods.", "agent", program=True),
    Registered("healer", "hcs.healer.command", "Quarantines sick cards and moves their pods.", program=True),
)
