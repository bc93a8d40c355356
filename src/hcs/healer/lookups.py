"""Looks up where pods should resume, beside the healer's loop: slow storage delays one eviction, never a quarantine."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from hcs.model.pods import Pod

Locate = Callable[[Pod, str], Awaitable[str]]
"""Says where a pod should resume, given what it said last time; see :func:`hcs.healer.resume.resume_point`."""
REFRESH_SECONDS: Final = 2.0
"""How often it is asked again while the pod still runs down, and may still write checkpoints."""


class Lookups:
    """The places found so far, by pod UID."""

    def __init__(self, locate: Locate, *, found: Callable[[], None], now: Callable[[], float]) -> None:
        """Prepare.

        Args:
            locate: how a place is found.
            found: called when a place is new or has changed.
            now: the clock, in seconds.
        """
        self._locate, self._found, self._now = locate, found, now
        self._pods: dict[str, Pod] = {}
        self._asked: dict[str, float] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._final: set[str] = set()
        self.places: dict[str, str] = {}

    def follow(self, pod: Pod) -> str | None:
        """Where a pod should resume as far as known; None until the first answer is there."""
        uid = pod.metadata.uid
        self._pods[uid] = pod
        asked = self._asked.get(uid)
        if asked is None or (not pod.finished and self._now() - asked >= REFRESH_SECONDS):
            self._ask(uid)
        return self.places.get(uid)

    def leave(self, running: Collection[str]) -> None:
        """Ask a last time about the pods that are no longer ``running``: they may have written until the end."""
        for uid in self._pods.keys() - self._final:
            if uid not in running and uid not in self._running:
                self._final.add(uid)
                self._ask(uid)

    def forget(self, needed: Collection[str]) -> None:
        """Drop what is known of pods that nobody asks about any more."""
        for uid in [uid for uid in self._pods if uid not in needed and uid not in self._running]:
            del self._pods[uid]
            self._asked.pop(uid, None)
            self.places.pop(uid, None)
            self._final.discard(uid)

    async def close(self) -> None:
        """Stop asking."""
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    def _ask(self, uid: str) -> None:
        if uid not in self._running:
            self._asked[uid] = self._now()
            self._running[uid] = asyncio.create_task(self._look(uid))

    async def _look(self, uid: str) -> None:
        try:
            before = self.places.get(uid)
            place = await self._locate(self._pods[uid], before or "")
            if place != before:
                self.places[uid] = place
                self._found()
        finally:
            del self._running[uid]
