"""``hcs neuro check``: would this manifest or package be accepted? Offline; nothing is sent anywhere."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from hcs.cli.errors import FAILED, USAGE, CommandError
from hcs.cli.options import Json
from hcs.cli.output import say, write_data
from hcs.model.pods import Pod
from hcs.model.refusals import Refusal, RefusedError
from hcs.neuro.boardfiles import read_boards
from hcs.neuro.capacities import DOMAIN, UNITS
from hcs.neuro.packages import read_package
from hcs.neuro.pods import read_spiking


def check(
    file: Annotated[Path, typer.Argument(help="A pod, a NeuralTask, a package or a board file.", metavar="FILE")],
    domain: Annotated[str, typer.Option(help="Domain of the resources, as the plugin is set.")] = DOMAIN,
    json: Json = False,
) -> None:
    """Say what a file asks of spiking hardware, or what is wrong with it and how to mend it.

    Exit code 1 when something is refused.

    Examples: hcs neuro check pod.yaml --domain snn.vendor.com      hcs neuro check package.json
    """
    found: list[dict[str, Any]] = []
    for document in _documents(file):
        what = _title(document)
        try:
            found.append({"what": what, "asks": _asks(document, domain), "refusals": []})
        except RefusedError as error:
            found.append({"what": what, "asks": [], "refusals": msgspec.to_builtins(error.refusals)})
    if not write_data(found, "line" if json else "table"):
        for entry in found:
            for line in entry["asks"] or ([] if entry["refusals"] else ["asks for nothing of ours"]):
                say(f"{entry['what']}: {line}")
            for refusal in entry["refusals"]:
                say(f"{entry['what']}: {refusal['reason']}: {refusal['message']}")
    if any(entry["refusals"] for entry in found):
        raise typer.Exit(FAILED)


def _documents(file: Path) -> list[Any]:
    import yaml

    try:
        return [document for document in yaml.safe_load_all(file.read_text()) if document]
    except (OSError, UnicodeError, yaml.YAMLError, RecursionError) as error:
        raise CommandError(
            f"cannot read {file}", " ".join(str(error).split()), "hcs neuro check --help", code=USAGE
        ) from error


def _title(document: Any) -> str:
    if not isinstance(document, dict):
        return "document"
    if "kind" in document:
        metadata = document.get("metadata")
        name = metadata.get("name", "") if isinstance(metadata, dict) else ""
        return f"{document['kind']}/{name}"
    return "boards" if "boards" in document else f"package {document.get('name', '')}".strip()


def _asks(document: Any, domain: str) -> list[str]:
    if not isinstance(document, dict):
        raise RefusedError(
            Refusal("MalformedFile", "not a manifest, a package or a board file; begin with kind or name")
        )
    if "boards" in document and "kind" not in document:
        return [f"board {board.id}, {board.model.width}x{board.model.height}" for board in read_boards(document)]
    if "kind" not in document:
        package = read_package(document)
        return [f"model {model.name} {_amounts(model.amounts)}" for model in package.models]
    if document["kind"] == "NeuralTask":
        spec = document.get("spec")
        if not isinstance(spec, dict) or not ("package" in spec or spec.get("app")):
            raise RefusedError(Refusal("NothingAsked", "a NeuralTask names an app, or brings its package; add one"))
        if "package" not in spec:
            return [f"app {spec['app']}, which must be installed"]
        model = read_package(spec["package"]).model(str(spec.get("model", "")))
        return [f"model {model.name} {_amounts(model.amounts)}"]
    template: Any = document
    if document["kind"] != "Pod":
        spec = document.get("spec")
        template = spec.get("template") if isinstance(spec, dict) else None
    try:
        pod = msgspec.convert(template, Pod)
    except msgspec.ValidationError as error:
        raise RefusedError(Refusal("MalformedPod", f"the pod cannot be read: {error}")) from error
    return [
        f"container {request.container}{' ' + request.module if request.module else ''} {_amounts(request.units)}"
        for request in read_spiking(pod, domain=domain)
    ]


def _amounts(amounts: Any) -> str:
    parts = [f"{getattr(amounts, field)} {unit}" for field, unit in UNITS.items() if getattr(amounts, field)]
    return f"asks for {', '.join(parts) or 'nothing'}"
