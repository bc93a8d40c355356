"""A container's variables: Kubernetes' expansion, and the move into a private tree."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sandbox.kubelet.scene import pod_with

from hcs.model.pods import Container, EnvVar
from hcs.sandbox.kubelet.environment import (
    DEFAULT_PATH,
    ConfigurationError,
    declared,
    expand,
    field_value,
    moved,
    preload_list,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("$(A)", "1", id="known"),
        pytest.param("x$(A)y$(B)", "x1y2", id="several"),
        pytest.param("$(NO)", "$(NO)", id="unknown-stays"),
        pytest.param("$$(A)", "$(A)", id="escaped"),
        pytest.param("$$$(A)", "$1", id="escaped-then-known"),
        pytest.param("$A $", "$A $", id="no-parentheses"),
        pytest.param("$(A", "$(A", id="unclosed"),
    ],
)
def test_references_expand_as_in_kubernetes(text: str, expected: str) -> None:
    assert expand(text, {"A": "1", "B": "2"}) == expected


@given(st.text(alphabet="ab/:. =", max_size=30))
def test_text_without_a_dollar_is_untouched(text: str) -> None:
    assert expand(text, {"a": "b"}) == text


POD = pod_with({}, annotations={"ai.compute/allocation": "{}"})


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param("metadata.name", "web", id="name"),
        pytest.param("metadata.namespace", "default", id="namespace"),
        pytest.param("metadata.uid", "0a1b2c3d", id="uid"),
        pytest.param("spec.nodeName", "node-1", id="node"),
        pytest.param("status.podIP", "127.0.0.1", id="address"),
        pytest.param("metadata.annotations['ai.compute/allocation']", "{}", id="annotation"),
        pytest.param("metadata.annotations['env.ai.compute/X']", "", id="missing-is-empty"),
        pytest.param("metadata.annotations", 'ai.compute/allocation="{}"', id="all-annotations"),
    ],
)
def test_fields_of_the_pod(path: str, expected: str) -> None:
    assert field_value(POD, path, host_ip="127.0.0.1") == expected


def test_an_unknown_field_is_refused_with_what_is_known() -> None:
    with pytest.raises(ConfigurationError, match=r"spec\.hostname.*metadata\.name"):
        field_value(POD, "spec.hostname", host_ip="127.0.0.1")


def test_the_spec_wins_over_the_image_and_later_variables_see_earlier_ones() -> None:
    container = Container(
        name="c",
        env=[
            EnvVar(name="A", value="1"),
            EnvVar(name="B", value="$(A)$(IMAGE)"),
            EnvVar(name="N", valueFrom={"fieldRef": {"fieldPath": "metadata.name"}}),
            EnvVar(name="C", value="$(N)-$(B)"),
        ],
    )
    variables = declared(POD, container, {"A": "0", "IMAGE": "i"}, host_ip="127.0.0.1")
    assert variables["A"] == "1"
    assert variables["B"] == "1$(IMAGE)", "the image's variables are not visible to the spec"
    assert variables["C"] == "web-1$(IMAGE)"
    assert variables["PATH"] == DEFAULT_PATH
    assert variables["HOSTNAME"] == "web"


def test_a_source_the_kubelet_does_not_know_is_refused() -> None:
    container = Container(name="c", env=[EnvVar(name="S", valueFrom={"secretKeyRef": {"name": "s", "key": "k"}})])
    with pytest.raises(ConfigurationError, match=r"cannot set S.*fieldRef"):
        declared(POD, container, {}, host_ip="127.0.0.1")


IN_CONTAINER = {"/usr/bin", "/drv/lib64", "/opt/hcs/lib.so", "/models", "/etc/hcs/quota"}


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        pytest.param("LD_LIBRARY_PATH", "/drv/lib64:/host/lib", "/r/drv/lib64:/host/lib", id="each-entry-by-itself"),
        pytest.param("PATH", "/usr/bin::rel", "/r/usr/bin::rel", id="empty-and-relative-stay"),
        pytest.param("PYTHONPATH", "/models", "/r/models", id="python"),
        pytest.param("MODEL_DIR", "/models", "/r/models", id="any-variable-that-is-one-path"),
        pytest.param("NOTE", "see /models", "see /models", id="text-stays"),
        pytest.param("LIST", "/models:/models", "/models:/models", id="lists-only-where-known"),
        pytest.param("ROOT", "/", "/", id="the-root-itself-stays"),
    ],
)
def test_paths_that_exist_in_the_container_move(name: str, value: str, expected: str) -> None:
    assert moved({name: value}, root="/r", exists=IN_CONTAINER.__contains__)[name] == expected


def test_the_preload_file_becomes_ld_preload_before_the_users_own() -> None:
    variables = moved(
        {"LD_PRELOAD": "/usr/lib/theirs.so"},
        root="/r",
        exists=IN_CONTAINER.__contains__,
        preloads=["/opt/hcs/lib.so"],
        quota="/node/state/quota",
    )
    assert variables["LD_PRELOAD"] == "/r/opt/hcs/lib.so:/usr/lib/theirs.so"
    assert variables["HCS_QUOTA_FILE"] == "/node/state/quota", "the file itself, not a link to it"
    assert variables["HCS_ROOT"] == "/r"


def test_a_library_to_preload_that_is_missing_stops_the_start() -> None:
    with pytest.raises(ConfigurationError, match=r"/gone\.so"):
        moved({}, root="/r", exists=IN_CONTAINER.__contains__, preloads=["/gone.so"])


def test_a_quota_that_nobody_mounted_cannot_be_named_by_the_user() -> None:
    variables = moved({"HCS_QUOTA_FILE": "/tmp/mine", "HCS_ROOT": "/"}, root="/r", exists=lambda path: False)
    assert "HCS_QUOTA_FILE" not in variables
    assert variables["HCS_ROOT"] == "/r"


def test_the_preload_file_is_read_as_the_loader_reads_it() -> None:
    assert preload_list("/a.so /b.so\n# none\n/c.so:/d.so # last\n") == ["/a.so", "/b.so", "/c.so", "/d.so"]
