"""Packages are read whole or refused with every reason."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcs.model.refusals import RefusedError
from hcs.neuro.packages import read_package, squarest

CORE = {"neurons": 4}


def content(**model: Any) -> dict[str, Any]:
    return {"name": "app", "version": "1", "models": [{"name": "m", "cores": [CORE, CORE], **model}]}


@pytest.mark.parametrize(
    ("package", "sentence"),
    [
        pytest.param(b"{", "truncated", id="truncated"),
        pytest.param(b"\xff\xfe", "cannot read", id="not-text"),
        pytest.param(b"[" * 100_000, "cannot read", id="deeply-nested"),
        pytest.param({"name": "app", "version": "1"}, "models", id="no-models"),
        pytest.param({"name": "app", "version": "1", "models": []}, "at least one model", id="empty"),
        pytest.param({**content(), "extra": 1}, "extra", id="unknown-field"),
        pytest.param({**content(), "name": "A b"}, "small letters", id="bad-name"),
        pytest.param(content(cores=[]), "1 to", id="no-cores"),
        pytest.param(content(cores=[{"neurons": 0}]), "1 or more", id="no-neurons"),
        pytest.param(content(width=-2, height=2), "sides are 1 or more", id="negative-size"),
        pytest.param(content(width=1, height=1), "do not fit into 1x1", id="too-small"),
        pytest.param(content(width=2), "or neither", id="half-a-shape"),
        pytest.param(content(inputs=[5]), "from 0 to 1", id="no-such-input"),
        pytest.param(content(inputs=[]), "name one", id="no-input"),
        pytest.param(content(synapses=[{"source": [0, 9], "target": [1, 0]}]), "neuron 9 of core 0", id="no-neuron"),
        pytest.param(content(ksps=0), "at least 1 KSPS", id="no-rate"),
        pytest.param(content(ksps=1 << 50), "no machine has more", id="impossible-rate"),
        pytest.param(content(updates=-1), "ask for 0 or more", id="negative-rate"),
    ],
)
def test_a_malformed_package_is_refused_with_the_fix(package: Any, sentence: str) -> None:
    with pytest.raises(RefusedError, match=sentence):
        read_package(package)


def test_all_mistakes_are_said_at_once() -> None:
    with pytest.raises(RefusedError) as caught:
        read_package({**content(ksps=0, inputs=[7]), "version": ""})
    assert len(caught.value.refusals) == 3


@given(st.binary(max_size=200))
def test_no_bytes_give_a_traceback(noise: bytes) -> None:
    with pytest.raises(RefusedError):
        read_package(noise)


@given(st.integers(1, 5000))
def test_the_squarest_rectangle_holds_the_cores_and_wastes_little(cores: int) -> None:
    width, height = squarest(cores)
    assert width >= height
    assert cores <= width * height <= cores + width
    assert width <= 2 * height + 2
