"""``hcs agent``: run the agent of one node."""

import asyncio
import hashlib
import logging
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from hcs.agent.admissions import write_file
from hcs.agent.guests import ROOTS, Guests
from hcs.agent.node import Agent, Task
from hcs.inject.builtin import builtin_profiles
from hcs.kube.connection import connect
from hcs.mica.settings import load_config
from hcs.model.refusals import RefusedError
from hcs.native import NativeLibraryError, emulated_driver_dir, interceptor_path
from hcs.process import logs
from hcs.process.serving import Endpoint, serve
from hcs.ura.catalogue import load_catalogue
from hcs.vendors.base import Vendor
from hcs.vendors.emulated_vendor import EmulatedVendor
from hcs.vendors.nvidia import NvidiaVendor

log = logging.getLogger(__name__)


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
    host_root: Annotated[
        Path, typer.Option(help="Where the host's own file tree is seen, to look for device nodes and driver files.")
    ] = Path("/"),
    rtos: Annotated[
        bool | None, typer.Option("--rtos/--no-rtos", help="Report RTOS guests; by default where micad's directory is.")
    ] = None,
    rtos_root: Annotated[
        list[Path] | None, typer.Option(help="Where hcs-rtos keeps its records; several times for several.")
    ] = None,
    poll_seconds: Annotated[float, typer.Option(help="Time between two readings of the cards' health.")] = 0.2,
    probe_seconds: Annotated[float, typer.Option(help="Time between two probes for cards.")] = 60.0,
    ready_file: Annotated[Path | None, typer.Option(help="Write pid and address here once listening.")] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Run the agent: publish the node's cards, watch their health, and give each container what it was allocated."""
    logs.configure(log_level)
    asyncio.run(
        _run(
            node or socket.gethostname(),
            kubeconfig,
            context,
            Endpoint(unix_socket=str(unix_socket.absolute())),
            state_dir.absolute(),
            emulated_cards.absolute() if emulated_cards is not None else None,
            host_root,
            poll_seconds,
            probe_seconds,
            ready_file,
            _rtos(rtos, rtos_root),
        )
    )


async def _run(
    node: str,
    kubeconfig: str | None,
    context: str | None,
    endpoint: Endpoint,
    state: Path,
    emulated_cards: Path | None,
    host_root: Path,
    poll: float,
    probe: float,
    ready_file: Path | None,
    rtos: Guests | None,
) -> None:
    agent = Agent(
        node,
        client=connect(kubeconfig, context),
        vendors=_vendors(emulated_cards),
        state=state,
        interceptor=install_interceptor(state),
        exists=lambda path: (host_root / path.lstrip("/")).exists(),
        poll=poll,
        probe=probe,
        rtos=rtos,
    )
    Path(endpoint.unix_socket).parent.mkdir(parents=True, exist_ok=True)
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(_forever(task)) for task in agent.tasks()]
        await agent.prepared()
        await serve(agent.app, endpoint, ready=ready_file)
        for task in running:
            task.cancel()


def _rtos(wanted: bool | None, roots: Sequence[Path] | None) -> Guests | None:
    """The RTOS guests; None on a node without."""
    if wanted is False:
        return None
    try:
        config = load_config()
    except RefusedError as error:
        log.error("RTOS guests are not reported: %s", error)
        return None
    if wanted is None and not Path(config.mica_directory).is_dir():
        return None
    return Guests(config, tuple(roots or ROOTS))


def _vendors(emulated_cards: Path | None) -> list[Vendor]:
    catalogue = load_catalogue()
    if emulated_cards is not None:
        profiles = builtin_profiles()
        return [EmulatedVendor(emulated_cards, catalogue=catalogue, profiles=profiles, drivers=_emulated_driver)]
    nvidia = NvidiaVendor.find(catalogue)
    if nvidia is None:
        log.warning("no cards can be found on this node: no vendor's library is present")
    return [nvidia] if nvidia is not None else []


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
