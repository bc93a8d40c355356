"""``python -m hcs.sandbox.apiserver``: the API server as a process.

Prints one JSON line when it serves (``url``, ``port``, ``ca``, ``pid``) and writes the same to ``--ready-file``.
SIGTERM and SIGINT stop it within a second; ``kill -9`` loses nothing that was answered.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from pathlib import Path

import msgspec

from hcs.sandbox.apiserver.server import ApiServer, Settings, write_kubeconfig


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m hcs.sandbox.apiserver", description="embedded Kubernetes API server"
    )
    parser.add_argument("--data", type=Path, required=True, help="directory for state, certificates; made if missing")
    parser.add_argument("--port", type=int, default=0, help="loopback port, 0 for a free one")
    parser.add_argument("--ready-file", type=Path, help="written with one JSON line once requests are served")
    parser.add_argument(
        "--token-auth-file", type=Path, help='lines of token,user,uid,"group1,group2"; default: admin-token'
    )
    parser.add_argument("--pod-log-dir", type=Path, help="where container logs are: NAMESPACE_POD_UID/CONTAINER.log")
    parser.add_argument(
        "--service-override", action="append", default=[], metavar="NAMESPACE/NAME=URL",
        help="where a webhook's service really listens; may be repeated",
    )  # fmt: skip
    parser.add_argument("--history", type=int, default=20_000, help="changes kept for watches and paged lists")
    parser.add_argument("--bookmark-seconds", type=float, default=15.0, help="time between watch bookmarks")
    parser.add_argument("--kubeconfig", type=Path, help="write a kubeconfig here once serving")
    parser.add_argument("--kubeconfig-token", default="admin-token", help="the token that kubeconfig carries")
    return parser


def settings(options: argparse.Namespace) -> Settings:
    services = {}
    for text in options.service_override:
        reference, equals, url = text.partition("=")
        if not equals or "/" not in reference or not url.startswith("https://"):
            raise SystemExit(
                f"--service-override {text!r}: write it like hcs-system/hcs-injector=https://127.0.0.1:9443"
            )
        services[reference] = url
    return Settings(
        options.data, options.port, options.token_auth_file, options.pod_log_dir, services, options.history,
        options.bookmark_seconds,
    )  # fmt: skip


async def serve(options: argparse.Namespace) -> None:
    server = ApiServer(settings(options))
    await server.start()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    if options.kubeconfig:
        write_kubeconfig(options.kubeconfig, server.kubeconfig(options.kubeconfig_token))
    facts = {"url": server.url, "port": server.port, "ca": str(options.data / "ca.crt"), "pid": os.getpid()}
    line = msgspec.json.encode(facts).decode()
    if options.ready_file:
        partial = options.ready_file.with_name(options.ready_file.name + ".partial")
        partial.write_text(line + "\n")
        partial.replace(options.ready_file)
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
    await stop.wait()
    await server.stop()


def main() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s %(message)s")
    asyncio.run(serve(arguments().parse_args()))


if __name__ == "__main__":
    main()
