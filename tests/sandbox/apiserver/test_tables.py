"""What ``kubectl get`` prints in its trickier cells."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hcs.sandbox.apiserver import jsonpath, tables


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"), (59, "59s"), (119, "119s"), (120, "2m"), (200, "3m20s"), (601, "10m"), (3 * 3600, "3h"),
        (3 * 3600 + 300, "3h5m"), (30 * 3600, "30h"), (3 * 86400 + 7200, "3d2h"), (9 * 86400, "9d"),
        (800 * 86400, "2y"),
    ],
)  # fmt: skip
def test_durations(seconds: int, text: str) -> None:
    assert tables.spell_duration(timedelta(seconds=seconds)) == text


def test_an_age_that_is_not_known() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert tables.age(None, now) == "<unknown>"
    assert tables.age("yesterday", now) == "<unknown>"
    assert tables.age("2025-12-31T23:59:00Z", now) == "60s"


def pod(status: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p", **metadata}, "spec": {"containers": [{}]}, "status": status}


@pytest.mark.parametrize(
    ("status", "metadata", "shown"),
    [
        ({"phase": "Pending"}, {}, "Pending"),
        ({"phase": "Failed", "reason": "Evicted"}, {}, "Evicted"),
        (
            {"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]},
            {},
            "SchedulingGated",
        ),
        (
            {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull"}}}]},
            {},
            "ErrImagePull",
        ),
        ({"phase": "Running", "containerStatuses": [{"state": {"terminated": {"exitCode": 3}}}]}, {}, "ExitCode:3"),
        ({"phase": "Running", "containerStatuses": [{"state": {"terminated": {"signal": 9}}}]}, {}, "Signal:9"),
        ({"phase": "Running"}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "Terminating"),
        ({"phase": "Succeeded"}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "Succeeded"),
    ],
)
def test_the_status_column(status: dict[str, Any], metadata: dict[str, Any], shown: str) -> None:
    assert tables.pod_phase(pod(status, **metadata)) == shown


DOCUMENT = {
    "spec": {"a": 1, "l": [{"n": "x", "v": 1}, {"n": "y", "v": 2}]},
    "metadata": {"labels": {"a.b/c": "z"}},
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".spec.a", [1]),
        ("{.spec.a}", [1]),
        (".spec.l[*].n", ["x", "y"]),
        (".spec.l[-1].v", [2]),
        (".spec.l[7].v", []),
        ('.spec.l[?(@.n=="y")].v', [2]),
        (".spec.l[?(@.n!='y')].v", [1]),
        (".metadata.labels['a.b/c']", ["z"]),
        (r".metadata.labels.a\.b/c", ["z"]),
        (".status.none", []),
    ],
)
def test_paths(path: str, found: list[Any]) -> None:
    assert jsonpath.find(DOCUMENT, path) == found


def test_a_path_outside_the_subset() -> None:
    with pytest.raises(ValueError, match="cannot read JSONPath"):
        jsonpath.find(DOCUMENT, ".spec..a")
