"""Why the store says no: each error carries one refusal with a reason and a sentence, as every other "no" here."""

from hcs.model.refusals import Refusal, RefusedError
from hcs.wide.entries import Entry


class StoreError(RefusedError):
    """The store could not do what was asked; what was there before is unchanged."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(Refusal(reason, message))

    @property
    def refusal(self) -> Refusal:
        """The one refusal."""
        return self.refusals[0]


class StoreDamagedError(StoreError):
    """The file is not, or no longer, a queue. It is left as it is."""


class StoreBusyError(StoreError):
    """Another process writes this queue."""


class NotWritableError(StoreError):
    """The change could not be written down (disk full, read-only, I/O error), so it did not happen."""


class UnknownEntryError(StoreError):
    """There is no such entry."""


class KeyReusedError(StoreError):
    """A client key that was given with another manifest before; ``entry`` is the one it stands for."""

    def __init__(self, reason: str, message: str, entry: Entry) -> None:
        super().__init__(reason, message)
        self.entry = entry


class KeySpentError(StoreError):
    """A client key whose job ended so long ago that the queue does not keep it any more."""


class StaleEntryError(StoreError):
    """The change was made from an older version.

    ``current`` is the entry as it stands. ``repeated``: it stands exactly as the change would have left it, so the
    caller repeats what it did already, and lost the answer.
    """

    def __init__(self, reason: str, message: str, current: Entry, *, repeated: bool) -> None:
        super().__init__(reason, message)
        self.current, self.repeated = current, repeated


class ForbiddenTransitionError(StoreError):
    """The state machine of :mod:`hcs.wide.lifecycle` has no such step; the message holds the entry's history."""
