"""Patches whose fine print only shows in isolation; the rest is in the contract tests."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcs.sandbox.apiserver.patch import apply_configuration, apply_merge_patch, apply_strategic_patch
from hcs.sandbox.apiserver.status import ApiError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


def containers(*names: str) -> dict[str, Any]:
    return {"containers": [{"name": name, "image": f"{name}:1"} for name in names]}


def names(document: dict[str, Any]) -> list[str]:
    return [item["name"] for item in document["containers"]]


def test_items_merge_by_key() -> None:
    patch = {"containers": [{"name": "b", "image": "b:2"}]}
    merged = apply_strategic_patch(containers("a", "b"), patch)
    assert merged["containers"] == [{"name": "a", "image": "a:1"}, {"name": "b", "image": "b:2"}]


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ({"containers": [{"name": "a", "$patch": "delete"}]}, ["b"]),
        ({"containers": [{"name": "none", "$patch": "delete"}]}, ["a", "b"]),
        ({"containers": [{"$patch": "replace"}, {"name": "c"}]}, ["c"]),
        ({"containers": [{"name": "c"}]}, ["c", "a", "b"]),
        ({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}], "containers": []}, ["b", "a"]),
        (
            {"$setElementOrder/containers": [{"name": "b"}, {"name": "c"}], "containers": [{"name": "c"}]},
            ["a", "b", "c"],
        ),
    ],
)
def test_directives_of_lists(patch: dict[str, Any], expected: list[str]) -> None:
    assert names(apply_strategic_patch(containers("a", "b"), patch)) == expected


def test_retained_keys_push_out_the_others() -> None:
    volume = {"volumes": [{"name": "v", "emptyDir": {}}]}
    patch = {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]}
    assert apply_strategic_patch(volume, patch) == {"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]}


def test_an_item_without_its_key_is_refused() -> None:
    with pytest.raises(ApiError, match="does not contain declared merge key: name"):
        apply_strategic_patch(containers("a"), {"containers": [{"image": "x"}]})


def test_lists_without_a_key_are_replaced() -> None:
    document = {"tolerations": [{"key": "a"}], "args": ["x"]}
    patch = {"tolerations": [{"key": "b"}], "args": ["y"]}
    assert apply_strategic_patch(document, patch) == patch


def test_apply_takes_dollar_signs_as_they_are() -> None:
    wish = {"data": {"$patch": "delete"}}
    assert apply_configuration({}, wish, list_keys=True) == wish


def strip_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: strip_nulls(item) for key, item in value.items() if item is not None}
    return value


@given(
    document=st.dictionaries(st.text(max_size=2), JSON, max_size=4), patch=st.dictionaries(st.text(max_size=2), JSON)
)
def test_a_merge_patch_is_idempotent(document: dict[str, Any], patch: dict[str, Any]) -> None:
    once = apply_merge_patch(document, patch)
    assert apply_merge_patch(once, patch) == once
    assert apply_merge_patch({}, patch) == strip_nulls(patch)
