"""Pods that ask for spikes are read, and what Kubernetes would refuse is refused with the fix."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from hcs.model.pods import Pod
from hcs.model.refusals import RefusedError
from hcs.neuro.capacities import Amounts
from hcs.neuro.packages import read_package
from hcs.neuro.pods import read_spiking

EXAMPLES = Path(__file__).parents[2] / "examples" / "snn"


def pod(limits: dict[str, Any], requests: dict[str, Any] | None = None, env: list[Any] | None = None) -> Pod:
    container = {"name": "main", "resources": {"limits": limits, "requests": requests or {}}, "env": env or []}
    return msgspec.convert({"metadata": {"name": "p"}, "spec": {"containers": [container]}}, Pod)


def test_the_example_is_read_with_its_own_domain() -> None:
    example = msgspec.convert(yaml.safe_load((EXAMPLES / "01-pod.yaml").read_text()), Pod)
    [request] = read_spiking(example, domain="snn.vendor.com")
    assert request.units == Amounts(ksps=150, streams=2)
    assert read_spiking(example) == (), "another domain is none of ours"


def test_the_other_examples_are_what_they_seem() -> None:
    task = yaml.safe_load((EXAMPLES / "02-neural-task.yaml").read_text())
    assert read_package(task["spec"]["package"]).models[0].amounts.ksps == 100
    assert len(read_package((EXAMPLES / "package.json").read_bytes()).models) == 2


def test_unlike_modules_are_told_apart() -> None:
    found = read_spiking(pod({"snn.ai.compute/ksps-type-a": 5, "snn.ai.compute/ksps": 7}))
    assert {request.module: request.units.ksps for request in found} == {"type-a": 5, "": 7}


@pytest.mark.parametrize(
    ("limits", "requests", "env", "sentence"),
    [
        pytest.param({"snn.ai.compute/kps": 1}, None, None, "did you mean snn.ai.compute/ksps", id="misspelt"),
        pytest.param({"snn.ai.compute/ksps": "1.5"}, None, None, "must be a whole number", id="half"),
        pytest.param({"snn.ai.compute/ksps": "-3"}, None, None, "zero or more", id="negative"),
        pytest.param({}, {"snn.ai.compute/ksps": 3}, None, "write it under limits", id="request-alone"),
        pytest.param({"snn.ai.compute/ksps": 3}, {"snn.ai.compute/ksps": 2}, None, "both are the same", id="unequal"),
        pytest.param(
            {"snn.ai.compute/ksps": 3},
            None,
            [{"name": "KSPS", "valueFrom": {"resourceFieldRef": {"resource": "limits.snn.ai.compute/ksps"}}}],
            "remove it and read SNN_KSPS_ALLOCATED",
            id="field-reference",
        ),
    ],
)
def test_what_kubernetes_does_not_allow_is_refused_with_the_fix(
    limits: dict[str, Any], requests: dict[str, Any] | None, env: list[Any] | None, sentence: str
) -> None:
    with pytest.raises(RefusedError, match=sentence):
        read_spiking(pod(limits, requests, env))


def test_other_field_references_are_none_of_ours() -> None:
    env = [{"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}]
    assert read_spiking(pod({"cpu": "1"}, env=env)) == ()
