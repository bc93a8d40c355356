"""Certificates: clients that trust the authority reach the names it vouched for, and no others."""

import socket
import ssl
import threading
from pathlib import Path

import pytest

from hcs.process.certificates import Authority, service_names


def handshake(authority: Authority, names: list[str], server_name: str, folder: Path) -> None:
    """A TLS handshake between a client that trusts the authority and a server with a certificate for the names."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue(names).write(folder, "server"))
    client, server = socket.socketpair()

    def serve() -> None:
        try:
            with context.wrap_socket(server, server_side=True) as secure:
                secure.recv(1)
        except OSError:
            server.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with Authority.client_context(authority).wrap_socket(client, server_hostname=server_name) as secure:
            secure.send(b"x")
    finally:
        client.close()
        thread.join(5)


@pytest.mark.parametrize("name", ["hcs-injector.hcs-system.svc", "localhost", "127.0.0.1"])
def test_a_webhook_is_reached_by_each_of_its_names(tmp_path: Path, name: str) -> None:
    handshake(Authority.create("test"), service_names("hcs-injector", "hcs-system"), name, tmp_path)


def test_another_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match=r"doesn't match|not valid for"):
        handshake(Authority.create("test"), ["localhost"], "elsewhere", tmp_path)
