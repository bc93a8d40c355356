"""What a kubelet writes into a pod's status, as a pure function of what its containers do.

The rules are the kubelet's: a container that waits for its restart counts as one that ended, a pod with
``restartPolicy: Always`` stays Running meanwhile, and a pod that Succeeded or Failed never changes its phase again.
Conditions that others write, ``PodScheduled`` for one, are left to them: the patch names only ours.
"""

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from hcs.model import pods
from hcs.sandbox.kubelet.restarts import restarts

HOST_IP: Final = "127.0.0.1"
UNKNOWN_END: Final = "ContainerStatusUnknown"


class Waiting(msgspec.Struct, frozen=True):
    """The container does not run; ``reason`` says why."""

    reason: str = "ContainerCreating"
    message: str = ""


class Running(msgspec.Struct, frozen=True):
    """The container runs."""

    started: datetime.datetime


class Terminated(msgspec.Struct, frozen=True):
    """The container ended."""

    exit_code: int
    reason: str
    message: str = ""
    started: datetime.datetime | None = None
    finished: datetime.datetime | None = None


State = Waiting | Running | Terminated
PENDING: Final = Waiting()
INITIALIZING: Final = Waiting("PodInitializing")


class ContainerRecord(msgspec.Struct):
    """What is known about one container; the only thing here that changes."""

    state: State = PENDING
    last: Terminated | None = None
    restarts: int = 0
    crashes: int = 0
    begun: bool = False  # whether it ever started: the next start is a restart
    container_id: str = ""


def ended(exit_code: int, started: datetime.datetime, finished: datetime.datetime) -> Terminated:
    """The state of a container whose process ended."""
    return Terminated(exit_code, "Completed" if exit_code == 0 else "Error", "", started, finished)


def phase(pod: pods.Pod, inits: Sequence[ContainerRecord], mains: Sequence[ContainerRecord]) -> str:
    """The pod's phase."""
    policy = pod.spec.restartPolicy
    if pod.status.phase in ("Succeeded", "Failed"):
        return pod.status.phase
    for record in inits:
        if _succeeded(record.state):
            continue
        failed = isinstance(record.state, Terminated) and not restarts(policy, record.state.exit_code)
        return "Failed" if failed else "Pending"
    ends = [record.state if isinstance(record.state, Terminated) else record.last for record in mains]
    if any(isinstance(record.state, Running) for record in mains):
        return "Running"
    if any(end is None for end in ends):
        return "Pending"
    waiting = any(isinstance(record.state, Waiting) for record in mains)
    codes = [end.exit_code for end in ends if end is not None]
    if waiting or any(restarts(policy, code) for code in codes):
        return "Running"
    return "Failed" if any(codes) else "Succeeded"


class Conditions:
    """The conditions a kubelet owns; ``lastTransitionTime`` moves only when the status does."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Any]] = {}

    def update(self, kind: str, status: bool, now: datetime.datetime, reason: str = "", message: str = "") -> None:
        """Set one condition."""
        word, before = str(status), self._known.get(kind)
        since = before["lastTransitionTime"] if before and before["status"] == word else stamp(now)
        told: dict[str, str | None] = {"reason": reason, **({"message": message} if message else {})} if reason else {}
        if before and "reason" in before:
            told = {"reason": None, "message": None, **told}  # null takes away what an earlier patch wrote
        self._known[kind] = {"type": kind, "status": word, "lastTransitionTime": since, **told}

    def all(self) -> list[dict[str, Any]]:
        """All of them."""
        return [dict(condition) for condition in self._known.values()]


def pod_status(
    pod: pods.Pod,
    inits: Mapping[str, ContainerRecord],
    mains: Mapping[str, ContainerRecord],
    *,
    conditions: Conditions,
    started: datetime.datetime,
    now: datetime.datetime,
    final: bool = False,
) -> dict[str, Any]:
    """The status of a pod, as a patch.

    Args:
        pod: as last read.
        inits: what is known of its init containers.
        mains: what is known of its containers.
        conditions: of this pod; they are brought up to date.
        started: when the kubelet took the pod.
        now: the time.
        final: the pod is deleted and nothing of it runs any more, so its phase is a final one.
    """
    word = phase(pod, list(inits.values()), list(mains.values()))
    if final and word not in ("Succeeded", "Failed"):
        ends = [record.state for record in mains.values()]
        word = "Succeeded" if ends and all(_succeeded(state) for state in ends) else "Failed"
    initialized = all(_succeeded(record.state) for record in inits.values())
    unready = [name for name, record in mains.items() if not isinstance(record.state, Running)]
    over = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(word)
    if initialized:
        conditions.update("Initialized", True, now, "PodCompleted" if word == "Succeeded" else "")
    else:
        names = [name for name, record in inits.items() if not _succeeded(record.state)]
        text = f"containers with incomplete status: [{' '.join(names)}]"
        conditions.update("Initialized", False, now, "ContainersNotInitialized", text)
    for kind in ("ContainersReady", "Ready"):
        if over:
            conditions.update(kind, False, now, over)
        elif unready:
            text = f"containers with unready status: [{' '.join(unready)}]"
            conditions.update(kind, False, now, "ContainersNotReady", text)
        else:
            conditions.update(kind, True, now)
    status: dict[str, Any] = {
        "phase": word,
        "conditions": conditions.all(),
        "hostIP": HOST_IP,
        "hostIPs": [{"ip": HOST_IP}],
        "podIP": HOST_IP,
        "podIPs": [{"ip": HOST_IP}],
        "startTime": stamp(started),
        "containerStatuses": [
            _container(pod.spec.containers, name, record, ready=isinstance(record.state, Running))
            for name, record in mains.items()
        ],
    }
    if inits:
        status["initContainerStatuses"] = [
            _container(pod.spec.initContainers or [], name, record, ready=_succeeded(record.state))
            for name, record in inits.items()
        ]
    return status


def stamp(moment: datetime.datetime) -> str:
    """A moment as the API writes it, in whole seconds."""
    return moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def read_end(state: Mapping[str, Any]) -> Terminated | None:
    """The end that a written state tells of, or None when it tells of none."""
    end = state.get("terminated")
    if not isinstance(end, dict):
        return None
    return Terminated(
        int(end.get("exitCode", 0)),
        str(end.get("reason", "")),
        str(end.get("message", "")),
        _moment(end.get("startedAt")),
        _moment(end.get("finishedAt")),
    )


def recalled(written: Mapping[str, Any] | None, now: datetime.datetime, initial: State) -> ContainerRecord:
    """What a kubelet that starts anew makes of a container it does not run.

    One that ran, as the pod's status says, is over now in an unknown way: exit code 137, as after the crash of a real
    node. One that nothing is known of begins in the state ``initial``.
    """
    if written is None:
        return ContainerRecord(initial)
    state, container_id = written.get("state") or {}, str(written.get("containerID", ""))
    record = ContainerRecord(
        initial,
        last=read_end(written.get("lastState") or {}),
        restarts=int(written.get("restartCount", 0)),
        begun=bool(container_id),
        container_id=container_id,
    )
    if (end := read_end(state)) is not None:
        record.state = end
    elif isinstance(state.get("running"), dict):
        text = "the container was running when its kubelet ended"
        record.state = Terminated(137, UNKNOWN_END, text, _moment(state["running"].get("startedAt")), now)
    return record


def _container(
    containers: Sequence[pods.Container], name: str, record: ContainerRecord, *, ready: bool
) -> dict[str, Any]:
    image = next((container.image for container in containers if container.name == name), "")
    written: dict[str, Any] = {
        "name": name,
        "image": image,
        "imageID": image,
        "ready": ready,
        "started": isinstance(record.state, Running),
        "restartCount": record.restarts,
        "state": _state(record.state),
        "lastState": _state(record.last) if record.last is not None else {},
    }
    if record.container_id:
        written["containerID"] = record.container_id
    return written


def _state(state: State) -> dict[str, Any]:
    if isinstance(state, Waiting):
        return {"waiting": {"reason": state.reason, **({"message": state.message} if state.message else {})}}
    if isinstance(state, Running):
        return {"running": {"startedAt": stamp(state.started)}}
    end: dict[str, Any] = {"exitCode": state.exit_code, "reason": state.reason}
    if state.message:
        end["message"] = state.message
    if state.started:
        end["startedAt"] = stamp(state.started)
    if state.finished:
        end["finishedAt"] = stamp(state.finished)
    return {"terminated": end}


def _succeeded(state: State) -> bool:
    return isinstance(state, Terminated) and state.exit_code == 0


def _moment(text: Any) -> datetime.datetime | None:
    return datetime.datetime.fromisoformat(text) if isinstance(text, str) and text else None
