"""What a workload's result must be before its time counts, without a framework; and a processor's own timer."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hcs.measure.choice import backends
from hcs.measure.models import Work, attempt
from hcs.measure.suite import Failure, Figure
from hcs.measure.torch_processor import TorchProcessor, read_cpuinfo


class Clock:
    """A clock that goes on by a second each time it is looked at."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def outcome(result: Any, *later: Any) -> Figure | Failure:
    """What is made of work that gives ``result``, and then what follows."""
    given = [result, *later]
    backend = TorchProcessor(np, cpuinfo=Path("/nowhere"), clock=Clock())
    work = Work(lambda: given.pop(0) if len(given) > 1 else given[0], 12.0, "some work")
    return attempt(backend, 0, "metric", "image/s", lambda: work, 60.0)


def test_work_that_gives_numbers_has_a_speed() -> None:
    found = outcome([np.ones(3), np.array([0.0, 1.0])])
    assert isinstance(found, Figure)
    assert (found.value, found.unit, found.steady) == (12.0, "image/s", True)


@pytest.mark.parametrize(
    ("results", "why"),
    [
        pytest.param([np.array([1.0, np.nan])], "not finite", id="not-a-number"),
        pytest.param([[np.ones(2), np.array([np.inf])]], "not finite", id="one-of-several"),
        pytest.param([np.zeros(4)], "nothing but zeros", id="faded"),
        pytest.param([np.ones(2), np.ones(2), np.array([np.nan])], "not finite", id="broken-while-it-ran"),
    ],
)
def test_work_that_gives_no_numbers_has_none(results: list[Any], why: str) -> None:
    found = outcome(*results)
    assert isinstance(found, Failure)
    assert why in found.why


def test_what_a_framework_raises_is_a_reason() -> None:
    def make() -> Work:
        raise AttributeError("module 'torch.nn.functional' has no attribute 'rms_norm'")

    backend = TorchProcessor(np, clock=Clock())
    found = attempt(backend, 0, "decode", "token/s", make, 1.0)
    assert isinstance(found, Failure)
    assert "rms_norm" in found.why


def test_arm_and_x86_describe_processors_differently() -> None:
    assert read_cpuinfo("processor\t: 0\nFeatures\t: fp asimd asimdhp bf16\n\nprocessor\t: 1\n") == {
        "processor": "0",
        "Features": "fp asimd asimdhp bf16",
    }


def test_frameworks_that_are_absent_are_named() -> None:
    reasons: list[str] = []
    found = backends(None, reasons.append)
    assert found
    if not any(backend.is_card for backend in found):
        assert len(reasons) >= 2
        assert any("PyTorch" in reason for reason in reasons)
        assert any("CuPy" in reason for reason in reasons)
