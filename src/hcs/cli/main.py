"""``hcs`` and ``kubectl hcs``: the entry point of both names."""

import sys
from pathlib import Path
from typing import Annotated

import typer

import hcs
from hcs.cli.group import LazyGroup


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"hcs {hcs.__version__}")
        raise typer.Exit


def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Ask Kubernetes for compute instead of for a vendor's card.

    What kubectl does already (get, describe, apply, logs, wait) is left to kubectl.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def build(*, completion: bool = True) -> typer.Typer:
    """The application; ``completion`` adds the options that install shell completion."""
    app = typer.Typer(
        cls=LazyGroup,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=completion,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog="Try: hcs demo, or hcs convert '2 x 910B2' --to A100-SXM4-80GB",
    )
    app.callback(invoke_without_command=True)(_root)
    return app


def main() -> None:
    """Run the command line and exit; shown as ``kubectl hcs`` when kubectl found it as its plug-in."""
    plugin = Path(sys.argv[0]).name == "kubectl-hcs"
    build(completion=not plugin)(prog_name="kubectl hcs" if plugin else "hcs")


if __name__ == "__main__":
    main()
