"""A file of work for ``hcs simulate``: a list of jobs, or the manifests people have already.

Everything becomes a pod and goes through admission as it would in the cluster, so that what is refused there is
refused here, with the same sentence.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from hcs.cli.errors import USAGE, CommandError
from hcs.model import names
from hcs.model.pods import Pod
from hcs.model.refusals import Refusal, RefusedError
from hcs.model.requests import read_request
from hcs.simulate.work import Work

EXAMPLE: Final = """\
jobs:
  - name: train            # a row of the answer
    count: 4               # copies, default 1
    arrive: 10m            # when the first comes, default 0
    every: 30s             # between copies, default 0
    duration: 2h           # default: it stays
    priority: 100          # higher is tried first, default 0
    cpu: 8                 # of the node, default 0
    memory: 64Gi
    asks: {vram: 40Gi, acu: 50}                    # ai.compute/... resources
    notes: {vendors: nvidia, workload: finetune}   # ai.compute/... annotations
  - manifest: pod.yaml     # or what you would apply
    duration: 1h
"""

MOST_PODS: Final = 200_000
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "": 1.0}
_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d|)")


class Job(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry. Times are seconds, or texts like ``90m``."""

    name: str = ""
    count: int = 1
    arrive: str | float = 0.0
    every: str | float = 0.0
    duration: str | float | None = None
    priority: int = 0
    cpu: str | float = 0
    memory: str | int = 0
    asks: dict[str, str | int] = {}
    notes: dict[str, str | int | bool] = {}
    manifest: str = ""


class JobsError(ValueError):
    """A jobs file that cannot be used; the message says where and how to mend it."""


def read_jobs(path: Path) -> tuple[Work, ...]:
    """Read a jobs file.

    Raises:
        CommandError: unreadable, or not what it should be.
    """
    try:
        return tuple(_read(path))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, msgspec.ValidationError, ValueError) as error:
        raise CommandError(
            f"cannot use the jobs file {path}",
            " ".join(str(error).split()),
            "hcs simulate --example      prints one",
            code=USAGE,
        ) from error


def work_of(pod: Pod, name: str | None = None) -> Work:
    """Work that is as the pod asks: for pods that were admitted already."""
    try:
        cpu, memory = _node_resources(pod)
        return Work(name or pod.key, read_request(pod), job=name or pod.key, cpu=cpu, memory=memory)
    except RefusedError as error:
        return Work(name or pod.key, job=name or pod.key, refusals=error.refusals)


def _read(path: Path) -> Iterator[Work]:
    documents = [d for d in yaml.safe_load_all(path.read_text()) if d is not None]
    if not documents:
        raise JobsError("it is empty")
    made = 0
    for number, document in enumerate(documents, 1):
        if not isinstance(document, dict):
            raise JobsError(f"document {number} is a {type(document).__name__}; a mapping with jobs: is expected")
        if "jobs" in document:
            if extra := sorted(set(document) - {"jobs"}):
                raise JobsError(f"document {number} has {', '.join(map(str, extra))} beside jobs")
            jobs = msgspec.convert(document["jobs"], list[Job])
        elif "kind" in document:
            jobs = [Job()]
        else:
            raise JobsError(f"document {number} has neither jobs: nor kind:")
        for place, job in enumerate(jobs, 1):
            where = f"job {job.name or place}"
            if not 1 <= job.count <= MOST_PODS:
                raise JobsError(f"{where}: count is {job.count}; it must be 1 to {MOST_PODS}")
            for work in _copies(job, where, path, document if "kind" in document else None):
                made += 1
                if made > MOST_PODS:
                    raise JobsError(f"more than {MOST_PODS} pods; simulate fewer at once")
                yield work


def _copies(job: Job, where: str, path: Path, document: dict[str, Any] | None) -> Iterator[Work]:
    if job.manifest and (job.asks or job.notes):
        raise JobsError(f"{where}: manifest stands beside asks or notes; a manifest says both itself")
    if job.manifest or document is not None:
        sources = [document] if document is not None else _documents(path.parent / job.manifest)
        pods = [pod for source in sources for pod in _pods(source)]
        if not pods:
            raise JobsError(f"{where}: no pod in {job.manifest or path}")
    else:
        pods = [(job.name or where.replace(" ", "-"), 1, _pod(job, where))]
    arrive, every = _seconds(job.arrive, where), _seconds(job.every, where)
    duration = None if job.duration is None else _seconds(job.duration, where)
    for name, copies, raw in pods:
        admitted = _admit(raw, job.name or name, job.priority)
        total = job.count * copies
        for copy in range(total):
            yield msgspec.structs.replace(
                admitted,
                name=f"{admitted.job}-{copy + 1}" if total > 1 else admitted.job,
                arrive=arrive + copy * every,
                duration=duration,
            )


def _admit(raw: dict[str, Any], name: str, priority: int) -> Work:
    from hcs.injector.mutation import mutate
    from hcs.injector.settings import Settings
    from hcs.ura.catalogue import load_catalogue

    try:
        pod = msgspec.convert(mutate(raw, load_catalogue(), Settings()), Pod)
    except RefusedError as error:
        return Work(name, job=name, refusals=error.refusals)
    work = work_of(pod, name)
    if work.request is None and not work.refusals:
        refusal = Refusal("NothingAsked", f"no container asks for {names.VRAM}, {names.CARDS} or a total")
        return msgspec.structs.replace(work, refusals=(refusal,))
    return msgspec.structs.replace(work, priority=priority)


def _pod(job: Job, where: str) -> dict[str, Any]:
    if not job.asks:
        raise JobsError(f"{where}: it asks for nothing; write asks: {{vram: 16Gi}}")
    resources = {_ours(key): value for key, value in job.asks.items()}
    node = {key: value for key, value in (("cpu", job.cpu), ("memory", job.memory)) if value}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": job.name or "job",
            "namespace": "default",
            "annotations": {_ours(key): _text(value) for key, value in job.notes.items()},
        },
        "spec": {
            "containers": [
                {"name": "main", "image": "any", "resources": {"limits": resources, "requests": {**resources, **node}}}
            ]
        },
    }


def _documents(path: Path) -> list[dict[str, Any]]:
    found = [d for d in yaml.safe_load_all(path.read_text()) if isinstance(d, dict)]
    return [item for d in found for item in (d.get("items") or [] if d.get("kind") == "List" else [d])]


def _pods(document: Mapping[str, Any]) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """The pods a manifest would make: name, how many, and the pod."""
    metadata = document.get("metadata") or {}
    spec = document.get("spec") or {}
    name = str(metadata.get("name") or metadata.get("generateName") or "pod")
    if document.get("kind") == "Pod":
        yield name, 1, {"apiVersion": "v1", "kind": "Pod", **document}
        return
    template = spec.get("template") if isinstance(spec, dict) else None
    if not isinstance(template, dict) or not template.get("spec"):
        return
    at_once = spec.get("parallelism", spec.get("replicas", 1))
    if document.get("kind") == "Job" and spec.get("completions") is not None:
        at_once = min(at_once, spec["completions"])
    if not isinstance(at_once, int) or not 0 <= at_once <= MOST_PODS:
        raise JobsError(f"{document.get('kind')} {name}: {at_once!r} pods; a count up to {MOST_PODS} is expected")
    made = {"name": name, "namespace": metadata.get("namespace", "default"), **(template.get("metadata") or {})}
    if at_once:
        yield name, at_once, {"apiVersion": "v1", "kind": "Pod", "metadata": made, "spec": template["spec"]}


def _node_resources(pod: Pod) -> tuple[int, int]:
    """Thousandths of a core, and bytes."""
    from hcs.kube.amounts import requested

    asked = requested(msgspec.to_builtins(pod.spec))
    return asked.get("cpu", 0), asked.get("memory", 0) // 1000


def _seconds(value: str | float, where: str) -> float:
    """Read seconds.

    >>> _seconds("90m", "job x"), _seconds(3, "job x")
    (5400.0, 3.0)
    """
    match = _DURATION.fullmatch(str(value).strip())
    if match is None:
        raise JobsError(f"{where}: cannot read {value!r} as a time; write it like 90s, 45m or 2h")
    return float(match[1]) * _UNITS[match[2]]


def _ours(key: str) -> str:
    return key if "/" in key else f"{names.DOMAIN}/{key}"


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
