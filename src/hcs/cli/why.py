"""``hcs why``: one screen that says where a pod is and by what right, or what keeps it from every node."""

import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from hcs.cli.cluster import Cluster, read_cluster
from hcs.cli.errors import USAGE, CommandError
from hcs.cli.explaining import (
    Answer,
    Place,
    Reason,
    exchange_in_words,
    explain_pod,
    grants_in_words,
    of_pod,
)
from hcs.cli.options import Context, Json, Kubeconfig, Namespace, Output, chosen_format
from hcs.cli.output import say_styled, width, write_data
from hcs.model import names
from hcs.model.pods import Pod
from hcs.model.refusals import RefusedError
from hcs.neuro.capacities import DOMAIN
from hcs.ura.catalogue import load_catalogue

_GROUPS: Final = 5
"""Reasons shown on one screen; ``-o wide`` shows all."""
_NODES: Final = 4


def run(
    pod: Annotated[str | None, typer.Argument(help="Name of the pod.", metavar="POD")] = None,
    file: Annotated[
        Path | None, typer.Option("-f", "--filename", help="Explain a manifest instead, admission included.")
    ] = None,
    namespace: Namespace = None,
    spiking_domain: Annotated[
        str, typer.Option(help="Domain of the spiking resources, as router and neuroplugin are set.")
    ] = DOMAIN,
    output: Output = None,
    json: Json = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Why is this pod where it is, or still pending?

    Asks the router's own decision once more, on what the API server shows now. With -f the pod need not exist: it is
    admitted as the webhook would, and refused with the same sentences.
    """
    format = chosen_format(output, json)
    if (pod is None) == (file is None):
        raise CommandError(
            "name one pod, or one file", "a pod or -f FILE is needed, not both", "hcs why POD -n NAMESPACE", code=USAGE
        )

    def read() -> Cluster:
        return read_cluster(kubeconfig, context, domain=spiking_domain)

    answer = _of_file(file, namespace, read, spiking_domain) if file else _of_pod(pod or "", namespace, read)
    if not write_data(answer, format, names=[answer.pod]):
        say_styled(screen(answer, wide=format == "wide", columns=min(width(), 120)))


def _of_pod(name: str, namespace: str | None, read: Callable[[], Cluster]) -> Answer:
    name = name.removeprefix("pod/").removeprefix("pods/")
    cluster = read()
    where = namespace or cluster.namespace or "default"
    found = cluster.pod(name, where)
    if found is None:
        elsewhere = sorted(pod.key for pod in cluster.pods if pod.metadata.name == name)
        raise CommandError(
            f"there is no pod {name} in namespace {where}",
            f"there is {elsewhere[0]}" if elsewhere else f"{len(cluster.pods)} pods in all, none of that name",
            f"hcs why {name} -n {elsewhere[0].partition('/')[0]}" if elsewhere else f"kubectl get pods -n {where}",
        )
    return explain_pod(found, cluster, reference_rates=cluster.rates)


def _of_file(path: Path, namespace: str | None, read: Callable[[], Cluster], domain: str) -> Answer:
    from hcs.injector.mutation import mutate
    from hcs.injector.settings import Settings

    raw = _manifest(path)
    raw.setdefault("metadata", {}).setdefault("namespace", namespace or "default")
    try:
        pod = msgspec.convert(mutate(raw, load_catalogue(), Settings(spiking_domain=domain)), Pod)
    except RefusedError as error:
        metadata = raw["metadata"]
        key = f"{metadata['namespace']}/{metadata.get('name') or metadata.get('generateName') or 'unnamed'}"
        return Answer(pod=key, state="Refused", refusals=of_pod(error.refusals))
    cluster = read()
    return explain_pod(pod, cluster, reference_rates=cluster.rates)


def _manifest(path: Path) -> dict[str, Any]:
    """The pod of a manifest; of a Job or another controller, the pod it would make.

    Raises:
        CommandError: unreadable, or no pod in it.
    """
    import yaml

    try:
        documents = [document for document in yaml.safe_load_all(path.read_text()) if isinstance(document, dict)]
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise CommandError(f"cannot read {path}", " ".join(str(error).split()), "a YAML file", code=USAGE) from error
    for document in documents:
        if document.get("kind") == "Pod":
            return document
        template = (document.get("spec") or {}).get("template")
        if isinstance(template, dict) and template.get("spec"):
            metadata = {"name": (document.get("metadata") or {}).get("name", ""), **(template.get("metadata") or {})}
            return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    kinds = ", ".join(str(document.get("kind")) for document in documents) or "nothing"
    raise CommandError(f"there is no pod in {path}", f"it holds {kinds}", "a Pod, or something with a pod template")


Line = tuple[str, str]
"""Text and style."""


def screen(answer: Answer, *, wide: bool = False, columns: int = 100) -> Iterator[Line]:
    """The answer as lines of at most ``columns``, each with its style."""

    def line(label: str, text: str, indent: int = 2, style: str = "") -> Iterator[Line]:
        lead = f"{' ' * indent}{label:<8} " if label else " " * indent
        for part in textwrap.wrap(text, columns, initial_indent=lead, subsequent_indent=" " * len(lead)):
            yield part, style

    yield f"pod {answer.pod} {_headline(answer)}", "bold"
    if answer.asks:
        yield from line("asks", answer.asks)
    if answer.waits:
        yield from line("waits", f"for {answer.waits}", style="cyan")
    if answer.place is not None:
        yield from _place_lines(answer.place, line)
    for note in answer.notes:
        yield from line("but", note, style="red")
    if answer.state in ("Placeable", "Gated") and answer.says:
        yield from line("but", f"kube-scheduler said: {answer.says}")
    shown = answer.refusals if wide else answer.refusals[:_GROUPS]
    if shown:
        yield "", ""
    for reason in shown:
        yield from line("", _head(reason, wide), style="yellow")
        yield from line("", reason.message, 4)
    if len(shown) < len(answer.refusals):
        rest = answer.refusals[len(shown) :]
        nodes = sum(len(reason.nodes) for reason in rest)
        yield from line("", f"and {len(rest)} more reasons on {nodes} nodes; -o wide shows them")
    hints = list(dict.fromkeys(reason.hint for reason in shown if reason.hint)) if answer.state != "Placeable" else []
    if hints or answer.offer or answer.nearest:
        yield "", ""
    if answer.nearest:
        yield from line("nearest", answer.nearest)
    for hint in hints:
        yield from line("try", hint, style="cyan")
    if answer.offer:
        yield from line("offer", f"with {names.SUBSTITUTION}: auto it would be {answer.offer.reason}", style="green")


def _headline(answer: Answer) -> str:
    match answer.state:
        case "NotOurs":
            return "asks HCS for nothing; kubectl describe tells the rest"
        case "Refused":
            return "is refused at admission"
        case "Hostable":
            return "has RTOS guests and needs no card; kube-scheduler chooses among the nodes that can host them"
        case "Finished":
            return f"is over ({answer.phase}) and holds " + ("no card" if answer.asks_cards else "nothing any more")
        case "Bound":
            node = answer.place.node if answer.place else "?"
            return f"is on {node} ({answer.phase or 'bound'})"
        case "Placeable":
            return "has a place now; kube-scheduler will try it again"
        case "Gated":
            return "waits behind a scheduling gate" + ("; a place exists now" if answer.place else "; and has no place")
        case _:
            return f"is pending: 0 of {answer.nodes} nodes can serve it"


def _place_lines(place: Place, line: Callable[[str, str], Iterator[Line]]) -> Iterator[Line]:
    allocation = place.allocation
    if allocation.containers:
        yield from line("card", f"{allocation.vendor} {allocation.model} on {place.node}")
    else:
        yield from line("node", place.node)
    for grant in grants_in_words(allocation):
        yield from line("gets", grant)
    if allocation.exchange:
        yield from line("instead", exchange_in_words(allocation.exchange))
    if place.reason:
        yield from line("because", place.reason)


def _head(reason: Reason, wide: bool) -> str:
    if not reason.nodes:
        return reason.reason
    shown = reason.nodes if wide or len(reason.nodes) <= _NODES else reason.nodes[:_NODES]
    more = f" and {len(reason.nodes) - len(shown)} more" if len(shown) < len(reason.nodes) else ""
    count = f" ({len(reason.nodes)} nodes)" if len(reason.nodes) > 1 else ""
    return f"{reason.reason} on {', '.join(shown)}{more}{count}"
