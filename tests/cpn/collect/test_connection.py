"""How to reach a cluster, and what is said when its kubeconfig is not usable."""

from pathlib import Path

import pytest
import yaml

from hcs.cpn.collect.connection import connect_site
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


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(RefusedError, match=r"kubeconfig /nonexistent/config is not usable: .*No such file"):
        connect_site(site(kubeconfig="/nonexistent/config"))
