"""Which of our Jobs may go, which stay, and which are taken back."""

from typing import Any

import pytest

from hcs.cpn.orphans import Graces, judge
from hcs.kube.resources import Job
from hcs.model.pods import ObjectMeta
from hcs.wide.entries import LABEL_ENTRY, Entry, Placement, Submission

LONG, SHORT = 10_000_000, 1000
OVER = {"conditions": [{"type": "Complete", "status": "True"}]}
FAILED = {"conditions": [{"type": "Failed", "status": "True"}]}


def entry_in(state: Any, job: str | None = None, cluster: str = "east") -> Entry:
    placement = Placement(cluster, "A100", 0, 1, 2, job) if job else None
    return Entry("e1", {}, Submission("train"), state, 3, 0, 0, 1, placement=placement)


@pytest.mark.parametrize(
    ("entry", "suspended", "status", "seen", "action"),
    [
        pytest.param(entry_in("Running", "cpn-e1-0"), False, {}, LONG, "keep", id="claimed"),
        pytest.param(entry_in("Placing", "cpn-e1-0"), True, {}, LONG, "keep", id="being-made"),
        pytest.param(entry_in("Cancelling", "cpn-e1-0"), False, {}, LONG, "keep", id="being-cancelled"),
        pytest.param(entry_in("Running", "cpn-e1-1"), True, {}, SHORT, "keep", id="late-creation-may-still-be-told"),
        pytest.param(entry_in("Running", "cpn-e1-1"), True, {}, LONG, "delete", id="late-creation"),
        pytest.param(entry_in("Running", "cpn-e1-0", "west"), False, {}, SHORT, "keep", id="elsewhere-by-now"),
        pytest.param(entry_in("Running", "cpn-e1-0", "west"), False, {}, LONG, "delete", id="elsewhere-for-long"),
        pytest.param(entry_in("Queued"), False, {}, 0, "adopt", id="runs-although-it-waits"),
        pytest.param(entry_in("Queued"), False, OVER, 0, "adopt", id="done-although-it-waits"),
        pytest.param(entry_in("Queued"), True, {}, LONG, "delete", id="never-ran"),
        pytest.param(entry_in("Queued"), False, FAILED, SHORT, "keep", id="an-earlier-attempt"),
        pytest.param(entry_in("Queued"), False, FAILED, LONG, "delete", id="an-old-attempt"),
        pytest.param(entry_in("Succeeded", "cpn-e1-0"), False, OVER, SHORT, "keep", id="just-over"),
        pytest.param(entry_in("Succeeded", "cpn-e1-0"), False, OVER, LONG, "delete", id="long-over"),
        pytest.param(entry_in("Cancelled", "cpn-e1-0"), False, {}, LONG, "delete", id="cancelled-and-still-there"),
        pytest.param(None, False, {}, 3_000_000, "keep", id="unknown-for-less-than-an-hour"),
        pytest.param(None, False, {}, LONG, "delete", id="unknown-for-long"),
    ],
)
def test_what_becomes_of_a_job(
    entry: Entry | None, suspended: bool, status: dict[str, Any], seen: int, action: str
) -> None:
    meta = ObjectMeta(name="cpn-e1-0", uid="u", labels={LABEL_ENTRY: "e1"})
    job = Job(metadata=meta, spec={"suspend": suspended}, status=status)
    assert judge(job, "east", entry, 0, seen, Graces()).action == action


def test_what_is_being_deleted_is_left_to_it() -> None:
    meta = ObjectMeta(name="cpn-e1-0", deletionTimestamp="2026-01-01T00:00:00Z")
    assert judge(Job(metadata=meta), "east", None, 0, LONG, Graces()).action == "keep"
