"""How much accelerator memory a running job was seen to hold, by its cluster's metrics.

Only a job that has its cards to itself can be measured so: what the exporter says of a card is then what the job holds.
A reading counts when it was taken while the job ran; after a pod ends its memory still shows for a while. Pure.
"""

from collections.abc import Iterable, Sequence

from hcs.cpn.collect.cards import CardReading
from hcs.model.allocations import allocation_of
from hcs.model.pods import Pod
from hcs.wide.jobs import Bytes, Milliseconds


class Peaks:
    """The most that was seen, by the UID of the Job."""

    def __init__(self) -> None:
        self._seen: dict[str, Bytes] = {}

    def of(self, uid: str) -> Bytes | None:
        """The most that one card of the Job was seen to hold; None: it was never measured."""
        return self._seen.get(uid)

    def see(
        self, uid: str, pods: Iterable[Pod], readings: Sequence[CardReading], ago: Milliseconds, *, ran: Milliseconds
    ) -> None:
        """Take in readings that were asked for so long ``ago``; ``ran`` is for how long the pods run already.

        What an exporter may have looked at before that says something about who had the card then.
        """
        devices = {
            grant.device
            for pod in pods
            if (held := allocation_of(pod)) is not None
            for grants in held.containers.values()
            for grant in grants
        }
        most = max(
            (
                reading.used
                for reading in readings
                if reading.device in devices and reading.used is not None and reading.age + reading.lag + ago < ran
            ),
            default=0,
        )
        if most > self._seen.get(uid, 0):
            self._seen[uid] = most

    def forget(self, uid: str) -> None:
        """It is over."""
        self._seen.pop(uid, None)
