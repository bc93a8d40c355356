"""Storage: versions, history and what a restart brings back."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcs.sandbox.apiserver.status import JsonObject
from hcs.sandbox.apiserver.storage import Change, ExistsError, ExpiredError, StaleError, Store


def thing(value: int) -> JsonObject:
    return {"kind": "Thing", "metadata": {"uid": "u"}, "value": value}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "state.db")


def test_only_the_version_seen_is_replaced(store: Store) -> None:
    first = store.create("things", "", "a", thing(1))
    second = store.replace(first, thing(2))
    with pytest.raises(StaleError):
        store.replace(first, thing(3))
    with pytest.raises(StaleError):
        store.remove(first)
    with pytest.raises(ExistsError):
        store.create("things", "", "a", thing(4))
    assert store.get("things", "", "a") == second
    assert second.object["metadata"]["resourceVersion"] == str(second.version)


def test_compacted_history_is_expired(store: Store) -> None:
    stored = store.create("things", "", "a", thing(1))
    store.replace(stored, thing(2))
    store.compact(store.version)
    with pytest.raises(ExpiredError, match=r"too old resource version: 1 \(3\)"):
        list(store.changes_since(1))
    assert list(store.changes_since(store.version)) == []


def test_history_is_bounded(tmp_path: Path) -> None:
    store = Store(tmp_path / "state.db", history=10)
    stored = store.create("things", "", "a", thing(0))
    for value in range(40):
        stored = store.replace(stored, thing(value))
    assert 10 <= len(list(store.changes_since(store.compacted))) <= 13
    with pytest.raises(ExpiredError):
        store.changes_since(1)


Step = tuple[str, str]
STEPS = st.lists(st.tuples(st.sampled_from(["create", "replace", "remove"]), st.sampled_from("abc")), max_size=25)


def carry_out(store: Store, steps: list[Step]) -> list[dict[str, int]]:
    """Carry out steps that apply; returns the state after each version."""
    states: list[dict[str, int]] = [{}]
    for number, (action, name) in enumerate(steps):
        held = store.get("things", "", name)
        if action == "create" and held is None:
            store.create("things", "", name, thing(number))
        elif action == "replace" and held is not None:
            store.replace(held, thing(number))
        elif action == "remove" and held is not None:
            store.remove(held)
        else:
            continue
        states.append({stored.name: stored.object["value"] for stored in store.objects("things")})
    return states


@given(steps=STEPS)
def test_every_version_can_be_looked_back_at_also_after_a_restart(
    steps: list[Step], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("store") / "state.db"
    store = Store(path)
    states = carry_out(store, steps)
    store.close()
    again = Store(path)
    assert again.version == len(states)
    for index, state in enumerate(states):
        seen = {stored.name: stored.object["value"] for stored in again.list_at("things", "", index + 1)}
        assert seen == state
    again.close()


@given(steps=STEPS)
def test_changes_lead_from_any_state_to_the_present(
    steps: list[Step], tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = Store(tmp_path_factory.mktemp("store") / "state.db")
    heard: list[Change] = []
    store.listen(heard.append)
    states = carry_out(store, steps)
    assert list(store.changes_since(1)) == heard
    state = dict(states[0])
    for change in heard:
        if change.type == "DELETED":
            del state[change.new.name]
        else:
            assert (change.type == "ADDED") is (change.new.name not in state)
            state[change.new.name] = change.new.object["value"]
    assert state == states[-1]
    store.close()
