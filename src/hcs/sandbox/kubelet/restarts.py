"""Whether and when a container that ended starts again: the rules of ``restartPolicy``, without a clock."""

from typing import Final

import msgspec

ALWAYS: Final = "Always"
ON_FAILURE: Final = "OnFailure"
NEVER: Final = "Never"


def restarts(policy: str | None, exit_code: int) -> bool:
    """Whether a container that ended with this code starts again."""
    return (policy or ALWAYS) == ALWAYS or (policy == ON_FAILURE and exit_code != 0)


class BackOff(msgspec.Struct, frozen=True):
    """The pause before a restart, in seconds.

    A real kubelet begins with 10 s, doubles to 300 s and forgets after 600 s without trouble. The sandbox is quicker by
    default, since its programs run for seconds.
    """

    initial: float = 0.5
    longest: float = 10.0
    forget_after: float = 20.0

    def pause(self, crashes: int) -> float:
        """The pause before the next start after ``crashes`` ends in a row; the first restart is immediate."""
        return 0.0 if crashes <= 1 else min(self.longest, self.initial * 2.0 ** min(crashes - 2, 32))

    def crashes(self, before: int, ran: float) -> int:
        """How many ends in a row it is after one more, when the container ran for ``ran`` seconds."""
        return 1 if ran >= self.forget_after else before + 1
