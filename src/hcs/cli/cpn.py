"""``hcs cpn``: one queue over many clusters, from the command line.

Each command is loaded when it is called: the controller and the trainer need libraries that submitting a job does not.
"""

from typing import Any, Final

import typer
from typer.core import TyperGroup

from hcs.cli.commands import Registered
from hcs.cli.group import load

COMMANDS: Final = (
    Registered("submit", "hcs.cli.cpn_submit", "Put a Job into the queue, once."),
    Registered("queue", "hcs.cli.cpn_queue", "What waits, what runs, and until when; live with --watch."),
    Registered("job", "hcs.cli.cpn_job", "Everything about one job."),
    Registered("why", "hcs.cli.cpn_job", "Why is this job where it is, or still waiting?"),
    Registered("log", "hcs.cli.cpn_job", "The log of a job's last run."),
    Registered("cancel", "hcs.cli.cpn_job", "End jobs, wherever they are."),
    Registered("clusters", "hcs.cli.cpn_clusters", "List, add and remove clusters."),
    Registered("train", "hcs.cli.cpn_train", "Build the predictor's file from finished runs.", "cpn"),
    Registered("run", "hcs.cpn.command", "Run the controller.", "cpn", program=True),
    Registered("blobs", "hcs.cpn.command", "Run a store of images and data sets.", "cpn", program=True),
)
_BY_NAME: Final = {command.name: command for command in COMMANDS}
_EPILOG: Final = """Try: hcs cpn submit train.yaml, then hcs cpn queue --watch. The controller's address is --server or
HCS_CPN_SERVER; docs/cpn.md tells the rest."""


class _Group(TyperGroup):
    """The commands above, none of them loaded before its time."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_BY_NAME)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        registered = _BY_NAME.get(cmd_name)
        return None if registered is None else load(registered, parent="hcs cpn", function=cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, program in (("Commands", False), ("Runs beside the clusters", True)):
            with formatter.section(title):
                formatter.write_dl([(c.name, c.summary) for c in COMMANDS if c.program == program])


app = typer.Typer(cls=_Group, no_args_is_help=True, add_completion=False, rich_markup_mode=None, epilog=_EPILOG)


@app.callback()
def _root() -> None:
    """One queue over many clusters that knows how long things take."""
