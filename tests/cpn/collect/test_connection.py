"""How to reach a cluster, and what is said when its kubeconfig is not usable."""

import asyncio
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx2
import pytest
import yaml

from hcs.cpn.collect.connection import connect_site
from hcs.kube.resources import Node
from hcs.model.refusals import RefusedError
from hcs.store.clusters import ClusterConfig

CONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [
        {"name": "a", "cluster": {"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": True}},
        {"name": "b", "cluster": {"server": "https://127.0.0.1:2", "insecure-skip-tls-verify": True}},
    ],
    "users": [{"name": "u", "user": {"token": "secret"}}],
    "contexts": [
        {"name": "a", "context": {"cluster": "a", "user": "u"}},
        {"name": "b", "context": {"cluster": "b", "user": "u"}},
        {"name": "lost", "context": {"cluster": "nowhere", "user": "u"}},
        {"name": "anonymous", "context": {"cluster": "a"}},
    ],
    "current-context": "a",
}
TEXT = yaml.safe_dump(CONFIG)
PROXY = "https://10.9.8.7:6443/k8s"
NUMBER = [{"name": "u", "user": {"token": 5}}]


def site(**changes: str) -> ClusterConfig:
    return ClusterConfig("east", **changes)


@pytest.mark.parametrize(
    ("east", "server"),
    [
        pytest.param(site(kubeconfig_text=TEXT), "https://127.0.0.1:1", id="current-context"),
        pytest.param(site(kubeconfig_text=TEXT, context="b"), "https://127.0.0.1:2", id="named-context"),
        pytest.param(
            site(kubeconfig_text=TEXT, server="https://10.9.8.7:6443/k8s"),
            "https://10.9.8.7:6443/k8s",
            id="override",
        ),
    ],
)
def test_a_cluster_is_reached_as_its_entry_says(east: ClusterConfig, server: str) -> None:
    client = connect_site(east)
    assert client.config.cluster.server == server
    assert client.config.user is not None
    assert client.config.user.token == "secret"


def test_a_file_is_read_and_its_neighbours_are_found(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(TEXT)
    assert connect_site(site(kubeconfig=str(path))).config.cluster.server == "https://127.0.0.1:1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("- a\n- b", "it is no mapping", id="a-list"),
        pytest.param("{", "expected", id="no-yaml"),
        pytest.param("a: 1", "it lacks 'clusters'", id="empty"),
        pytest.param("\x00", "special characters", id="binary"),
        pytest.param(yaml.safe_dump({**CONFIG, "current-context": "lost"}), "it lacks 'nowhere'", id="no-such-cluster"),
        pytest.param(yaml.safe_dump({**CONFIG, "current-context": "anonymous"}), "names no user", id="no-user"),
        pytest.param(yaml.safe_dump({**CONFIG, "current-context": "c"}), "Context 'c' not found", id="no-such-context"),
        pytest.param(yaml.safe_dump({**CONFIG, "clusters": "x"}), "not usable", id="wrong-shape"),
        pytest.param(yaml.safe_dump({**CONFIG, "users": NUMBER}), "Expected `str", id="wrong-type"),
    ],
)
def test_what_is_wrong_with_a_kubeconfig_is_said(text: str, message: str) -> None:
    with pytest.raises(RefusedError) as caught:
        connect_site(site(kubeconfig_text=text))
    (refusal,) = caught.value.refusals
    assert refusal.reason == "BadKubeconfig"
    assert refusal.message.startswith(
        "cluster east cannot be connected to, the kubeconfig given for it is not usable: "
    )
    assert message in refusal.message


def changed(cluster: dict[str, object], user: dict[str, object]) -> ClusterConfig:
    """The first cluster of the file with other fields; the second one has what is not understood, and is not asked."""
    odd = {"server": "https://127.0.0.1:2", "tls-server-name": "other"}
    return site(
        kubeconfig_text=yaml.safe_dump(
            {
                **CONFIG,
                "clusters": [
                    {"name": "a", "cluster": {"server": "https://127.0.0.1:1", **cluster}},
                    {"name": "b", "cluster": odd},
                ],
                "users": [{"name": "u", "user": {"token": "secret", **user}}],
            }
        )
    )


@pytest.mark.parametrize(
    ("cluster", "user", "words"),
    [
        pytest.param({"tls-server-name": "api.internal"}, {}, "tls-server-name is not understood here", id="name"),
        pytest.param({}, {"as": "somebody"}, "as is not understood here", id="impersonation"),
        pytest.param({}, {"as-groups": ["g"]}, "as-groups is not understood here", id="groups"),
        pytest.param({"proxy-url": "gopher://x"}, {}, "proxy-url 'gopher://x'", id="no-proxy"),
    ],
)
def test_what_would_be_passed_over_in_silence_is_refused(
    cluster: dict[str, object], user: dict[str, object], words: str
) -> None:
    """Acting as another account than the file says, or trusting another name, is worse than not acting."""
    with pytest.raises(RefusedError) as caught:
        connect_site(changed(cluster, user))
    assert words in str(caught.value)


def test_the_proxy_that_a_kubeconfig_names_is_asked_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")

    class Proxy(BaseHTTPRequestHandler):
        def do_CONNECT(self) -> None:
            seen.append(self.path)
            self.send_error(502)

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    seen: list[str] = []
    with HTTPServer(("127.0.0.1", 0), Proxy) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:

            async def ask() -> None:
                client = connect_site(changed({"proxy-url": f"http://127.0.0.1:{server.server_port}"}, {}))
                with pytest.raises(httpx2.HTTPError):
                    await client.get(Node, "n1")
                await client.close()

            asyncio.run(ask())
        finally:
            server.shutdown()
            thread.join()
    assert seen == ["127.0.0.1:1"]


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(RefusedError, match=r"kubeconfig /nonexistent/config is not usable: .*No such file"):
        connect_site(site(kubeconfig="/nonexistent/config"))
