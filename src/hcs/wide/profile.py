"""Free cards of one pool over time: a staircase in which bookings are made.

Every policy plans on it, so none can book a card twice: a booking that does not fit raises.
"""

from bisect import bisect_left, bisect_right

from hcs.wide.jobs import Milliseconds


class Profile:
    """``free[i]`` cards are free from ``times[i]`` until the next step; the last step never ends."""

    __slots__ = ("free", "times")

    def __init__(self, now: Milliseconds, cards: int) -> None:
        self.times = [now]
        self.free = [cards]

    def copy(self) -> "Profile":
        """An independent copy."""
        twin = Profile(0, 0)
        twin.times, twin.free = self.times.copy(), self.free.copy()
        return twin

    def earliest(self, cards: int, duration: Milliseconds, ready: Milliseconds) -> Milliseconds:
        """The first moment from ``ready`` on at which so many cards are free for so long.

        There must be enough cards in the end; callers ask only pools that admit the job.
        """
        times, free, count = self.times, self.free, len(self.times)
        step = max(0, bisect_right(times, ready) - 1)
        start = max(ready, times[step])
        while True:
            while free[step] < cards:
                step += 1
                start = times[step]
            end = start + duration
            ahead = step + 1
            while ahead < count and times[ahead] < end and free[ahead] >= cards:
                ahead += 1
            if ahead == count or times[ahead] >= end:
                return start
            step = ahead

    def fits(self, cards: int, start: Milliseconds, end: Milliseconds) -> bool:
        """Whether so many cards are free all that time."""
        first = max(0, bisect_right(self.times, start) - 1)
        last = bisect_left(self.times, end)
        return all(free >= cards for free in self.free[first:last])

    def book(self, cards: int, start: Milliseconds, end: Milliseconds) -> None:
        """Take cards from ``start`` until ``end``; a negative count gives them back."""
        if end <= start:
            return
        first, last = self._step_at(start), self._step_at(end)
        for step in range(first, last):
            self.free[step] -= cards
            if self.free[step] < 0:
                raise AssertionError(f"card booked twice between {start} and {end}")

    def forget(self, before: Milliseconds) -> None:
        """Drop the steps that ended before a moment."""
        past = bisect_right(self.times, before) - 1
        if past > 0:
            del self.times[:past], self.free[:past]

    def _step_at(self, moment: Milliseconds) -> int:
        """The step that begins at the moment; made where there is none."""
        step = bisect_left(self.times, moment)
        if step == len(self.times) or self.times[step] != moment:
            if step == 0:
                raise AssertionError(f"booked at {moment}, before the profile begins at {self.times[0]}")
            self.times.insert(step, moment)
            self.free.insert(step, self.free[step - 1])
        return step
