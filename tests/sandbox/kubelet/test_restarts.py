"""Restart policies and pauses, as tables."""

import pytest

from hcs.sandbox.kubelet.restarts import BackOff, restarts


@pytest.mark.parametrize(
    ("policy", "code", "again"),
    [
        ("Always", 0, True),
        ("Always", 1, True),
        (None, 0, True),
        ("OnFailure", 0, False),
        ("OnFailure", 137, True),
        ("Never", 0, False),
        ("Never", 1, False),
    ],
)
def test_policies(policy: str | None, code: int, again: bool) -> None:
    assert restarts(policy, code) is again


def test_the_real_kubelets_pauses() -> None:
    real = BackOff(10, 300, 600)
    assert [real.pause(crashes) for crashes in range(1, 9)] == [0, 10, 20, 40, 80, 160, 300, 300]


def test_a_long_run_is_forgiven() -> None:
    back_off = BackOff(10, 300, 600)
    assert back_off.crashes(5, ran=599) == 6
    assert back_off.crashes(5, ran=600) == 1
