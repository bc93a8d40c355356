"""How an attempt ended: done, out of accelerator memory, out of host memory, or failed by itself.

The two kinds of memory ask for different answers: what ran out on the card must be dispatched with more of
``ai.compute/vram``, what the kernel killed needs a larger limit of host memory. A container that was killed for host
memory says so in its status (reason ``OOMKilled``, exit code 137); frameworks tell of accelerator memory only in their
log and end with an ordinary code. So the status is asked first, then the end of the log, with the messages of the
frameworks as data. Pure.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

import msgspec

from hcs.kube.resources import Job
from hcs.model.pods import Pod

Kind = Literal["Completed", "AcceleratorOutOfMemory", "HostOutOfMemory", "DeadlineExceeded", "JobFailed"]
KILLED: Final = 137
"""128 + SIGKILL."""


class Pattern(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One framework's way to say that memory ran out; ``memory`` says whose. ``source``: where that is written."""

    framework: str
    regex: str
    source: str
    memory: Literal["accelerator", "host"] = "accelerator"


class Ending(msgspec.Struct, frozen=True):
    """The end of an attempt; ``exit_code`` where a container gave one."""

    kind: Kind
    message: str
    exit_code: int | None = None

    @property
    def succeeded(self) -> bool:
        """Whether the work is done."""
        return self.kind == "Completed"


class Messages:
    """The table of messages, ready to search with."""

    def __init__(self, patterns: Iterable[Pattern]) -> None:
        self._patterns = [(pattern, re.compile(pattern.regex, re.IGNORECASE)) for pattern in patterns]

    def find(self, log: str) -> tuple[Pattern, str] | None:
        """The last line that says memory ran out, and whose message it is."""
        for line in reversed(log.splitlines()):
            for pattern, regex in self._patterns:
                if regex.search(line):
                    return pattern, line.strip()[:300]
        return None


def over(job: Job) -> str | None:
    """``Complete`` or ``Failed`` where the Job says so; None while it does not."""
    for condition in job.status.get("conditions") or ():
        if condition.get("type") in ("Complete", "Failed") and condition.get("status") == "True":
            return str(condition["type"])
    return None


def ending(job: Job, pods: Sequence[Pod], log: str, messages: Messages) -> Ending:
    """How a Job that is over ended.

    Args:
        job: with its final condition.
        pods: those of it that can still be seen.
        log: the end of the failed container's log; empty where it could not be had.
        messages: the frameworks' words.
    """
    if over(job) == "Complete":
        return Ending("Completed", "the Job completed", 0)
    reason, text = _failed_condition(job)
    ended = failed_container(pods)
    code = ended.get("exitCode") if ended is not None else None
    if ended is not None and ended.get("reason") == "OOMKilled":
        return Ending("HostOutOfMemory", "the kernel killed the container: host memory ran out (OOMKilled)", code)
    if (found := messages.find(log)) is not None:
        pattern, line = found
        kind: Kind = "AcceleratorOutOfMemory" if pattern.memory == "accelerator" else "HostOutOfMemory"
        return Ending(kind, f"{pattern.framework} ran out of {pattern.memory} memory: {line}", code)
    if any(pod.status.reason == "Evicted" and "memory" in (pod.status.message or "").lower() for pod in pods):
        return Ending("HostOutOfMemory", "the node was short of memory and evicted the pod", code)
    if code == KILLED:
        message = "the container was killed (137) without a word of accelerator memory: host memory is the usual cause"
        return Ending("HostOutOfMemory", message, code)
    if reason == "DeadlineExceeded":
        return Ending("DeadlineExceeded", f"the Job was active for longer than it allows itself: {text}", code)
    said = f"exit code {code}" if code is not None else text or reason or "the Job failed"
    return Ending("JobFailed", f"the program ended with {said}" if code is not None else said, code)


def failed_container(pods: Iterable[Pod]) -> dict[str, Any] | None:
    """The ``terminated`` state of the container that failed; one that was killed for memory before others."""
    found: list[dict[str, Any]] = []
    for pod in pods:
        for status in pod.status.containerStatuses or ():
            for field in ("state", "lastState"):
                ended = (status.get(field) or {}).get("terminated")
                if ended and (ended.get("exitCode") != 0 or ended.get("reason") == "OOMKilled"):
                    found.append({**ended, "container": status.get("name"), "pod": pod.metadata.name})
    return min(found, key=lambda ended: ended.get("reason") != "OOMKilled", default=None)


def _failed_condition(job: Job) -> tuple[str, str]:
    for condition in job.status.get("conditions") or ():
        if condition.get("type") == "Failed" and condition.get("status") == "True":
            return str(condition.get("reason") or ""), str(condition.get("message") or "")
    return "", ""


def why_pending(pods: Iterable[Pod]) -> str:
    """What its cluster says about a pod that does not run: it has no node, or a container waits for something."""
    for pod in pods:
        for condition in pod.status.conditions or ():
            if condition.type == "PodScheduled" and condition.status == "False" and condition.message:
                return condition.message
        for status in pod.status.containerStatuses or ():
            waiting = (status.get("state") or {}).get("waiting") or {}
            if waiting.get("message"):
                return f"container {status.get('name')} waits ({waiting.get('reason')}): {waiting['message']}"
    return ""
