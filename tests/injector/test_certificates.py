"""The webhook's own certificate: renewed in time, one for all replicas, and trusted before it is served."""

import asyncio
import base64
import itertools
import logging
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from lightkube import ApiError, AsyncClient
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.admissionregistration_v1 import MutatingWebhookConfiguration
from lightkube.resources.core_v1 import Secret

from hcs.injector.certificates import AUTHORITY_DAYS, SERVER_DAYS, ContentionError, Place, ensure, keep, renewed
from hcs.kube.connection import connect
from hcs.process.certificates import Authority, KeyPair, service_names
from hcs.sandbox.apiserver.server import ApiServer, Settings, running

NOW = datetime(2030, 1, 1, tzinfo=UTC)
NAMES = service_names("hcs-injector", "hcs-system")
DAY = timedelta(days=1)
_numbers = itertools.count()


class TestRenewal:
    """Pure: what there is, and what time it is, decide."""

    first = renewed(None, NAMES, NOW)

    def test_what_is_made_is_good_for_two_thirds_of_its_life(self) -> None:
        assert renewed(self.first, NAMES, NOW) is self.first
        assert renewed(self.first, NAMES, NOW + (SERVER_DAYS * 2 // 3 - 1) * DAY) is self.first

    def test_in_its_last_third_it_is_renewed_by_the_same_authority(self) -> None:
        later = renewed(self.first, NAMES, NOW + (SERVER_DAYS * 2 // 3 + 1) * DAY)
        assert later.server != self.first.server
        assert (later.authority, later.trust) == (self.first.authority, self.first.trust)
        assert later.authority.issued(later.server)

    def test_an_authority_near_its_end_stays_trusted_beside_its_successor(self) -> None:
        late = NOW + (AUTHORITY_DAYS - SERVER_DAYS) * DAY
        later = renewed(self.first, NAMES, late)
        assert later.authority != self.first.authority
        assert later.trust == later.authority.pair.certificate + self.first.authority.pair.certificate
        assert renewed(later, NAMES, late) is later

    def test_another_name_needs_another_certificate(self) -> None:
        other = renewed(self.first, service_names("webhook", "elsewhere"), NOW)
        assert "webhook.elsewhere.svc" in other.server.alternative_names()
        assert other.authority == self.first.authority

    def test_a_certificate_from_the_future_is_replaced(self) -> None:
        assert renewed(self.first, NAMES, NOW - 30 * DAY) is not self.first

    def test_a_certificate_of_somebody_else_is_replaced(self) -> None:
        foreign = msgspec.structs.replace(self.first, server=Authority.create("x", now=NOW).issue(NAMES, now=NOW))
        assert self.first.authority.issued(renewed(foreign, NAMES, NOW).server)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with running(Settings(tmp_path_factory.mktemp("sandbox"))) as server:
        yield server


@pytest.fixture
def place(server: ApiServer) -> Place:
    """A configuration of its own for each test, with two webhooks."""
    name = f"injector-{next(_numbers)}"
    return Place("hcs-system", "hcs-injector", f"{name}-tls", name)


def told(server: ApiServer, folder: Path, story: Callable[[AsyncClient], Awaitable[Any]]) -> Any:
    """Run a story with a client of the server."""
    (folder / "kubeconfig").write_text(server.kubeconfig("admin-token"))

    async def telling() -> Any:
        async with connect(str(folder / "kubeconfig")) as client:
            return await story(client)

    return asyncio.run(telling())


async def configure(client: AsyncClient, place: Place) -> None:
    webhooks = [
        {
            "name": f"{part}.injector.ai.compute",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "clientConfig": {"service": {"namespace": place.namespace, "name": place.service}},
            "rules": [{"apiGroups": ["x.io"], "apiVersions": ["v1"], "resources": ["xs"], "operations": ["CREATE"]}],
        }
        for part in ("pods", "tasks")
    ]
    configuration = MutatingWebhookConfiguration.from_dict(
        {"metadata": {"name": place.configuration}, "webhooks": webhooks}
    )
    await client.create(configuration)


async def trusted(client: AsyncClient, place: Place) -> set[str]:
    configuration = await client.get(MutatingWebhookConfiguration, place.configuration)
    return {webhook.clientConfig.caBundle or "" for webhook in configuration.webhooks or ()}


async def stored(client: AsyncClient, place: Place) -> dict[str, str]:
    secret = await client.get(Secret, place.secret, namespace=place.namespace)
    return dict(secret.data or {})


def test_the_first_replica_makes_it_and_the_api_server_is_told(server: ApiServer, place: Place, tmp_path: Path) -> None:
    async def story(client: AsyncClient) -> None:
        await configure(client, place)
        material = await ensure(client, place, NOW)
        assert set(await stored(client, place)) == {"ca.crt", "ca.key", "trust.crt", "tls.crt", "tls.key"}
        assert await trusted(client, place) == {base64.b64encode(material.trust).decode()}

    told(server, tmp_path, story)


def test_replicas_that_start_together_end_with_one_certificate(server: ApiServer, place: Place, tmp_path: Path) -> None:
    async def story(client: AsyncClient) -> None:
        await configure(client, place)
        found = await asyncio.gather(*(ensure(client, place, NOW) for _ in range(4)))
        assert len({material.server.certificate for material in found}) == 1
        assert await trusted(client, place) == {base64.b64encode(found[0].trust).decode()}

    told(server, tmp_path, story)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(None, id="empty-as-installed"),
        pytest.param({"tls.crt": "AAAA"}, id="half"),
        pytest.param(dict.fromkeys(("ca.crt", "ca.key", "trust.crt", "tls.crt", "tls.key"), "AAAA"), id="garbage"),
        pytest.param(dict.fromkeys(("ca.crt", "ca.key", "trust.crt", "tls.crt", "tls.key"), ""), id="blank"),
    ],
)
def test_an_empty_or_damaged_secret_is_written_anew(
    server: ApiServer, place: Place, tmp_path: Path, data: dict[str, str] | None
) -> None:
    async def story(client: AsyncClient) -> None:
        await configure(client, place)
        metadata = ObjectMeta(name=place.secret, namespace=place.namespace)
        await client.create(Secret(metadata=metadata, type="Opaque", data=data))
        material = await ensure(client, place, NOW)
        assert base64.b64decode((await stored(client, place))["tls.key"]) == material.server.key
        assert await ensure(client, place, NOW) == material, "and then kept"

    told(server, tmp_path, story)


def test_an_overwritten_bundle_is_put_right(server: ApiServer, place: Place, tmp_path: Path) -> None:
    async def story(client: AsyncClient) -> None:
        await configure(client, place)
        material = await ensure(client, place, NOW)
        await client.delete(MutatingWebhookConfiguration, place.configuration)
        await configure(client, place)
        assert await trusted(client, place) == {""}
        await ensure(client, place, NOW)
        assert await trusted(client, place) == {base64.b64encode(material.trust).decode()}

    told(server, tmp_path, story)


def test_a_secret_that_never_holds_still_is_given_up_on(server: ApiServer, place: Place, tmp_path: Path) -> None:
    """A writer that always wins between our read and our write: each of our writes is a conflict, none is forced."""

    async def story(client: AsyncClient) -> None:
        await configure(client, place)
        metadata = ObjectMeta(name=place.secret, namespace=place.namespace)
        await client.create(Secret(metadata=metadata, type="Opaque"))
        with pytest.raises(ContentionError, match="changed 5 times"):
            await ensure(_Overtaken(client, place), place, NOW)  # type: ignore[arg-type]
        assert set(await stored(client, place)) == {"turn"}

    told(server, tmp_path, story)


class _Overtaken:
    """A real client, beside which somebody else writes the Secret after each read."""

    def __init__(self, client: AsyncClient, place: Place) -> None:
        self._client, self._place = client, place

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def get(self, kind: Any, name: str, **where: Any) -> Any:
        found = await self._client.get(kind, name, **where)
        if kind is Secret:
            turn = {"data": {"turn": base64.b64encode(str(next(_numbers)).encode()).decode()}}
            await self._client.patch(Secret, name, turn, namespace=self._place.namespace)
        return found


def test_a_configuration_that_is_missing_is_said(server: ApiServer, place: Place, tmp_path: Path) -> None:
    with pytest.raises(ApiError, match=place.configuration):
        told(server, tmp_path, lambda client: ensure(client, place, NOW))


def test_the_served_files_follow_the_secret_and_outlive_an_api_server_that_refuses(
    server: ApiServer, place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    times = [NOW, NOW, NOW + (SERVER_DAYS * 2 // 3 + 1) * DAY, NOW + SERVER_DAYS * DAY]
    served: list[bytes] = []

    async def story(client: AsyncClient) -> None:
        clock = iter(times)

        async def pause(seconds: float) -> None:
            assert seconds > 0
            served.append((tmp_path / "tls.crt").read_bytes() if (tmp_path / "tls.crt").exists() else b"")
            if len(served) == 1:
                await configure(client, place)
            if len(served) == len(times):
                raise asyncio.CancelledError

        with pytest.raises(asyncio.CancelledError):
            await keep(client, place, tmp_path, pause=pause, clock=lambda: next(clock))
        assert base64.b64decode((await stored(client, place))["tls.crt"]) == served[-1]

    with caplog.at_level(logging.WARNING):
        told(server, tmp_path, story)
    assert "certificate not checked" in caplog.text, "at first there was no configuration to be trusted by"
    assert served[0] == b"", "and nothing is served that the API server was not told of"
    assert served[1] not in (b"", served[2])
    assert served[2] == served[3], "renewed once, at two thirds"
    assert KeyPair(served[2], b"").lifetime()[1] > NOW + SERVER_DAYS * DAY
