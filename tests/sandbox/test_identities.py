"""Who may speak to the API server, and what a person's kubeconfig looks like before, during and after."""

import csv
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hcs.sandbox.identities import (
    CONTEXT,
    Identity,
    kubeconfig,
    make_identities,
    merge_context,
    remove_context,
    token_file,
    write_kubeconfig,
)

SOMEBODY = Identity("admin", "sandbox-admin", ("system:masters",), "secret")
OURS = kubeconfig(SOMEBODY, "https://127.0.0.1:6443", b"PEM")


def config(*contexts: str, current: str = "") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {"colors": True},
        "clusters": [{"name": f"{name}-cluster", "cluster": {"server": f"https://{name}"}} for name in contexts],
        "users": [{"name": f"{name}-user", "user": {"token": name}} for name in contexts],
        "contexts": [
            {"name": name, "context": {"cluster": f"{name}-cluster", "user": f"{name}-user"}} for name in contexts
        ],
        "current-context": current,
    }


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_tokens_are_new_each_time_and_the_file_is_one_that_an_api_server_reads() -> None:
    first, second = make_identities(), make_identities()
    assert not {i.token for i in first.values()} & {i.token for i in second.values()}
    rows = list(csv.reader(token_file(first).splitlines()))
    assert [row[0] for row in rows] == [identity.token for identity in first.values()]
    healer = next(row for row in rows if row[2] == "healer")
    assert healer[1] == "system:serviceaccount:hcs-system:hcs-healer"
    assert "system:serviceaccounts:hcs-system" in healer[3].split(",")


@given(st.lists(st.sampled_from(["work", "home", "kind-x", "prod"]), unique=True), st.data())
def test_coming_and_going_leaves_a_persons_file_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, contexts: list[str], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("kube") / "config"
    original = config(*contexts, current=data.draw(st.sampled_from([*contexts, ""])))
    if contexts:
        path.write_text(yaml.safe_dump(original))
    before = merge_context(path, OURS)
    during = yaml.safe_load(path.read_text())
    assert during["current-context"] == CONTEXT
    assert {context["name"] for context in during["contexts"]} == {*contexts, CONTEXT}
    assert merge_context(path, OURS) is None, "a second time finds itself there"
    remove_context(path, CONTEXT, before)
    if contexts:
        assert yaml.safe_load(path.read_text()) == original
    else:
        assert not path.exists()


def test_a_person_who_switched_meanwhile_stays_there(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config("work", "home", current="work")))
    before = merge_context(path, OURS)
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"current-context": "home"}))
    remove_context(path, CONTEXT, before)
    assert yaml.safe_load(path.read_text())["current-context"] == "home"


def test_a_new_file_is_readable_for_its_owner_alone_and_an_old_one_keeps_its_mode(tmp_path: Path) -> None:
    fresh, shared = tmp_path / "sub" / "config", tmp_path / "shared"
    merge_context(fresh, OURS)
    assert mode(fresh) == 0o600
    shared.write_text(yaml.safe_dump(config("work")))
    shared.chmod(0o640)
    merge_context(shared, OURS)
    assert mode(shared) == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["shared", "sub"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text(yaml.safe_dump(config("work", current="work")))
    link.symlink_to(target)
    merge_context(link, OURS)
    assert link.is_symlink()
    assert yaml.safe_load(target.read_text())["current-context"] == CONTEXT


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("precious")
    with pytest.raises(yaml.YAMLError):
        write_kubeconfig(path, {"clusters": object()})
    assert path.read_text() == "precious"


def test_removing_from_a_file_that_is_gone_does_nothing(tmp_path: Path) -> None:
    remove_context(tmp_path / "none", CONTEXT, None)
    assert list(tmp_path.iterdir()) == []
