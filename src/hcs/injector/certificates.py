"""Certificates without cert-manager: the webhook makes its own and tells the API server to trust them.

All replicas share one Secret. Whoever finds it empty, or its certificate in the last third of its life, writes a new
one; who loses that race takes the winner's. The Secret is written first, the webhook's ``caBundle`` second, the files
we serve from last: nobody presents a certificate that the API server was not told of. An authority near its end is
replaced early, and stays in the bundle beside its successor until every replica has changed over.

Where a certificate is given by files (by cert-manager, or by hand) nothing here runs.
"""

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import httpx2
import msgspec
from lightkube import ApiError, AsyncClient
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.admissionregistration_v1 import MutatingWebhookConfiguration
from lightkube.resources.core_v1 import Secret
from lightkube.types import PatchType

from hcs.process.certificates import Authority, KeyPair, service_names

log = logging.getLogger(__name__)

SERVER_DAYS: Final = 90
AUTHORITY_DAYS: Final = 3650
CHECK_SECONDS: Final = 60.0
"""How often Secret and ``caBundle`` are looked at: how long an overwritten ``caBundle`` can keep pods from us."""
_ATTEMPTS: Final = 5
_LABELS: Final = {
    "app.kubernetes.io/name": "hcs-injector",
    "app.kubernetes.io/part-of": "hetero-compute-router",
    "app.kubernetes.io/managed-by": "hcs-injector",
}


class Place(msgspec.Struct, frozen=True):
    """Where the certificate belongs: the Service it is for, its Secret, and the configuration that must trust it."""

    namespace: str
    service: str
    secret: str
    configuration: str


class Material(msgspec.Struct, frozen=True):
    """What the Secret holds: ``trust`` is the bundle clients are given, the current authority first."""

    authority: Authority
    trust: bytes
    server: KeyPair


class ContentionError(RuntimeError):
    """The Secret changed under us again and again."""


def renewed(material: Material | None, names: list[str], now: datetime) -> Material:
    """The material to use from now on: the same object while it is good, a new one otherwise.

    Args:
        material: what there is; None when nothing readable is.
        names: host names the server's certificate must carry.
        now: the time.
    """
    if material is None:
        authority = Authority.create("hcs-injector", days=AUTHORITY_DAYS, now=now)
        return Material(authority, authority.pair.certificate, authority.issue(names, days=SERVER_DAYS, now=now))
    authority, trust = material.authority, material.trust
    if authority.pair.lifetime()[1] - now < timedelta(days=2 * SERVER_DAYS):
        authority = Authority.create("hcs-injector", days=AUTHORITY_DAYS, now=now)
        trust = authority.pair.certificate + material.authority.pair.certificate
    elif authority.issued(material.server) and _good(material.server, names, now):
        return material
    return Material(authority, trust, authority.issue(names, days=SERVER_DAYS, now=now))


async def ensure(client: AsyncClient, place: Place, now: datetime) -> Material:
    """Read the Secret, or make and store what it should hold; and see that the API server trusts it.

    Raises:
        ApiError: the API server refuses us; 403 names the right that is missing.
        ContentionError: other writers kept winning.
    """
    for _ in range(_ATTEMPTS):
        try:
            secret: Secret | None = await client.get(Secret, place.secret, namespace=place.namespace)
        except ApiError as error:
            if error.status.code != 404:
                raise
            secret = None
        found = _read(secret)
        material = renewed(found, service_names(place.service, place.namespace), now)
        if material is not found and not await _write(client, place, secret, material):
            continue
        await _trust(client, place, material.trust)
        return material
    raise ContentionError(f"Secret {place.namespace}/{place.secret} changed {_ATTEMPTS} times while being written")


async def keep(
    client: AsyncClient,
    place: Place,
    folder: Path,
    *,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> None:
    """Keep Secret, ``caBundle`` and the served files right until cancelled; an API server that is down is waited for.

    Args:
        client: the connection.
        place: where the certificate belongs.
        folder: where ``tls.crt`` and ``tls.key`` are written.
        pause: how to wait between looks.
        clock: what time it is.
    """
    written: KeyPair | None = None
    while True:
        try:
            material = await ensure(client, place, clock())
            if material.server != written:
                material.server.write(folder, "tls")
                written = material.server
        except (ApiError, httpx2.HTTPError, ContentionError) as error:
            log.warning("certificate not checked: secret=%s/%s error=%r", place.namespace, place.secret, error)
        await pause(CHECK_SECONDS)


def _good(server: KeyPair, names: list[str], now: datetime) -> bool:
    first, last = server.lifetime()
    return first <= now < last - (last - first) / 3 and set(names) <= server.alternative_names()


def _read(secret: Secret | None) -> Material | None:
    """The Secret's content; None when it is empty or damaged, which is mended by writing anew."""
    data = secret.data or {} if secret is not None else {}
    try:
        parts = {key: base64.b64decode(data[key], validate=True) for key in ("ca.crt", "ca.key", "tls.crt", "tls.key")}
        trust = base64.b64decode(data["trust.crt"], validate=True)
        material = Material(
            Authority(KeyPair(parts["ca.crt"], parts["ca.key"])), trust, KeyPair(parts["tls.crt"], parts["tls.key"])
        )
        material.authority.issued(material.server)
    except (KeyError, ValueError):
        return None
    return material


async def _write(client: AsyncClient, place: Place, secret: Secret | None, material: Material) -> bool:
    """Store the material unless somebody else wrote meanwhile."""
    content = {
        "ca.crt": material.authority.pair.certificate,
        "ca.key": material.authority.pair.key,
        "trust.crt": material.trust,
        "tls.crt": material.server.certificate,
        "tls.key": material.server.key,
    }
    data = {key: base64.b64encode(value).decode() for key, value in content.items()}
    try:
        if secret is None:
            metadata = ObjectMeta(name=place.secret, namespace=place.namespace, labels=_LABELS)
            await client.create(Secret(metadata=metadata, type="Opaque", data=data))
        else:
            assert secret.metadata is not None
            body = {"metadata": {"resourceVersion": secret.metadata.resourceVersion}, "data": data}
            await client.patch(Secret, place.secret, body, namespace=place.namespace, patch_type=PatchType.MERGE)
    except ApiError as error:
        if error.status.code == 409:
            return False
        raise
    log.info("certificate made: secret=%s/%s until=%s", place.namespace, place.secret, material.server.lifetime()[1])
    return True


async def _trust(client: AsyncClient, place: Place, trust: bytes) -> None:
    """Write the bundle into every webhook of the configuration that lacks it."""
    configuration = await client.get(MutatingWebhookConfiguration, place.configuration)
    bundle = base64.b64encode(trust).decode()
    operations: list[dict[str, Any]] = []
    for index, webhook in enumerate(configuration.webhooks or ()):
        if webhook.clientConfig.caBundle != bundle:
            path = f"/webhooks/{index}"
            operations.append({"op": "test", "path": f"{path}/name", "value": webhook.name})
            operations.append({"op": "add", "path": f"{path}/clientConfig/caBundle", "value": bundle})
    if operations:
        await client.patch(MutatingWebhookConfiguration, place.configuration, operations, patch_type=PatchType.JSON)
        log.info("certificate trusted: configuration=%s", place.configuration)
