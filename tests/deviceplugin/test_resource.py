"""A list the kubelet cannot take is noticed before the kubelet drops it in silence."""

import pytest

from hcs.deviceplugin.resource import MAX_LIST_BYTES, Unit, check_list
from hcs.model.refusals import RefusedError

NAME = "example.test/units"


@pytest.mark.parametrize(
    ("units", "reason", "words"),
    [
        pytest.param([Unit(f"u{n}") for n in range(100_001)], "ListTooLong", "the most a kubelet", id="too-many"),
        pytest.param([Unit(f"{n:063}") for n in range(40_000)], "ListTooLarge", "4 MiB", id="too-many-bytes"),
        pytest.param([Unit("x" * 64)], "UnusableId", "1 to 63", id="long-id"),
        pytest.param([Unit("")], "UnusableId", "1 to 63", id="empty-id"),
        pytest.param([Unit("a\nb")], "UnusableId", "plain", id="line-break"),
        pytest.param([Unit("a"), Unit("a")], "DuplicateId", "stands twice", id="twice"),
    ],
)
def test_lists_no_kubelet_can_take(units: list[Unit], reason: str, words: str) -> None:
    with pytest.raises(RefusedError) as caught:
        check_list(NAME, units)
    assert caught.value.refusals[0].reason == reason
    assert words in caught.value.refusals[0].message


def test_five_thousand_short_ids_are_no_problem() -> None:
    message = check_list(NAME, [Unit(f"k0-{n:04}", numa=(0,)) for n in range(5000)])
    assert len(message.devices) == 5000
    assert message.ByteSize() < MAX_LIST_BYTES / 8
