"""Renewed certificate files are served without a restart, and half-replaced ones never."""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from hcs.process.certificates import Authority
from hcs.process.reloading import keep_current

AUTHORITY = Authority.create("test")


class Looks:
    """Stands for the waiting between looks: runs one step of the story per look, then ends it."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self._steps = list(steps)

    async def __call__(self, seconds: float) -> None:
        if not self._steps:
            raise asyncio.CancelledError
        self._steps.pop(0)()


def served(context: ssl.SSLContext) -> bytes:
    """The certificate a client sees: a handshake in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client_context = AUTHORITY.client_context()
    client_context.check_hostname = False
    server = context.wrap_bio(to_server, to_client, server_side=True)
    client = client_context.wrap_bio(to_client, to_server)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    found = client.getpeercert(binary_form=True)
    assert found is not None
    return found


def watch(context: ssl.SSLContext, folder: Path, *steps: Callable[[], object]) -> None:
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(keep_current(context, folder / "tls.crt", folder / "tls.key", pause=Looks(*steps)))


@pytest.fixture
def context(tmp_path: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*AUTHORITY.issue(["localhost"]).write(tmp_path, "tls"))
    return context


def test_a_renewed_pair_is_served_to_new_connections(context: ssl.SSLContext, tmp_path: Path) -> None:
    renewed = AUTHORITY.issue(["localhost"])
    before = served(context)
    watch(context, tmp_path, lambda: renewed.write(tmp_path, "tls"))
    assert served(context) == ssl.PEM_cert_to_DER_cert(renewed.certificate.decode()) != before


def test_a_half_replaced_pair_waits_for_its_other_half(
    context: ssl.SSLContext, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before, renewed, seen = served(context), AUTHORITY.issue(["localhost"]), []
    watch(
        context,
        tmp_path,
        lambda: (tmp_path / "tls.crt").write_bytes(renewed.certificate),
        lambda: seen.append(served(context)),
        lambda: (tmp_path / "tls.key").write_bytes(renewed.key),
    )
    assert seen == [before]
    assert served(context) == ssl.PEM_cert_to_DER_cert(renewed.certificate.decode())
    assert "certificate not taken up" in caplog.text


def test_vanished_files_change_nothing(context: ssl.SSLContext, tmp_path: Path) -> None:
    before = served(context)
    watch(context, tmp_path, lambda: (tmp_path / "tls.key").unlink())
    assert served(context) == before
