"""``hcs neuroplugin``: run the neuromorphic plugin of one node."""

import asyncio
import gc
import logging
import socket
import time
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
import yaml

from hcs.deviceplugin.plugin import DIRECTORY
from hcs.deviceplugin.podresources import SOCKET
from hcs.kube.connection import connect
from hcs.model.refusals import Refusal, RefusedError
from hcs.neuro.boardfiles import read_boards
from hcs.neuro.boards import BoardState
from hcs.neuro.capacities import DOMAIN, WORDS
from hcs.neuro.models import find_model
from hcs.neuroplugin.node import NeuroNode
from hcs.neuroplugin.settings import Settings, Units
from hcs.process import logs
from hcs.process.serving import Endpoint, serve
from hcs.vendors.emulated_board import EmulatedBoard

log = logging.getLogger(__name__)


def run(
    boards: Annotated[Path | None, typer.Option(help="Board file; see docs/neuromorphic.md.", metavar="FILE")] = None,
    emulated: Annotated[
        list[str] | None, typer.Option("--emulated-board", help="Emulate a board of this model; may be repeated.")
    ] = None,
    domain: Annotated[str, typer.Option(help="Domain of the resources.")] = DOMAIN,
    unit: Annotated[
        list[str] | None,
        typer.Option(help="How much one id stands for, like ksps=10; may be repeated.", metavar="WORD=N"),
    ] = None,
    resource: Annotated[
        list[str] | None, typer.Option(help="Advertise only this resource; may be repeated.", metavar="WORD")
    ] = None,
    device: Annotated[
        list[str] | None, typer.Option(help="Device file for containers; {board} is the board's id.")
    ] = None,
    mount: Annotated[
        list[str] | None, typer.Option(help="Read-only mount for containers.", metavar="HOST:CONTAINER")
    ] = None,
    kubelet_dir: Annotated[
        Path | None, typer.Option(help="The kubelet's plugin directory; /var/lib/kubelet/device-plugins otherwise.")
    ] = None,
    pod_resources: Annotated[Path, typer.Option(help="The kubelet's podresources socket.")] = SOCKET,
    no_kubelet: Annotated[bool, typer.Option("--no-kubelet", help="Serve HTTP only, advertise nothing.")] = False,
    objects: Annotated[
        bool,
        typer.Option(
            "--neural-tasks", help="Work with the cluster: NeuralTask objects, and rectangles the router chose."
        ),
    ] = False,
    node: Annotated[str, typer.Option(envvar="NODE_NAME", help="Name of this node; default the host's.")] = "",
    kubeconfig: Annotated[str | None, typer.Option(help="Kubeconfig, for --neural-tasks.")] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig.")] = None,
    tokens: Annotated[
        Path | None, typer.Option(help="YAML file: bearer token → tenant; * for operators.", metavar="FILE")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; beyond loopback --tokens is needed.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8460,
    certificate: Annotated[str, typer.Option("--tls-cert-file", help="PEM certificate chain to serve with.")] = "",
    key: Annotated[str, typer.Option("--tls-key-file", help="PEM key of it.")] = "",
    first_id: Annotated[
        int, typer.Option(help="First global number of tasks; 0 takes the milliseconds since 1970, above all before.")
    ] = 0,
    ready_file: Annotated[Path | None, typer.Option(help="Write pid and address here once listening.")] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Run the neuromorphic plugin: advertise spikes and streams to the kubelet, and serve neural tasks.

    All boards of this version are emulated: no vendor's driver is public.
    """
    logs.configure(log_level)
    try:
        settings = Settings(
            domain=domain,
            units=_units(unit or []),
            resources=() if no_kubelet else tuple(resource or WORDS),
            device_nodes=tuple(device or ()),
            mounts=tuple(_mount(text) for text in mount or ()),
        ).check()
        states = _boards(boards, emulated or [])
        table = _tokens(tokens)
        if not table and host not in ("127.0.0.1", "::1", "localhost"):
            raise RefusedError(
                Refusal("TokensMissing", f"listening on {host} without --tokens would let everybody in; give them")
            )
    except RefusedError as error:
        raise typer.BadParameter("; ".join(refusal.message for refusal in error.refusals)) from error
    drivers = {state.id: EmulatedBoard(state) for state in states}

    async def main() -> None:
        client = connect(kubeconfig, context) if objects else None
        plugin = NeuroNode(
            drivers,
            settings,
            directory=None if no_kubelet else (kubelet_dir or DIRECTORY),
            pod_resources=pod_resources,
            client=client,
            node=node or socket.gethostname(),
            tokens=table,
            first_id=first_id or time.time_ns() // 1_000_000,
        )
        await plugin.publish()
        gc.freeze()  # the ids stay for good; without this each full collection walks all of them during some Allocate
        endpoint = Endpoint(host=host, port=port, certificate=certificate, key=key)
        await serve(plugin.app, endpoint, tasks=plugin.tasks(), ready=ready_file)

    try:
        asyncio.run(main())
    except RefusedError as error:
        raise typer.BadParameter("; ".join(refusal.message for refusal in error.refusals)) from error


def _boards(file: Path | None, emulated: list[str]) -> tuple[BoardState, ...]:
    found: list[BoardState] = []
    if file is not None:
        found.extend(read_boards(load_yaml(file), emulated=True))
    known = {state.id for state in found}
    for number, model in enumerate(emulated):
        id = next(f"b{n}" for n in range(number, number + len(known) + 1) if f"b{n}" not in known)
        known.add(id)
        found.append(BoardState(id=id, model=find_model(model), emulated=True))
    if not found:
        raise RefusedError(Refusal("NoBoards", "no board: give --boards FILE or --emulated-board darwin3"))
    return tuple(found)


def load_yaml(file: Path) -> Any:
    """Read a YAML file.

    Raises:
        RefusedError: it cannot be read, or is no YAML.
    """
    try:
        return yaml.safe_load(file.read_text())
    except (OSError, UnicodeError) as error:
        raise RefusedError(Refusal("FileNotRead", f"cannot read {file}: {error}")) from error
    except (yaml.YAMLError, RecursionError) as error:
        raise RefusedError(Refusal("MalformedFile", f"{file} is no YAML: {' '.join(str(error).split())}")) from error


def _units(texts: list[str]) -> Units:
    changes = {}
    for text in texts:
        word, _, amount = text.partition("=")
        if word not in WORDS or not amount.isdecimal():
            raise RefusedError(
                Refusal(
                    "ImpossibleUnit", f"cannot read --unit {text!r}; write it like ksps=10; words: {', '.join(WORDS)}"
                )
            )
        changes[WORDS[word]] = int(amount)
    return msgspec.structs.replace(Units(), **changes)


def _mount(text: str) -> tuple[str, str]:
    host, _, inside = text.partition(":")
    if not host.startswith("/") or not inside.startswith("/"):
        raise RefusedError(Refusal("MalformedMount", f"cannot read --mount {text!r}; write it like /opt/snn:/opt/snn"))
    return host, inside


def _tokens(file: Path | None) -> dict[str, str]:
    if file is None:
        return {}
    found = load_yaml(file)
    if (
        not isinstance(found, dict)
        or not found
        or not all(isinstance(x, str) and x for kv in found.items() for x in kv)
    ):
        raise RefusedError(Refusal("MalformedFile", f"{file} must map tokens to tenants, both text"))
    return found
