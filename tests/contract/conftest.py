"""The two servers every contract is held against: the sandbox always, a real kube-apiserver where one is installed."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.contract.harness import TOKENS, Api, Object, Webhook, real_binaries, real_cluster, unique

from hcs.sandbox.apiserver import Settings, running

NO_REAL_SERVER = "no etcd and kube-apiserver in KUBEBUILDER_ASSETS or /usr/local/kubebuilder/bin"


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Api]]:
    """Starts each server when the first test asks for it."""
    started: dict[str, Api] = {}
    with ExitStack() as stack:

        def start(kind: str) -> Api:
            if kind not in started:
                folder = tmp_path_factory.mktemp(kind)
                if kind == "real":
                    binaries = real_binaries()
                    if binaries is None:
                        pytest.skip(NO_REAL_SERVER)
                    started[kind] = stack.enter_context(real_cluster(binaries, folder))
                else:
                    started[kind] = stack.enter_context(sandbox(folder))
            return started[kind]

        yield start


@contextmanager
def sandbox(folder: Path) -> Iterator[Api]:
    """The sandbox's server with the same users as the real one."""
    (folder / "tokens.csv").write_text(TOKENS)
    settings = Settings(folder, tokens=folder / "tokens.csv", pod_logs=folder / "logs", bookmark_seconds=0.5)
    with running(settings) as server:
        api = Api("sandbox", server.url, folder / "ca.crt")
        api.compact = server.compact
        yield api
        api.close()


@pytest.fixture(params=["sandbox", pytest.param("real", marks=pytest.mark.real)])
def api(request: pytest.FixtureRequest, servers: Callable[[str], Api]) -> Api:
    return servers(request.param)


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
    with ExitStack() as stack:

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
                time.sleep(1.0)  # a real server reads configurations through a cache

        install.configuration = install_configuration  # type: ignore[attr-defined]
        yield install
