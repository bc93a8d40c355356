"""Any history of the queue: what the store holds is what a simple model of it holds, also after it was opened again."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hcs.store.database import Change
from hcs.store.errors import ForbiddenTransitionError, KeyReusedError, StaleEntryError, StoreError
from hcs.store.queue import QueueStore
from hcs.wide.entries import Entry, Submission
from hcs.wide.lifecycle import STATES, State, may_follow


class Histories(RuleBasedStateMachine):
    """Submissions, moves, amendments, failures halfway and restarts in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="hcs-histories-"))
        self.numbers = 0
        self.now = 0
        self.known: dict[str, Entry] = {}
        self.steps: dict[str, list[State]] = {}
        self.keys: dict[str, str] = {}
        self.older: list[Entry] = []
        self.told: dict[str, Entry] = {}
        self.open()

    def open(self) -> None:
        self.store = QueueStore.open(self.folder / "queue.db", make_id=self.fresh)
        self.store.on_change(self.hear)

    def hear(self, change: Change) -> None:
        assert change.entry is not None
        self.told[change.entry.id] = change.entry

    def fresh(self) -> str:
        self.numbers += 1
        return f"j{self.numbers}"

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)

    @rule(key=st.none() | st.sampled_from("ab"), size=st.integers(0, 3))
    def submit(self, key: str | None, size: int) -> None:
        manifest = {"kind": "Job", "size": size}
        self.now += 1
        try:
            entry, created = self.store.submit(manifest, Submission(name=f"n{size}"), key=key, now=self.now)
        except KeyReusedError as error:
            assert key is not None
            assert self.known[self.keys[key]].manifest != manifest
            assert error.entry == self.known[self.keys[key]]  # noqa: PT017
            return
        assert created == (key is None or key not in self.keys)
        if created:
            self.known[entry.id], self.steps[entry.id] = entry, ["Queued"]
        if key is not None:
            assert self.keys.setdefault(key, entry.id) == entry.id
        assert entry == self.known[entry.id]

    @precondition(lambda self: self.known)
    @rule(data=st.data(), after=st.sampled_from(STATES), behind=st.booleans(), inside=st.booleans())
    def move(self, data: st.DataObject, after: State, behind: bool, inside: bool) -> None:
        entry = data.draw(st.sampled_from(sorted(self.known.values(), key=lambda entry: entry.id)))
        self.now += 1
        options: dict[str, Any] = {"now": self.now, "reason": "Dice", "message": "m", "behind": behind}
        try:
            if inside:
                with self.store.together():
                    moved = self.store.move(entry, after, **options)
            else:
                moved = self.store.move(entry, after, **options)
        except ForbiddenTransitionError:
            assert not may_follow(entry.state, after)
            return
        assert may_follow(entry.state, after)
        assert moved.version == entry.version + 1
        assert not behind or all(moved.turn > other.turn for id, other in self.known.items() if id != entry.id)
        self.older.append(entry)
        self.known[entry.id] = moved
        self.steps[entry.id].append(after)

    @precondition(lambda self: self.known)
    @rule(data=st.data(), progress=st.floats(0, 1))
    def amend(self, data: st.DataObject, progress: float) -> None:
        entry = data.draw(st.sampled_from(sorted(self.known.values(), key=lambda entry: entry.id)))
        self.older.append(entry)
        self.known[entry.id] = self.store.amend(entry, now=self.now, progress=progress)

    @precondition(lambda self: self.older)
    @rule(data=st.data(), after=st.sampled_from(STATES))
    def change_from_an_older_version(self, data: st.DataObject, after: State) -> None:
        entry = data.draw(st.sampled_from(self.older))
        try:
            self.store.move(entry, after, now=self.now, reason="Late", message="m")
        except StaleEntryError as error:
            assert error.current == self.known[entry.id]  # noqa: PT017
        else:
            raise AssertionError(f"{entry} was let through")

    @rule()
    def fail_halfway(self) -> None:
        try:
            with self.store.together():
                self.store.submit({"kind": "Job"}, Submission(name="never"), key=None, now=self.now)
                raise StoreError("Halfway", "on purpose")
        except StoreError as error:
            assert error.refusal.reason == "Halfway"  # noqa: PT017

    @rule(cleanly=st.booleans())
    def restart(self, cleanly: bool) -> None:
        if not cleanly:
            # What a killed process leaves behind: the files as they are, without the lock.
            copy = self.folder / "copy"
            copy.mkdir()
            for file in self.folder.glob("queue.db*"):
                if not file.name.endswith("-shm"):
                    shutil.copy(file, copy / file.name)
            self.store.close()
            for file in copy.iterdir():
                shutil.copy(file, self.folder / file.name)
            shutil.rmtree(copy)
        else:
            self.store.close()
        self.open()

    @invariant()
    def the_store_holds_what_was_acknowledged(self) -> None:
        found = {entry.id: entry for entry in self.store.entries()}
        assert found == self.known
        assert [entry.turn for entry in self.store.entries()] == sorted(entry.turn for entry in self.known.values())
        for id, steps in self.steps.items():
            assert [step.after for step in self.store.transitions(id)] == steps
        counts = self.store.counts()
        assert sum(counts.values()) == len(self.known)
        assert all(counts[entry.state] for entry in self.known.values())

    @invariant()
    def listeners_were_told_all_of_it(self) -> None:
        assert self.told == self.known


TestHistories = Histories.TestCase
# Each step is synced to the disk, so there are fewer of them than elsewhere.
TestHistories.settings = settings(stateful_step_count=20, max_examples=min(settings().max_examples, 60))
