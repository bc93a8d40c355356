"""A kubeconfig that cannot be used is told of in one sentence, whatever is wrong with it."""

import asyncio
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hcs.kube.connection import ApiUnreachableError, connect

USABLE = {
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
    "users": [{"name": "u", "user": {"token": "t"}}],
    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    "current-context": "x",
}
CASES: dict[str, tuple[dict[str, Any], str | None, str]] = {
    "no such context": ({}, "other", "other"),
    "no current context": ({"current-context": None}, None, "context"),
    "no user": ({"contexts": [{"name": "x", "context": {"cluster": "c"}}]}, None, "names no user"),
    "an authority that is not there": (
        {"clusters": [{"name": "c", "cluster": {"server": "https://h", "certificate-authority": "/nowhere/ca.crt"}}]},
        None,
        "No such file",
    ),
    "an authority that is no base64": (
        {"clusters": [{"name": "c", "cluster": {"server": "https://h", "certificate-authority-data": "a"}}]},
        None,
        "certificate-authority-data is no base64",
    ),
    "an authority that is no certificate": (
        {"clusters": [{"name": "c", "cluster": {"server": "https://h", "certificate-authority-data": "aGVsbG8="}}]},
        None,
        "certificate|PEM|X509",
    ),
    "a certificate without its key": (
        {"users": [{"name": "u", "user": {"client-certificate": "/nowhere/tls.crt"}}]},
        None,
        "belong together",
    ),
    "clusters of another shape": ({"clusters": "none"}, None, "."),
    "a context of another shape": ({"contexts": [7]}, None, "."),
    "no contexts": ({"contexts": None}, None, "."),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_wrong_with_a_kubeconfig_is_said(name: str, tmp_path: Path) -> None:
    change, context, what = CASES[name]
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump({**USABLE, **change}))
    with pytest.raises(ApiUnreachableError) as caught:
        connect(str(path), context)
    said = str(caught.value)
    assert said.startswith(f"no usable kubeconfig {path}: ")
    assert re.search(what, said.removeprefix(f"no usable kubeconfig {path}: "))
    assert "\n" not in said


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "a: [", "\x00", "7"])
def test_a_file_that_is_no_kubeconfig_is_said_to_be_none(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(ApiUnreachableError, match="no usable kubeconfig"):
        connect(str(path))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ApiUnreachableError, match=r"no usable kubeconfig .*/missing"):
        connect(str(tmp_path / "missing"))


def test_a_usable_one_makes_a_client(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(USABLE))
    client = connect(str(path), "x")
    assert client.config.cluster.server == "http://127.0.0.1:1"
    asyncio.run(client.close())


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["name", "cluster", "user"]), inner),
    max_leaves=6,
)


@given(st.sampled_from([*USABLE]), ANYTHING)
def test_nothing_in_a_kubeconfig_ends_in_another_error(field: str, value: Any) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump({**USABLE, field: value}, file)
        file.flush()
        try:
            client = connect(file.name)
        except ApiUnreachableError:
            return
        asyncio.run(client.close())
