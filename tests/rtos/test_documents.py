"""The three forms of a document, and configuration files."""

from typing import Any

import pytest

from hcs.model.refusals import RefusedError
from hcs.rtos.annotations import PREFIX
from hcs.rtos.configuration import Config, read_config_text
from hcs.rtos.documents import read_document
from hcs.rtos.hosts import Host
from hcs.rtos.resources import Resources


def pod(requests: dict[str, Any] | None, limits: dict[str, Any] | None) -> dict[str, Any]:
    resources = {key: value for key, value in (("requests", requests), ("limits", limits)) if value is not None}
    return {
        "kind": "Pod",
        "metadata": {"annotations": {f"{PREFIX}container.os": "zephyr"}},
        "spec": {"containers": [{"name": "a", "resources": resources}]},
    }


@pytest.mark.parametrize(
    ("requests", "limits", "resources"),
    [
        pytest.param(
            {"cpu": "500m"},
            {"cpu": "1", "memory": "512Mi"},
            Resources(shares=512, quota=100_000, period=100_000, limit=512 << 20),
            id="as-the-kubelet-does",
        ),
        pytest.param(None, {"cpu": 2}, Resources(shares=2048, quota=200_000, period=100_000), id="limit-is-request"),
        pytest.param(None, None, Resources(shares=2), id="best-effort"),
        pytest.param({"cpu": "0"}, {"cpu": "1m"}, Resources(shares=2, quota=1000, period=100_000), id="least"),
        pytest.param({"cpu": "1000"}, None, Resources(shares=262_144), id="most"),
        pytest.param({"memory": "1Gi"}, {"memory": "1.5G"}, Resources(shares=2, limit=1_500_000_000), id="memory"),
        pytest.param(None, {"memory": "1e3"}, Resources(shares=2, limit=1000), id="exponent"),
        pytest.param(None, {"memory": "100m"}, Resources(shares=2, limit=1), id="rounded-up"),
    ],
)
def test_a_pod_is_what_the_kubelet_makes_of_it(
    requests: dict[str, Any] | None, limits: dict[str, Any] | None, resources: Resources
) -> None:
    (one,) = read_document(pod(requests, limits), Config(), Host())
    assert one.resources == resources
    assert one.name == "a"


def test_an_oci_config_is_read() -> None:
    raw = {
        "ociVersion": "1.0.2",
        "annotations": {"a/b": "c"},
        "linux": {"resources": {"cpu": {"shares": 5}, "memory": {"limit": 6}}},
    }
    (one,) = read_document(raw, Config(), Host())
    assert (one.resources, one.annotations) == (Resources(shares=5, limit=6), {"a/b": "c"})


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param([], id="list"),
        pytest.param(None, id="nothing"),
        pytest.param({"kind": "Service"}, id="service"),
        pytest.param({"kind": "Pod", "spec": {}}, id="no-containers"),
        pytest.param(pod({"cpu": "many"}, None), id="quantity"),
        pytest.param(pod({"cpu": True}, None), id="true"),
        pytest.param(pod(None, {"cpu": "-1"}), id="negative"),
        pytest.param({"cpu": [1]}, id="cpu-list"),
        pytest.param({"cpu": {"cpus": 0}}, id="cpus-number"),
        pytest.param({"ann": {"x": []}}, id="annotation-list"),
        pytest.param({"mode": "loose"}, id="mode"),
        pytest.param({"host": {"pcpus": -1}}, id="host"),
        pytest.param({"host": {"cpus": 1}}, id="host-key"),
        pytest.param({"config": {"x": 1}}, id="config-key"),
        pytest.param({"memory": {}}, id="long-word"),
        pytest.param({"mem": {"limit": float("nan")}}, id="nan"),
        pytest.param({"mem": {"limit": float("inf")}}, id="infinity"),
        pytest.param({"linux": {"resources": {"hugepageLimits": 5}}}, id="hugepages"),
        pytest.param({"ociVersion": "1", "annotations": {"a": 1}}, id="annotation-number"),
    ],
)
def test_what_is_no_document_is_refused(raw: Any) -> None:
    with pytest.raises(RefusedError):
        read_document(raw, Config(), Host())


def test_files_add_up_and_a_missing_key_keeps_its_value() -> None:
    first = read_config_text('[micrun]\ncontainer_minmem = 24\npause_image = "p:1"\n', Config(), name="a")
    second = read_config_text("[runtime]\nmax_container_vcpu=4 ; few\nstate_dir = /run/x\nother=1\n", first, name="b")
    third = read_config_text("shared_cpu_pool = T\n", second, name="c")
    assert (third.container_minmem, third.pause_image, third.max_container_vcpu) == (24, "p:1", 4)
    assert (third.state_dir, third.shared_cpu_pool) == ("/run/x", True)


@pytest.mark.parametrize("text", ["container_minmem = many", "shared_cpu_pool = 2", "[a\nx", "max_container_vcpu = 0"])
def test_a_file_that_cannot_be_read_is_named(text: str) -> None:
    with pytest.raises(RefusedError, match=r"micrun\.conf"):
        read_config_text(text, Config(), name="micrun.conf")
