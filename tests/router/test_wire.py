"""The extender's wire format: recorded requests are read, whatever the case of their fields."""

from typing import Any

import msgspec
import pytest
from tests.samples import recorded, sample

from hcs.router.wire import (
    BindAnswer,
    BindArguments,
    FilterAnswer,
    FilterArguments,
    WireError,
    read_arguments,
)

FILTER: dict[str, Any] = {
    "Pod": {
        "metadata": {
            "name": "train-1",
            "namespace": "default",
            "uid": "u-1",
            "managedFields": [{"manager": "kubectl"}],
        },
        "spec": {
            "containers": [
                {"name": "main", "image": "x", "resources": {"limits": {"ai.compute/vram": "16Gi"}}, "tty": True}
            ],
            "schedulerName": "hcs-scheduler",
        },
        "status": {"phase": "Pending"},
    },
    "Nodes": None,
    "NodeNames": ["a", "b"],
}
BIND = {"PodName": "train-1", "PodNamespace": "default", "PodUID": "u-1", "Node": "a"}


@pytest.mark.parametrize("case", [str, str.lower, str.upper], ids=["as-sent", "lower", "upper"])
def test_outer_field_names_are_read_in_any_case(case: Any) -> None:
    found = read_arguments(msgspec.json.encode({case(k): v for k, v in FILTER.items()}), FilterArguments)
    assert (found.pod.metadata.uid, found.nodenames) == ("u-1", ("a", "b"))
    bound = read_arguments(msgspec.json.encode({case(k): v for k, v in BIND.items()}), BindArguments)
    assert (bound.podname, bound.podnamespace, bound.poduid, bound.node) == ("train-1", "default", "u-1", "a")


def test_a_missing_list_of_names_comes_as_null() -> None:
    assert read_arguments(msgspec.json.encode(FILTER | {"NodeNames": None}), FilterArguments).nodenames is None


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"Pod": 1}', b'{"Pod": {}, "NodeNames": "a"}', b'{"Po"d": {}}', b'{"\\u0022": 1}']
)
def test_anything_else_is_refused(body: bytes) -> None:
    with pytest.raises(WireError, match="FilterArguments"):
        read_arguments(body, FilterArguments)


def test_answers_are_capitalised() -> None:
    assert msgspec.json.decode(msgspec.json.encode(FilterAnswer(("a",), {"b": "x"}, {"c": "y"}))) == {
        "NodeNames": ["a"],
        "FailedNodes": {"b": "x"},
        "FailedAndUnresolvableNodes": {"c": "y"},
        "Error": "",
    }
    assert msgspec.json.encode(BindAnswer()) == b'{"Error":""}'


@recorded
def test_requests_recorded_from_a_real_scheduler_are_read() -> None:
    asked = sample("extender-filter-nodecachecapable-true.json")
    found = read_arguments(msgspec.json.encode(asked["request_body"]), FilterArguments)
    assert found.nodenames == ("fake-3", "fake-4", "fake-1")
    assert found.pod.spec.containers[0].resources.limits == {"ai.compute/acu": "40", "ai.compute/vram": "16Gi"}
    full = sample("extender-filter-nodecachecapable-false.json")
    assert read_arguments(msgspec.json.encode(full["request_body"]), FilterArguments).nodenames is None
    bind = sample("extender-bind.json")
    assert read_arguments(msgspec.json.encode(bind["request_body"]), BindArguments).node == "fake-1"
