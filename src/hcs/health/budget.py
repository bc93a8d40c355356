"""How many pods may be evicted in a while, so that a wrong diagnosis cannot empty the fleet."""

import msgspec


class EvictionBudget(msgspec.Struct, frozen=True):
    """At most ``limit`` evictions in any ``window`` seconds; ``spent`` are the times of the recent ones."""

    limit: int
    window: float
    spent: tuple[float, ...] = ()

    def allows(self, now: float) -> bool:
        """Whether one more eviction may happen at ``now`` (seconds)."""
        return len(self._recent(now)) < self.limit

    def spend(self, now: float) -> "EvictionBudget":
        """The budget after an eviction at ``now``."""
        return EvictionBudget(self.limit, self.window, (*self._recent(now), now))

    def next_free(self, now: float) -> float:
        """Seconds until another eviction may happen; 0 when it may now."""
        recent = self._recent(now)
        return 0.0 if len(recent) < self.limit else max(0.0, recent[-self.limit] + self.window - now)

    def _recent(self, now: float) -> tuple[float, ...]:
        return tuple(time for time in self.spent if now - time < self.window)
