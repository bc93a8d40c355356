"""The life of a task: the documented ways, and no others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcs.neuro.lifecycle import ENDED, HOLDING, TRANSITIONS, Life, TransitionError


def live(*events: str) -> tuple[Life, list[str]]:
    life, told = Life(), []
    for event in events:
        life, instructions = life.after(event)  # type: ignore[arg-type]
        told.extend(instructions)
    return life, told


@pytest.mark.parametrize(
    ("events", "state", "instructions"),
    [
        pytest.param(["placed", "routed", "loaded", "checked"], "Ready", ["route", "load", "check"], id="made"),
        pytest.param(
            ["placed", "routed", "loaded", "checked", "run", "pause", "resume", "finished", "destroy", "drained"],
            "Released",
            ["route", "load", "check", "start", "stop", "resume", "drain", "free"],
            id="whole-life",
        ),
        pytest.param(
            ["placed", "routed", "loaded", "checked", "run", "fault", "remap", "remapped"],
            "Ready",
            ["route", "load", "check", "start", "stop", "remap"],
            id="a-fault-while-running",
        ),
        pytest.param(["placed", "routed", "failed"], "Failed", ["route", "load", "free"], id="not-loaded"),
        pytest.param(["destroy"], "Released", [], id="never-placed"),
    ],
)
def test_ways_of_life(events: list[str], state: str, instructions: list[str]) -> None:
    life, told = live(*events)
    assert (life.state, told) == (state, instructions)


@pytest.mark.parametrize(
    "events", [["run"], ["placed", "checked"], ["destroy", "placed"], ["placed", "failed", "fault"]]
)
def test_nonsense_is_refused_with_the_history(events: list[str]) -> None:
    with pytest.raises(TransitionError, match=r"makes no sense in state .*so far: "):
        live(*events)


@given(st.lists(st.sampled_from(sorted({event for _, event in TRANSITIONS})), max_size=40))
def test_cores_are_freed_exactly_once_on_every_way_out(events: list[str]) -> None:
    life, told = Life(), []
    for event in events:
        held = life.state in HOLDING
        try:
            life, instructions = life.after(event)  # type: ignore[arg-type]
        except TransitionError:
            continue
        told.extend(instructions)
        assert (held and life.state not in HOLDING) == ("free" in instructions)
    assert told.count("free") <= 1
    if life.state in ENDED and "placed" in life.history:
        assert told.count("free") == 1


def test_every_state_can_be_left_towards_an_end() -> None:
    states = {state for state, _ in TRANSITIONS} | {after for after, _ in TRANSITIONS.values()}
    for state in states - ENDED:
        reached, edge = {state}, [state]
        while edge:
            here = edge.pop()
            for (begin, _), (after, _) in TRANSITIONS.items():
                if begin == here and after not in reached:
                    reached.add(after)
                    edge.append(after)
        assert "Released" in reached or "Failed" in reached, state
