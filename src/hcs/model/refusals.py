"""Why not: a CamelCase reason for machines and a sentence for people.

The same pair reaches the admission answer, the pod's event and condition, the log line and ``hcs why``. Sentences that
kube-scheduler sees must be stable while the facts are: a text that changes between calls makes it retry without a
pause, so a sentence names what was asked and what the card is, never a free amount, a counter or a time.
"""

import msgspec


class Refusal(msgspec.Struct, frozen=True, order=True):
    """One "no". ``reason`` is CamelCase; ``message`` is one sentence that says what was asked and what would help."""

    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"


class RefusedError(ValueError):
    """Raised where a request cannot be understood or granted; carries the refusals, at least one."""

    def __init__(self, *refusals: Refusal) -> None:
        super().__init__("; ".join(str(refusal) for refusal in refusals))
        self.refusals = refusals
