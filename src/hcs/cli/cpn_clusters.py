"""``hcs cpn clusters``: the clusters of the queue come and go while everything runs."""

import re
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer
import yaml

from hcs.cli.cpn_client import DEFAULT_SERVER, Authority, Server, TokenFile, opened
from hcs.cli.cpn_kubeconfig import enclosed
from hcs.cli.cpn_words import span
from hcs.cli.errors import USAGE, CommandError
from hcs.cli.options import Json, NoHeaders, Output, chosen_format
from hcs.cli.output import Column, Table, say, tell, tell_wrapped, write_data, write_table
from hcs.cpn.wire import ClusterList, ClusterRow
from hcs.model.quantities import QuantityError, parse_bytes, show_bytes
from hcs.store.clusters import ClusterConfig, Line
from hcs.wide.amounts import AmountError, read_deadline

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="List, add and remove clusters. Without a command: list.",
    epilog="Example: hcs cpn clusters add east --kubeconfig ~/.kube/east --prometheus http://10.0.0.2:9090",
)
Name = Annotated[str, typer.Argument(help="The cluster's name in the queue.", metavar="NAME")]
_LINE: Final = re.compile(r"([^=]+)=([0-9.]+[A-Za-z]*)(?:/s)?(?:,([0-9]{1,8})(?:ms)?)?")


@app.callback(invoke_without_command=True)
def clusters(
    context: typer.Context,
    output: Output = None,
    json: Json = False,
    no_headers: NoHeaders = False,
    server: Server = DEFAULT_SERVER,
    token_file: TokenFile = None,
    authority: Authority = None,
) -> None:
    """List, add and remove clusters. Without a command: list."""
    if context.invoked_subcommand is None:
        list_(output, json, no_headers, server, token_file, authority)


@app.command("list")
def list_(
    output: Output = None,
    json: Json = False,
    no_headers: NoHeaders = False,
    server: Server = DEFAULT_SERVER,
    token_file: TokenFile = None,
    authority: Authority = None,
) -> None:
    """All clusters: whether they answer, their cards, what is free, what their metrics lack."""
    format = chosen_format(output, json)
    with opened(server, token_file, authority) as api:
        found = api.ask(ClusterList, "GET", "/clusters").clusters
    if write_data(found, format, names=[f"cluster/{row.config.name}" for row in found]):
        return
    if not found:
        tell("no clusters yet; hcs cpn clusters add NAME --kubeconfig FILE")
        return
    write_table(table(found), wide=format == "wide", headers=not no_headers)
    for row in found:
        if row.view is not None and row.view.message:
            tell_wrapped(f"{row.config.name}: {row.view.message.removeprefix(f'cluster {row.config.name} ')}")
        for sentence in (*row.view.missing, *row.view.doubts) if row.view is not None and format == "wide" else ():
            tell_wrapped(f"{row.config.name}: {sentence}")
    lacking = sum(row.view is not None and bool(row.view.missing or row.view.doubts) for row in found)
    if lacking and format != "wide":
        tell("hcs cpn clusters -o wide tells which metrics are missing or doubted")


def table(found: tuple[ClusterRow, ...]) -> Table:
    """One row for each cluster and kind of card."""
    columns = (
        Column("CLUSTER", least=10),
        Column("API"),
        Column("CARDS", least=12),
        Column("USABLE", right=True),
        Column("FREE", right=True),
        Column("OTHERS", right=True),
        Column("JOBS", right=True),
        Column("CPU", right=True),
        Column("METRICS"),
        Column("MEMORY", right=True, wide=True),
        Column("BUSY", right=True, wide=True),
        Column("AGE", right=True, wide=True),
        Column("FOREIGN JOBS", right=True, wide=True),
        Column("ADDRESS", wide=True, flexible=True),
    )
    rows: list[tuple[str, ...]] = []
    for row in found:
        view = row.view
        reach = "?" if view is None else "up" if view.reachable else "gone" if row.config.gone else "down"
        metrics = (
            "-"
            if view is None or not view.reachable
            else f"{len(view.missing)} missing"
            if view.missing
            else "complete"
        )
        cpu = "-" if view is None or view.cpu_busy is None else f"{view.cpu_busy.value:.0%}"
        foreign = "-" if view is None else str(view.foreign_jobs)
        address = row.config.server or row.config.kubeconfig or ("kubeconfig sent" if row.kubeconfig_stored else "-")
        shared = (str(row.jobs), cpu, metrics)
        pools = view.pools if view is not None else ()
        for place, pool in enumerate(pools):
            first = place == 0
            rows.append(
                (
                    row.config.name if first else "",
                    reach if first else "",
                    pool.kind,
                    str(pool.usable),
                    str(max(0, pool.usable - pool.taken - pool.ours)),
                    str(pool.taken),
                    *(shared if first else ("", "", "")),
                    show_bytes(pool.memory) if pool.memory else "-",
                    f"{pool.busy.value:.0%}" if pool.busy else "-",
                    span(pool.busy.age) if pool.busy else "-",
                    foreign if first else "",
                    address if first else "",
                )
            )
        if not pools:
            rows.append((row.config.name, reach, "-", "-", "-", "-", *shared, "-", "-", "-", foreign, address))
    return Table(columns, rows)


@app.command("add")
def add(
    name: Name,
    kubeconfig: Annotated[
        Path | None, typer.Option("--kubeconfig", help="Its kubeconfig; what it names in files is sent with it.")
    ] = None,
    context: Annotated[
        str | None, typer.Option("--context", help="Context of it; the current one otherwise.", metavar="NAME")
    ] = None,
    by_path: Annotated[
        bool, typer.Option("--by-path", help="Send only the path: the file lies on the controller's machine.")
    ] = False,
    api_server: Annotated[
        str, typer.Option("--api", help="Address of its API, in place of the kubeconfig's.", metavar="URL")
    ] = "",
    prometheus: Annotated[str, typer.Option("--prometheus", help="Its Prometheus.", metavar="URL")] = "",
    prometheus_token_file: Annotated[
        str, typer.Option("--prometheus-token-file", help="A file of the controller with its token.", metavar="FILE")
    ] = "",
    prometheus_ca_file: Annotated[
        str, typer.Option("--prometheus-ca-file", help="A file of the controller with its authority.", metavar="FILE")
    ] = "",
    prometheus_labels: Annotated[
        list[str] | None,
        typer.Option("--prometheus-label", help="What this cluster's series have and others have not.", metavar="A=B"),
    ] = None,
    blobs: Annotated[str, typer.Option("--blobs", help="Its store of images and data sets.", metavar="URL")] = "",
    overlay: Annotated[
        Path | None,
        typer.Option(
            "--overlay", help="YAML merged into every pod: labels, annotations, limits, spec.", metavar="FILE"
        ),
    ] = None,
    lines: Annotated[
        list[str] | None,
        typer.Option("--line", help="A line to another place: speed and latency.", metavar="PLACE=125M/s[,20ms]"),
    ] = None,
    lost_after: Annotated[
        str, typer.Option("--lost-after", help="Out of reach for so long, its jobs are planned anew.", metavar="TIME")
    ] = "5m",
    json: Json = False,
    server: Server = DEFAULT_SERVER,
    token_file: TokenFile = None,
    authority: Authority = None,
) -> None:
    """Add a cluster, or change one: what is not said goes back to its default, but its access is kept.

    Example: hcs cpn clusters add east --kubeconfig ~/.kube/config --context east --line west=125M/s,20ms
    """
    if kubeconfig is None and (by_path or context):
        raise CommandError(
            "--kubeconfig is missing", "--by-path and --context say how to read it", "--kubeconfig FILE", code=USAGE
        )
    try:
        waits = read_deadline(lost_after, 0)
    except AmountError as error:
        raise CommandError(
            f"cannot read --lost-after {lost_after}", str(error), "--lost-after 5m", code=USAGE
        ) from error
    config = ClusterConfig(
        name=name,
        kubeconfig=str(kubeconfig.absolute()) if kubeconfig and by_path else "",
        kubeconfig_text=enclosed(kubeconfig, context) if kubeconfig and not by_path else "",
        context=context or "" if by_path else "",
        server=api_server,
        prometheus=prometheus,
        prometheus_token_file=prometheus_token_file,
        prometheus_ca_file=prometheus_ca_file,
        prometheus_labels=dict(_label(text) for text in prometheus_labels or ()),
        blobs=blobs,
        overlay=_overlay(overlay) if overlay else {},
        lines=tuple(read_line(text) for text in lines or ()),
        lost_after=waits,
    )
    with opened(server, token_file, authority) as api:
        row = api.ask(ClusterRow, "PUT", f"/clusters/{_segment(name)}", content=msgspec.json.encode(config))
    if not write_data(row, "line" if json else "table"):
        say(f"cluster/{row.config.name} is known")
        tell("hcs cpn clusters shows whether it answers")


@app.command("remove")
def remove(
    name: Name,
    json: Json = False,
    server: Server = DEFAULT_SERVER,
    token_file: TokenFile = None,
    authority: Authority = None,
) -> None:
    """Forget a cluster. Jobs that run there go on, and are watched again once it is added anew."""
    with opened(server, token_file, authority) as api:
        row = api.ask(ClusterRow, "DELETE", f"/clusters/{_segment(name)}", again=False)
    if not write_data(row, "line" if json else "table"):
        say(f"cluster/{row.config.name} is forgotten")
        if row.jobs:
            tell(f"{row.jobs} of our jobs are there; add it again to hear how they end")
            tell(f"should nothing run there any more: add it again, then hcs cpn clusters gone {row.config.name}")


@app.command("gone")
def gone(
    name: Name,
    back: Annotated[bool, typer.Option("--back", help="Take that word back.")] = False,
    json: Json = False,
    server: Server = DEFAULT_SERVER,
    token_file: TokenFile = None,
    authority: Authority = None,
) -> None:
    """Vouch that nothing runs any more on a cluster out of reach: its jobs are planned anew, elsewhere."""
    with opened(server, token_file, authority) as api:
        known = api.ask(ClusterRow, "GET", f"/clusters/{_segment(name)}").config
        content = msgspec.json.encode(msgspec.structs.replace(known, gone=not back, kubeconfig=""))
        row = api.ask(ClusterRow, "PUT", f"/clusters/{_segment(name)}", content=content)
    if not write_data(row, "line" if json else "table"):
        say(f"cluster/{row.config.name} is {'awaited again' if back else 'taken for gone'}")
        if row.jobs and not back:
            tell(
                f"{row.jobs} of our jobs are planned anew; should they still run there, they are ended when it is back"
            )


def read_line(text: str) -> Line:
    """Read ``PLACE=SPEED[,LATENCY]``; the speed is bytes a second.

    >>> read_line("west=125M/s,20ms")
    Line(place='west', bytes_per_second=125000000, latency=20)
    """
    match = _LINE.fullmatch(text.strip())
    try:
        if match is None:
            raise QuantityError(f"{text!r} is not PLACE=SPEED[,LATENCY]")
        return Line(match[1].strip(), parse_bytes(match[2]), int(match[3] or 0))
    except QuantityError as error:
        raise CommandError(f"cannot read --line {text}", str(error), "--line west=125M/s,20ms", code=USAGE) from error


def _label(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", name) is None:
        raise CommandError(
            f"cannot read --prometheus-label {text}", "a label and its value were expected", "cluster=east", code=USAGE
        )
    return name, value


def _overlay(path: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise CommandError(
            f"cannot read the overlay {path}", " ".join(str(error).split()), "a YAML file", code=USAGE
        ) from error
    if not isinstance(found, dict):
        raise CommandError(
            f"the overlay {path} is no mapping",
            "metadata, spec or limits were expected",
            "a mapping",
            code=USAGE,
        )
    return found


def _segment(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,253}", name) or name.strip(".") == "":
        raise CommandError(
            f"{name!r} is no name of a cluster", "small letters, digits and dashes were expected", "east", code=USAGE
        )
    return name
