"""The two servers every contract is held against: the sandbox always, a real kube-apiserver where one is installed."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.clusters import Cluster, Object, eventually, free_port, sandbox
from tests.contract.harness import Api, Webhook, unique


@pytest.fixture(scope="session")
def sandbox_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """The sandbox's server."""
    with sandbox(tmp_path_factory.mktemp("sandbox")) as cluster, contextlib.closing(api_of(cluster)) as api:
        yield api


@pytest.fixture(scope="session")
def real_api(real_cluster: Cluster) -> Iterator[Api]:
    """A real server."""
    with contextlib.closing(api_of(real_cluster)) as api:
        yield api


def api_of(cluster: Cluster) -> Api:
    api = Api(cluster.kind, cluster.url, cluster.authority)
    api.compact = cluster.compact
    return api


@pytest.fixture(params=["sandbox", pytest.param("real", marks=pytest.mark.real)])
def api(request: pytest.FixtureRequest) -> Api:
    """Each server; one that has our ``config/`` from other tests is cleared of it before."""
    if request.param == "real":
        request.getfixturevalue("real_cluster").withdraw()
    api: Api = request.getfixturevalue(f"{request.param}_api")
    return api


@pytest.fixture
def space(api: Api) -> str:
    """The path of a fresh namespace."""
    name = unique("space")
    labels = {"contract": name}
    api.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    return f"/api/v1/namespaces/{name}"


@pytest.fixture
def pods(space: str) -> str:
    return f"{space}/pods"


@pytest.fixture
def hook(api: Api, space: str) -> Iterator[Callable[..., Webhook]]:
    """Installs a mutating (or validating) webhook for pods of the test's namespace and removes it afterwards."""
    with contextlib.ExitStack() as stack:

        def install(
            answer: Callable[[Object], Object], *, name: str = "", kind: str = "mutating", **fields: Any
        ) -> Webhook:
            made = Webhook(answer)
            stack.callback(made.close)
            install_configuration(made.url, made.authority.pair.certificate, name=name, kind=kind, **fields)
            return made

        def install_configuration(
            url: str, authority: bytes, *, name: str = "", kind: str = "mutating", **fields: Any
        ) -> None:
            name = name or unique("hook")
            path = f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations"
            rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
            webhook = {
                "name": f"{name}.contract.example",
                "clientConfig": {"url": f"{url}/mutate", "caBundle": base64.b64encode(authority).decode()},
                "rules": [rule],
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "namespaceSelector": {"matchLabels": {"contract": space.rpartition("/")[2]}},
                **fields,
            }
            api.create(path, {"metadata": {"name": name}, "webhooks": [webhook]})
            stack.callback(lambda: api.delete(f"{path}/{name}"))
            if api.is_real:
                wait_for_the_cache(path)

        def wait_for_the_cache(path: str) -> None:
            """A real server reads configurations through a cache, in order: one that shows when it is in force."""
            name = unique("last")
            rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
            webhook = {
                "name": f"{name}.contract.example",
                "clientConfig": {"url": f"https://127.0.0.1:{free_port()}/nobody"},
                "rules": [rule],
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "namespaceSelector": {"matchLabels": {"contract": space.rpartition("/")[2]}},
            }
            api.create(path, {"metadata": {"name": name}, "webhooks": [webhook]})
            probe = {"metadata": {"name": "probe"}}
            eventually(lambda: api.post(f"{space}/configmaps", probe, dryRun="All").status_code == 500)
            api.delete(f"{path}/{name}")

        install.configuration = install_configuration  # type: ignore[attr-defined]
        yield install
