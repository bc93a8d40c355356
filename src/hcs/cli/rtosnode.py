"""The part of ``hcs rtos`` that works with the guests of this node."""

import typer


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("guests")(lambda: None)
