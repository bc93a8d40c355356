"""A card's life: scenarios as data, and what must hold for every sequence of observations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcs.health.cards import CardState, IllegalTransitionError, Observation, step

PROBATION = 60.0


def seen(verdict: str, *, pods: int = 0, now: float = 0.0) -> Observation:
    return Observation(verdict, "Reason" if verdict == "Failed" else "", "it broke", pods, now)  # type: ignore[arg-type]


def live(*observations: Observation) -> tuple[CardState, list[str]]:
    state, done = CardState(), []
    for observation in observations:
        state, instructions = step(state, observation, probation=PROBATION)
        done += [f"{order.action}:{order.reason}" if order.action == "tell" else order.action for order in instructions]
    return state, done


@pytest.mark.parametrize(
    ("observations", "phase", "instructions"),
    [
        pytest.param([seen("Healthy")], "Serving", [], id="nothing-happens-to-a-healthy-card"),
        pytest.param(
            [seen("Failed", pods=1)],
            "Quarantined",
            ["quarantine", "tell:CardQuarantined", "evict"],
            id="a-fatal-fault-quarantines-before-it-evicts",
        ),
        pytest.param(
            [seen("Failed", pods=1), seen("Failed", pods=1)],
            "Quarantined",
            ["quarantine", "tell:CardQuarantined", "evict", "evict"],
            id="an-eviction-that-did-not-happen-is-asked-for-again",
        ),
        pytest.param(
            [seen("Failed", pods=1), seen("Failed")],
            "Drained",
            ["quarantine", "tell:CardQuarantined", "evict", "tell:CardDrained"],
            id="the-last-pod-left",
        ),
        pytest.param(
            [seen("Failed"), seen("Failed"), seen("Failed", pods=1)],
            "Quarantined",
            ["quarantine", "tell:CardQuarantined", "tell:CardDrained", "evict"],
            id="a-pod-bound-just-as-the-card-failed",
        ),
        pytest.param(
            [seen("SubHealthy", pods=2), seen("Healthy", pods=2)],
            "Serving",
            ["tell:CardSubHealthy", "tell:CardHealthy"],
            id="sub-health-evicts-nobody",
        ),
        pytest.param(
            [seen("Failed"), seen("Healthy", now=1), seen("Healthy", now=60.9)],
            "Recovering",
            ["quarantine", "tell:CardQuarantined", "tell:CardRecovering"],
            id="probation-is-not-over-yet",
        ),
        pytest.param(
            [seen("Failed"), seen("Healthy", now=1), seen("Healthy", now=61)],
            "Serving",
            ["quarantine", "tell:CardQuarantined", "tell:CardRecovering", "release", "tell:CardReleased"],
            id="probation-passed",
        ),
        pytest.param(
            [seen("Failed"), seen("Healthy", now=1), seen("Failed", now=2, pods=1)],
            "Quarantined",
            ["quarantine", "tell:CardQuarantined", "tell:CardRecovering", "tell:CardFailedAgain", "evict"],
            id="failed-again-during-probation",
        ),
        pytest.param(
            [seen("Failed"), seen("Unknown", now=500)],
            "Drained",
            ["quarantine", "tell:CardQuarantined", "tell:CardDrained"],
            id="not-knowing-is-no-recovery",
        ),
        pytest.param(
            [seen("Failed"), seen("Healthy", now=1), seen("SubHealthy", now=50), seen("Healthy", now=100)],
            "Recovering",
            ["quarantine", "tell:CardQuarantined", "tell:CardRecovering", "tell:CardRecovering"],
            id="a-probation-with-a-sick-spell-begins-anew",
        ),
        pytest.param([seen("Unknown", pods=3)], "Serving", [], id="not-knowing-evicts-nobody"),
    ],
)
def test_a_card_lives(observations: list[Observation], phase: str, instructions: list[str]) -> None:
    state, done = live(*observations)
    assert (state.phase, done) == (phase, instructions)


def test_time_does_not_run_backwards() -> None:
    state, _ = live(seen("Failed", now=10))
    with pytest.raises(IllegalTransitionError, match=r"Quarantined@10\.000"):
        step(state, seen("Healthy", now=9), probation=PROBATION)


@given(
    st.lists(
        st.tuples(st.sampled_from(["Healthy", "SubHealthy", "Failed", "Unknown"]), st.integers(0, 3), st.floats(0, 100))
    )
)
def test_out_of_service_from_the_fault_until_a_whole_probation_of_health(
    story: list[tuple[str, int, float]],
) -> None:
    state, now, failed_at, healthy_since = CardState(), 0.0, None, None
    for verdict, pods, pause in story:
        now += pause
        state, instructions = step(state, seen(verdict, pods=pods, now=now), probation=PROBATION)
        if verdict == "Failed":
            failed_at, healthy_since = now, None
            assert state.phase in ("Quarantined", "Drained")
        elif verdict != "Healthy":
            healthy_since = None
        elif failed_at is not None and healthy_since is None:
            healthy_since = now
        actions = [order.action for order in instructions]
        assert "evict" not in actions or (verdict == "Failed" and pods > 0)
        if "release" in actions:
            assert healthy_since is not None
            assert now - healthy_since >= PROBATION
            failed_at = healthy_since = None
        if failed_at is not None:
            assert state.phase in ("Quarantined", "Drained", "Recovering")
