"""The examples: each says what it shows, and each is accepted by admission as it stands."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from hcs.injector.mutation import Settings, mutate
from hcs.model import names
from hcs.sandbox.images import CODE, PENDING
from hcs.ura.catalogue import load_catalogue

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.yaml"))


def pod_of(example: Path) -> dict[str, Any]:
    """The pod of an example; of a Job, the one its controller would make."""
    manifest: dict[str, Any] = yaml.safe_load(example.read_text())
    if manifest["kind"] == "Job":
        template = manifest["spec"]["template"]
        manifest = {"apiVersion": "v1", "kind": "Pod", **template}
        manifest["metadata"] = {**template["metadata"], "generateName": "job-"}
    return manifest


def test_examples_are_numbered_without_gaps() -> None:
    assert [int(example.name[:2]) for example in EXAMPLES] == list(range(1, len(EXAMPLES) + 1))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_an_example_says_what_it_shows_and_is_admitted(example: Path) -> None:
    assert example.read_text().startswith("# ")
    pod = pod_of(example)
    (container,) = pod["spec"]["containers"]
    assert container["image"] == PENDING
    assert container["command"][:2] == ["python3", "code/train.py"]
    assert pod["metadata"]["annotations"][names.CODE_IMAGE] == CODE
    admitted = mutate(pod, load_catalogue(), Settings())
    assert admitted["spec"]["schedulerName"] == names.SCHEDULER
    assert {"name": "hcs-code", "mountPath": "/workspace/code", "readOnly": True} in (
        admitted["spec"]["containers"][0]["volumeMounts"]
    )
