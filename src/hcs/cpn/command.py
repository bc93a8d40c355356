"""``hcs cpn run``: the wide-area controller; ``hcs cpn blobs``: a store of bytes beside a cluster."""

import asyncio
import contextlib
import datetime
import os
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer
from lightkube import AsyncClient
from prometheus_client import CollectorRegistry

from hcs.cpn.assembly import Parts, Settings
from hcs.cpn.blobs import BlobFiles, BlobStore
from hcs.cpn.leases import Leadership
from hcs.cpn.server import make_app
from hcs.cpn.server_access import Tokens, check_exposure
from hcs.cpn.wire import PORT
from hcs.kube.connection import ApiUnreachableError, connect
from hcs.model.quantities import QuantityError, parse_bytes
from hcs.model.refusals import Refusal, RefusedError
from hcs.predict.jobs import ModelFileError
from hcs.process import logs
from hcs.process.serving import Endpoint, serve
from hcs.store.clusters import ClusterConfig, read_cluster
from hcs.store.queue import QueueStore

QUEUE: Final = Path("queue.db")
EPILOGS: Final = {
    "run": """Try: hcs cpn run --queue /var/lib/hcs/queue.db --clusters clusters.yaml, then hcs cpn clusters. Others
than this machine need a token: --host 0.0.0.0 --token-file FILE. docs/cpn-operating.md tells the rest.""",
    "blobs": """Try: hcs cpn blobs --directory /srv/blobs --limit 2Ti, then curl -T FILE
http://127.0.0.1:8091/blobs/sha256:$(sha256sum FILE | cut -d' ' -f1). docs/cpn-operating.md tells the rest.""",
}


def run(
    queue: Annotated[Path, typer.Option(help="The queue's file; made where there is none.")] = QUEUE,
    host: Annotated[
        str, typer.Option(help="Address to listen on; others than loopback need --token-file.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = PORT,
    token_file: Annotated[Path | None, typer.Option(help="File with the token that clients must bear.")] = None,
    config: Annotated[Path | None, typer.Option(help="YAML file of settings; see docs/cpn-operating.md.")] = None,
    clusters: Annotated[
        Path | None, typer.Option(help="YAML list of clusters, put into the queue at the start.")
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="Predictor file of 'hcs cpn train'; its runs count from now on.")
    ] = None,
    cpu_threshold: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="Busy share of a cluster's CPUs above which nothing starts.")
    ] = None,
    blob_token_file: Annotated[Path | None, typer.Option(help="File with the token of the blob stores.")] = None,
    lease: Annotated[str, typer.Option(help="NAMESPACE/NAME of a Lease that says which controller acts.")] = "",
    kubeconfig: Annotated[str | None, typer.Option(help="Kubeconfig of the cluster with the Lease.")] = None,
    context: Annotated[str | None, typer.Option(help="Context of that kubeconfig.")] = None,
    ready_file: Annotated[Path | None, typer.Option(help="Write pid and address here once listening.")] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Run the controller: one queue over many clusters.

    Jobs come over HTTP (POST /jobs) and by 'hcs cpn submit'. Everything it must not forget is in the queue's file; it
    may be killed at any moment and started again.
    """
    logs.configure(log_level)
    with _said():
        tokens = Tokens(token_file) if token_file is not None else None
        check_exposure(host, tokens)
        settings = _settings(config, cpu_threshold)
        given = _clusters(clusters)
        trained = _read(model) if model is not None else None
        token = _read(blob_token_file).decode().strip() if blob_token_file is not None else ""
        home = _home(lease, kubeconfig, context) if lease else None
        store = QueueStore.open(queue, make_id=lambda: secrets.token_hex(5))
    with store:
        for cluster in given:
            store.put_cluster(cluster)

        async def controller() -> None:
            parts = Parts(
                store,
                settings=settings,
                trained=trained,
                token=token,
                leadership=_leadership(*home) if home is not None else None,
                metrics=CollectorRegistry(),
            )
            application = make_app(parts.controller, tokens=tokens)
            await serve(application, Endpoint(host=host, port=port), tasks=parts.tasks(), ready=ready_file)

        with _said(f"{host}:{port}"):
            asyncio.run(controller())


def blobs(
    directory: Annotated[Path, typer.Option(help="Where the bytes lie; made where it is missing.")],
    host: Annotated[
        str, typer.Option(help="Address to listen on; others than loopback need --token-file.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8091,
    limit: Annotated[
        str, typer.Option(help="How much it may hold, like 500Gi; what was not used for longest goes.")
    ] = "",
    token_file: Annotated[Path | None, typer.Option(help="File with the token that writers must bear.")] = None,
    source: Annotated[
        list[str] | None, typer.Option(help="Address it may fetch from, with all below it; may be repeated. None: any.")
    ] = None,
    ready_file: Annotated[Path | None, typer.Option(help="Write pid and address here once listening.")] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Run a store of bytes beside a cluster: content under its SHA-256, fetched from other stores when asked."""
    logs.configure(log_level)
    with _said():
        token = _read(token_file).decode().strip() if token_file is not None else ""
        check_exposure(host, Tokens(token_file) if token_file is not None else None)
    try:
        most = parse_bytes(limit) if limit else None
    except QuantityError as error:
        raise typer.BadParameter(str(error), param_hint="--limit") from error

    with _said():
        files = BlobFiles(directory, limit=most)
        with files.held():

            async def store() -> None:
                made = BlobStore(files, token=token, sources=tuple(source or ()))
                try:
                    await serve(made.application(), Endpoint(host=host, port=port), ready=ready_file)
                finally:
                    await made.close()

            asyncio.run(store())


@contextlib.contextmanager
def _said(address: str = "") -> Iterator[None]:
    """What is refused becomes the command's error, in a sentence; ``address`` is where it listens."""
    try:
        yield
    except RefusedError as error:
        raise typer.BadParameter("; ".join(str(refusal) for refusal in error.refusals)) from error
    except ModelFileError as error:
        raise typer.BadParameter(f"the predictor's file: {error}") from error
    except OSError as error:
        raise typer.BadParameter(f"{error.filename or address}: {error.strerror or error}") from error


def _home(lease: str, kubeconfig: str | None, context: str | None) -> tuple[AsyncClient, str, str]:
    """The cluster with the Lease, and the Lease's namespace and name."""
    namespace, slash, name = lease.partition("/")
    if not (namespace and slash and name):
        raise RefusedError(Refusal("BadLease", f"cannot read {lease!r} as a Lease; write it like hcs-system/hcs-cpn"))
    try:
        return connect(kubeconfig, context), namespace, name
    except ApiUnreachableError as error:
        raise RefusedError(Refusal("NoHomeCluster", f"the Lease is on no cluster: {error}")) from error


def _leadership(client: AsyncClient, namespace: str, name: str) -> Leadership:
    return Leadership(
        client,
        name=name,
        namespace=namespace,
        identity=f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}",
        clock=asyncio.get_running_loop().time,
        today=lambda: datetime.datetime.now(datetime.UTC),
    )


def _settings(path: Path | None, cpu_threshold: float | None) -> Settings:
    try:
        settings = msgspec.yaml.decode(_read(path), type=Settings) if path is not None else Settings()
    except msgspec.DecodeError as error:
        raise RefusedError(Refusal("BadSettings", f"{path} cannot be used: {error}")) from error
    if cpu_threshold is None:
        return settings
    controller = msgspec.structs.replace(settings.controller, cpu_threshold=cpu_threshold)
    return msgspec.structs.replace(settings, controller=controller)


def _clusters(path: Path | None) -> list[ClusterConfig]:
    if path is None:
        return []
    try:
        found = msgspec.yaml.decode(_read(path), type=list[dict[str, Any]])
    except msgspec.DecodeError as error:
        raise RefusedError(Refusal("BadClusters", f"{path} is no list of clusters: {error}")) from error
    return [read_cluster(str(document.get("name", "")), document) for document in found]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise RefusedError(Refusal("FileUnreadable", f"cannot read {path}: {error.strerror}")) from error
