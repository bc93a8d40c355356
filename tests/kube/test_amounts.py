"""Quantities of nodes and pods, exact."""

import pytest

from hcs.kube.amounts import parse_thousandths, requested


@pytest.mark.parametrize(
    ("text", "thousandths"),
    [
        ("1", 1000),
        ("500m", 500),
        ("1.5", 1500),
        (".5", 500),
        ("100u", 1),
        ("1n", 1),
        ("2k", 2_000_000),
        ("1Ki", 1_024_000),
        ("16Gi", 16 * 1024**3 * 1000),
        ("100e3", 100_000_000),
        ("1E", 10**21),
        (4, 4000),
    ],
)
def test_a_quantity_in_thousandths(text: str | int, thousandths: int) -> None:
    assert parse_thousandths(text) == thousandths


@pytest.mark.parametrize("text", ["", "x", "1 Gi", "1GiB", "--1", "1ee3", "1e3Gi"])
def test_anything_else_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="as a quantity"):
        parse_thousandths(text)


def test_a_pod_asks_for_its_containers_or_its_hungriest_init_container() -> None:
    def container(**requests: str) -> dict[str, object]:
        return {"name": "c", "resources": {"requests": requests}}

    spec = {
        "containers": [container(cpu="1", memory="1Gi"), container(cpu="500m"), {"name": "free"}],
        "initContainers": [container(cpu="4"), container(cpu="3", memory="1Mi")],
        "overhead": {"cpu": "250m"},
    }
    assert requested(spec) == {"pods": 1000, "cpu": 4250, "memory": 1024**3 * 1000}


def test_a_sidecar_runs_beside_all_that_start_after_it() -> None:
    def asks(cpu: str, **more: str) -> dict[str, object]:
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    init = [asks("6"), asks("2", restartPolicy="Always"), asks("5")]
    assert requested({"containers": [asks("1")], "initContainers": init})["cpu"] == 7000
    assert requested({"containers": [asks("9")], "initContainers": init})["cpu"] == 11000
