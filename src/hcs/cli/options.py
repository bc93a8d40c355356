"""Options that several commands share, spelled as in kubectl."""

from typing import Annotated, Literal

import typer

from hcs.cli.errors import USAGE, CommandError

Format = Literal["table", "wide", "json", "line", "yaml", "name"]
"""How data is written: ``line`` is JSON on one line."""

Output = Annotated[
    Literal["json", "yaml", "wide", "name"] | None,
    typer.Option("-o", "--output", help="Output format; a table by default.", metavar="json|yaml|wide|name"),
]
Json = Annotated[bool, typer.Option("--json", help="The same as -o json, on one line.")]
NoHeaders = Annotated[bool, typer.Option("--no-headers", help="Leave out the header line of a table.")]
Kubeconfig = Annotated[
    str | None, typer.Option("--kubeconfig", help="Path of the kubeconfig file; KUBECONFIG otherwise.", metavar="FILE")
]
Context = Annotated[
    str | None, typer.Option("--context", help="Context of the kubeconfig; its current one otherwise.", metavar="NAME")
]
Namespace = Annotated[
    str | None, typer.Option("-n", "--namespace", help="Namespace; the context's otherwise.", metavar="NAME")
]
AllNamespaces = Annotated[bool, typer.Option("-A", "--all-namespaces", help="Look in all namespaces.")]


def chosen_format(output: str | None, json: bool) -> Format:
    """The one format two options ask for.

    Raises:
        CommandError: they contradict each other.
    """
    if not json:
        return {"json": "json", "yaml": "yaml", "wide": "wide", "name": "name"}.get(output or "", "table")  # type: ignore[return-value]
    if output not in (None, "json"):
        raise CommandError(
            f"--json and -o {output} contradict each other", "a command writes one format", "keep one", code=USAGE
        )
    return "line"
