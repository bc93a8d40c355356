"""``python -m hcs.sandbox.kubelet``: serve emulated nodes until SIGTERM."""

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path

from hcs.kube.connection import connect
from hcs.process import logs
from hcs.process.serving import run_until_stopped, write_ready
from hcs.sandbox.fleet import load_fleet
from hcs.sandbox.images import ImageStore
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
    logs.configure(options.log_level)
    asyncio.run(_serve(options))


async def _serve(options: argparse.Namespace) -> None:
    client = connect(options.kubeconfig)
    kubelet = Kubelet(
        client,
        emulated_nodes(options.node, options.fleet),
        root=options.root,
        images=ImageStore(options.images),
        pod_logs=options.pod_log_dir,
        back_off=BackOff(options.back_off, options.longest_back_off, 2 * options.longest_back_off),
    )

    async def announce() -> None:
        await kubelet.ready.wait()
        write_ready(options.ready_file, {})

    try:
        await run_until_stopped([kubelet.run, announce])
    finally:
        await client.close()


def emulated_nodes(words: Sequence[str], fleet: Path | None) -> list[EmulatedNode]:
    """The nodes that the arguments name, with what the fleet file says about them."""
    described = {node.name: node for node in load_fleet(fleet).nodes} if fleet else {}
    nodes = []
    for word in words:
        name, _, socket = word.partition("=")
        facts = described.get(name)
        if facts is None:
            nodes.append(EmulatedNode(name, socket or None))
        else:
            nodes.append(EmulatedNode(name, socket or None, str(facts.cpu), facts.memory, labels=facts.labels))
    return nodes


if __name__ == "__main__":
    main()
