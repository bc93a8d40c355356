"""Label selectors of disruption budgets, as policy/v1 reads them; the node checks are tried with the scheduler."""

from typing import Any

import pytest

from hcs.kube.fitting import selects

LABELS = {"app": "train", "tier": "gold"}


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        pytest.param(None, False, id="absent-matches-nothing"),
        pytest.param({}, True, id="empty-matches-everything"),
        pytest.param({"matchLabels": {"app": "train"}}, True, id="label"),
        pytest.param({"matchLabels": {"app": "train", "tier": "lead"}}, False, id="all-labels"),
        pytest.param({"matchExpressions": [{"key": "tier", "operator": "In", "values": ["gold"]}]}, True, id="in"),
        pytest.param(
            {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["gold"]}]}, False, id="not-in"
        ),
        pytest.param({"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]}, True, id="does-not-exist"),
        pytest.param({"matchExpressions": [{"key": "zone", "operator": "Exists"}]}, False, id="exists"),
    ],
)
def test_a_selector(selector: dict[str, Any] | None, matches: bool) -> None:
    assert selects(selector, LABELS) is matches
