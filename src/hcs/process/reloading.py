"""Take up new certificate files without a restart.

Whoever renews certificates (cert-manager, the kubelet refreshing a mounted Secret, our own injector) replaces files in
place. New connections use the new pair from the next look on; running ones are not disturbed. A pair that does not fit
together, as seen halfway through a replacement, is left for the next look.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 15.0


async def keep_current(
    context: ssl.SSLContext,
    certificate: Path,
    key: Path,
    *,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Reload a server's TLS context whenever its files change, until cancelled.

    Args:
        context: the context the server accepts connections with; it has these files loaded already.
        certificate: PEM certificate chain.
        key: PEM key of it.
        pause: how to wait between looks; tests pass their own.
    """
    taken = _read(certificate, key)
    while True:
        await pause(LOOK_SECONDS)
        found = _read(certificate, key)
        if found is None or found == taken:
            continue
        try:
            # Tried apart first: loading a pair that does not match would leave the live context with half of it.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
            context.load_cert_chain(certificate, key)
        except (OSError, ssl.SSLError) as error:
            log.warning("certificate not taken up: file=%s error=%r", certificate, error)
            continue
        taken = found
        log.info("certificate taken up: file=%s", certificate)


def _read(certificate: Path, key: Path) -> tuple[bytes, bytes] | None:
    try:
        return certificate.read_bytes(), key.read_bytes()
    except OSError:
        return None
