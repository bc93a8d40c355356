"""``python -m hcs.sandbox.kubelet``: serve emulated nodes until SIGTERM."""

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path

from hcs.kube.connection import connect
from hcs.process import logs
from hcs.process.serving import Endpoint, run_until_stopped, serve, write_ready
from hcs.sandbox.fleet import load_fleet
from hcs.sandbox.images import ImageStore
from hcs.sandbox.kubelet import logserver
from hcs.sandbox.kubelet.kubelet import Kubelet
from hcs.sandbox.kubelet.nodes import EmulatedNode
from hcs.sandbox.kubelet.restarts import BackOff


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the arguments and serve."""
    parser = argparse.ArgumentParser(prog="python -m hcs.sandbox.kubelet", description=__doc__)
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument(
        "--node",
        action="append",
        required=True,
        metavar="NAME[=SOCKET]",
        help="an emulated node, and the socket of its agent; may be given several times",
    )
    parser.add_argument("--fleet", type=Path, help="fleet file with the nodes' CPU, memory and labels")
    parser.add_argument("--root", type=Path, required=True, help="directory for the trees and volumes of pods")
    parser.add_argument("--images", type=Path, required=True, help="directory of the sandbox's images")
    parser.add_argument("--pod-log-dir", type=Path, required=True)
    parser.add_argument("--log-port", type=int, help="serve logs to an API server here, over HTTPS")
    parser.add_argument("--tls-cert-file", default="", help="certificate for that, PEM")
    parser.add_argument("--tls-key-file", default="", help="its key, PEM")
    parser.add_argument("--client-ca-file", default="", help="only clients that this authority vouches for are heard")
    parser.add_argument("--ready-file", type=Path)
    parser.add_argument(
        "--back-off",
        type=float,
        default=BackOff().initial,
        metavar="SECONDS",
        help="pause before the second restart of a container, doubled each time (a real kubelet: 10)",
    )
    parser.add_argument(
        "--longest-back-off", type=float, default=BackOff().longest, metavar="SECONDS", help="(a real kubelet: 300)"
    )
    parser.add_argument("--log-level", default="info", choices=logs.LEVELS)
    options = parser.parse_args(arguments)
    if options.log_port is not None and not (options.tls_cert_file and options.tls_key_file and options.client_ca_file):
        parser.error("--log-port needs --tls-cert-file, --tls-key-file and --client-ca-file")
    logs.configure(options.log_level)
    asyncio.run(_serve(options))


async def _serve(options: argparse.Namespace) -> None:
    client = connect(options.kubeconfig)
    kubelet = Kubelet(
        client,
        emulated_nodes(options.node, options.fleet, options.log_port),
        root=options.root,
        images=ImageStore(options.images),
        pod_logs=options.pod_log_dir,
        back_off=BackOff(options.back_off, options.longest_back_off, 2 * options.longest_back_off),
    )

    async def announce() -> None:
        await kubelet.ready.wait()
        write_ready(options.ready_file, {})

    try:
        if options.log_port is None:
            await run_until_stopped([kubelet.run, announce])
        else:
            endpoint = Endpoint(
                port=options.log_port,
                certificate=options.tls_cert_file,
                key=options.tls_key_file,
                client_authority=options.client_ca_file,
            )
            app = logserver.make_app(kubelet.find, kubelet.log_place)
            await serve(app, endpoint, tasks=[kubelet.run, announce])
    finally:
        await client.close()


def emulated_nodes(words: Sequence[str], fleet: Path | None, port: int | None = None) -> list[EmulatedNode]:
    """The nodes that the arguments name, with what the fleet file says about them."""
    described = {node.name: node for node in load_fleet(fleet).nodes} if fleet else {}
    nodes = []
    for word in words:
        name, _, socket = word.partition("=")
        facts = described.get(name)
        if facts is None:
            nodes.append(EmulatedNode(name, socket or None, port=port))
        else:
            sizes = {"cpu": str(facts.cpu), "memory": facts.memory}
            nodes.append(EmulatedNode(name, socket or None, **sizes, labels=facts.labels, port=port))
    return nodes


if __name__ == "__main__":
    main()
