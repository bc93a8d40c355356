"""``hcs agent``: run the agent of one node, or look at the node's cards once."""

import asyncio
import hashlib
import logging
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from hcs.agent.admissions import write_file
from hcs.agent.cards import Cards
from hcs.agent.cdi import CdiSpecs
from hcs.agent.datasources import DataSource, DataSourceError, DataSources, read_sources
from hcs.agent.guard import guarded
from hcs.agent.guests import ROOTS, Guests
from hcs.agent.measuring import ProcessMeasurer, can_measure
from hcs.agent.node import Agent, Task
from hcs.deviceplugin.podresources import PodResources
from hcs.inject.builtin import builtin_profiles
from hcs.kube.connection import connect
from hcs.mica.settings import load_config
from hcs.model.devices import Device
from hcs.model.quantities import show_acu, show_bytes
from hcs.model.refusals import RefusedError
from hcs.native import NativeLibraryError, emulated_driver_dir, interceptor_path
from hcs.process import logs
from hcs.process.serving import Endpoint, serve
from hcs.ura.catalogue import load_catalogue
from hcs.vendors import registry
from hcs.vendors.base import Vendor
from hcs.vendors.emulated_vendor import EmulatedVendor

log = logging.getLogger(__name__)

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    help="The agent of one node: publishes its cards, watches them, hands them to containers.",
)


@app.command()
def run(
    node: Annotated[str, typer.Option(envvar="NODE_NAME", help="Name of this node; default the host's.")] = "",
    kubeconfig: Annotated[str | None, typer.Option(help="Kubeconfig file; without it the usual places.")] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig.")] = None,
    unix_socket: Annotated[Path, typer.Option("--socket", help="Unix socket for the container runtime.")] = Path(
        "/run/hcs/agent.sock"
    ),
    state_dir: Annotated[
        Path, typer.Option(help="Directory for what must outlive a restart; the same path on the host.")
    ] = Path("/var/lib/hcs"),
    emulated_cards: Annotated[
        Path | None, typer.Option(help="Directory of emulated card files; then no real card is looked for.")
    ] = None,
    nri_socket: Annotated[
        Path | None,
        typer.Option(help="The container runtime's NRI socket; without it, the runtime asks over --socket."),
    ] = None,
    cdi_dir: Annotated[
        Path | None, typer.Option(help="Directory for our CDI files, like /var/run/cdi; without it, none are written.")
    ] = None,
    pod_resources: Annotated[
        Path | None,
        typer.Option(
            help="The kubelet's podresources socket, to see which cards others hold; without it, nobody asks."
        ),
    ] = None,
    host_root: Annotated[
        Path, typer.Option(help="Where the host's own file tree is seen, to look for device nodes and driver files.")
    ] = Path("/"),
    rtos: Annotated[
        bool | None, typer.Option("--rtos/--no-rtos", help="Report RTOS guests; by default where micad's directory is.")
    ] = None,
    rtos_root: Annotated[
        list[Path] | None, typer.Option(help="Where hcs-rtos keeps its records; several times for several.")
    ] = None,
    data_source: Annotated[
        list[str] | None,
        typer.Option(
            envvar="HCS_DATA_SOURCES",
            help="A named place whose distance is measured, like lake-1=lake.example:9000; several times for several.",
        ),
    ] = None,
    poll_seconds: Annotated[float, typer.Option(help="Time between two readings of the cards' health.")] = 0.2,
    probe_seconds: Annotated[float, typer.Option(help="Time between two probes for cards.")] = 60.0,
    calibrate: Annotated[
        bool, typer.Option("--calibrate/--no-calibrate", help="Measure cards that nobody uses, once per driver.")
    ] = True,
    ready_file: Annotated[Path | None, typer.Option(help="Write pid and address here once listening.")] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Run the agent: publish the node's cards, watch their health, and give each container what it was allocated."""
    logs.configure(log_level)
    try:
        sources = read_sources(data_source or ())
    except DataSourceError as error:
        raise typer.BadParameter(str(error), param_hint="--data-source") from error
    asyncio.run(
        _run(
            node or socket.gethostname(),
            kubeconfig,
            context,
            Endpoint(unix_socket=str(unix_socket.absolute())),
            state_dir.absolute(),
            emulated_cards.absolute() if emulated_cards is not None else None,
            nri_socket,
            cdi_dir,
            pod_resources,
            host_root,
            poll_seconds,
            probe_seconds,
            calibrate,
            ready_file,
            _rtos(rtos, rtos_root, host_root),
            sources,
        )
    )


async def _run(
    node: str,
    kubeconfig: str | None,
    context: str | None,
    endpoint: Endpoint,
    state: Path,
    emulated_cards: Path | None,
    nri_socket: Path | None,
    cdi_dir: Path | None,
    pod_resources: Path | None,
    host_root: Path,
    poll: float,
    probe: float,
    calibrate: bool,
    ready_file: Path | None,
    rtos: Guests | None,
    sources: tuple[DataSource, ...],
) -> None:
    drivers: Callable[[], dict[str, str]] = lambda: agent.cards.driver_versions  # noqa: E731 - named for its type
    able = calibrate and can_measure(emulated_cards)
    measurer = ProcessMeasurer(emulated_cards=emulated_cards, drivers=drivers, visibility=_visibility) if able else None

    def exists(path: str) -> bool:
        return (host_root / path.lstrip("/")).exists()

    agent = Agent(
        node,
        client=connect(kubeconfig, context),
        vendors=_vendors(emulated_cards),
        state=state,
        interceptor=install_interceptor(state),
        exists=exists,
        poll=poll,
        probe=probe,
        rtos=rtos,
        measurer=measurer,
        nri_socket=nri_socket,
        guarded=lambda: guarded(Path(endpoint.unix_socket).with_name("guard.lock")),
        cdi=CdiSpecs(cdi_dir, others=[host_root / "etc/cdi"], exists=exists) if cdi_dir is not None else None,
        pod_resources=PodResources(pod_resources) if pod_resources is not None else None,
        data_sources=DataSources(sources, state),
    )
    Path(endpoint.unix_socket).parent.mkdir(parents=True, exist_ok=True)
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(_forever(task)) for task in agent.tasks()]
        await agent.prepared()
        await serve(agent.app, endpoint, ready=ready_file)
        for task in running:
            task.cancel()


def _rtos(wanted: bool | None, roots: Sequence[Path] | None, host_root: Path) -> Guests | None:
    """The RTOS guests; None on a node without. What the configuration names is looked for where the host is seen."""
    if wanted is False:
        return None
    try:
        config = load_config(root=host_root)
    except RefusedError as error:
        log.error("RTOS guests are not reported: %s", error)
        return None
    directory = host_root / config.mica_directory.lstrip("/")
    if wanted is None and not directory.is_dir():
        return None
    config = msgspec.structs.replace(config, mica_directory=str(directory))
    return Guests(config, tuple(roots or (host_root / str(root).lstrip("/") for root in ROOTS)))


class Looked(msgspec.Struct, frozen=True, rename="camel"):
    """What one look at the node found: what the agent would publish, and which vendors did not answer."""

    node: str
    devices: tuple[Device, ...]
    driver_versions: dict[str, str]
    silent: dict[str, str]


@app.command()
def once(
    node: Annotated[str, typer.Option(envvar="NODE_NAME", help="Name of this node; default the host's.")] = "",
    emulated_cards: Annotated[
        Path | None, typer.Option(help="Directory of emulated card files; then no real card is looked for.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Look at the node's cards once and print what would be published. Needs no cluster and writes nothing.

    Exit 1 when a vendor does not answer.
    """
    found = asyncio.run(_look(node or socket.gethostname(), emulated_cards))
    if json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n")
    else:
        for device in found.devices:
            rate = device.rate()
            worth = f"{show_acu(rate.milliacu)} ACU ({rate.source})" if rate else "ACU unknown"
            verdict = f"{device.verdict}: {device.verdict_reason}" if device.verdict_reason else device.verdict
            name = f"{device.vendor} {device.model}{' (emulated)' if device.emulated else ''}"
            sys.stdout.write(f"{device.index}  {device.id}  {name}  {show_bytes(device.vram)}  {worth}  {verdict}\n")
        if not found.devices:
            sys.stdout.write("no cards found\n")
    for word, problem in found.silent.items():
        sys.stderr.write(f"{word} does not answer: {problem}\n")
    raise typer.Exit(1 if found.silent else 0)


async def _look(node: str, emulated_cards: Path | None) -> Looked:
    cards = Cards(_vendors(emulated_cards))
    await cards.probe()
    silent = cards.silent
    await cards.check()
    return Looked(node, cards.devices, dict(cards.driver_versions), {**cards.silent, **silent})


def _vendors(emulated_cards: Path | None) -> list[Vendor]:
    catalogue = load_catalogue()
    if emulated_cards is not None:
        profiles = builtin_profiles()
        return [EmulatedVendor(emulated_cards, catalogue=catalogue, profiles=profiles, drivers=_emulated_driver)]
    vendors = registry.present(catalogue)
    if not vendors:
        log.warning("no cards can be found on this node: no vendor's library or tool is present")
    return vendors


def _visibility(vendor: str) -> tuple[str, ...]:
    """The variables that tell a process of the vendor's runtime which cards it sees, by their numbers."""
    profile = builtin_profiles().get(vendor)
    return tuple(name for name, text in (profile.selection if profile else {}).items() if "{ordinals}" in text)


def _emulated_driver(vendor: str) -> Path | None:
    try:
        return emulated_driver_dir(vendor)
    except NativeLibraryError:
        return None


def install_interceptor(state: Path) -> str:
    """Copy the interceptor to a directory of its own version under ``state``, where containers can mount it.

    A version that is there is never written again: running programs have it mapped.

    Returns:
        Its path; empty where the library has not been built, and then shares are refused.
    """
    try:
        content = interceptor_path().read_bytes()
    except NativeLibraryError as error:
        log.warning("shares of cards will be refused: %s", error)
        return ""
    target = state / "interceptor" / hashlib.sha256(content).hexdigest()[:16] / interceptor_path().name
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        write_file(target, content, 0o755)
    return str(target)


async def _forever(task: Task) -> None:
    await task()
