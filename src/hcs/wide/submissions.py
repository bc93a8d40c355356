"""What a Job manifest asks of the queue, read once when it is submitted.

A manifest that could never run is refused with every reason found, so that people mend all at once. One that merely
says too little is taken, and the cautions say what that costs: without a model name, for instance, nothing can be
predicted and the first run is a probe. Pure: the moment comes in, and nothing is asked of any cluster.
"""

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn, TypeVar

import msgspec

from hcs.model.pods import Pod
from hcs.model.refusals import Refusal, RefusedError
from hcs.wide.amounts import (
    AmountError,
    read_data_size,
    read_deadline,
    read_inputs,
    read_number,
    read_priority,
    shown,
)
from hcs.wide.entries import Submission
from hcs.wide.jobs import Blob, Milliseconds
from hcs.wide.manifests import check_plain
from hcs.wide.needs import read_needs

MODEL: Final = "model_name"
DATA_SIZE: Final = "data_size"
EPOCH: Final = "epoch"
BATCH_SIZE: Final = "batch_size"
DEADLINE: Final = "deadline"
PRIORITY: Final = "priority"
INPUTS: Final = "inputs"
KEY: Final = "idempotency_key"
ANNOTATIONS: Final = {
    MODEL: "what is run; runs of one model predict the next",
    DATA_SIZE: "samples, say, or a size like 20Gi; alike for a model",
    EPOCH: "how often it goes through the data",
    BATCH_SIZE: "samples in one step on one card",
    DEADLINE: "2030-01-31T18:00:00Z, or a time from now like 6h",
    PRIORITY: "a whole number; higher goes first, 0 is usual",
    INPUTS: "sha256:DIGEST=2Gi, ...: to be moved there first",
    KEY: "a key of your own: with it there is never a second job",
}
"""Annotations of the Job, or of its pod template, and what they mean."""

LONGEST_KEY: Final = 255
_LONGEST_MODEL: Final = 200
_MOVABLE: Final = re.compile(r"sha256:[0-9a-f]{64}")
_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
T = TypeVar("T")


class Asked(msgspec.Struct, frozen=True):
    """A submission, what it leaves open (reasons and sentences), and the client's key where the manifest has one."""

    submission: Submission
    cautions: tuple[Refusal, ...] = ()
    key: str | None = None


class _Template(msgspec.Struct, frozen=True):
    metadata: dict[str, Any] | None = None
    spec: dict[str, Any] | None = None


class _JobSpec(msgspec.Struct, frozen=True):
    template: _Template = _Template()
    parallelism: int | None = None
    completions: int | None = None


class _JobMetadata(msgspec.Struct, frozen=True):
    name: str | None = None
    generateName: str | None = None  # noqa: N815 - the API's own field name
    namespace: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, Any] | None = None


class _Job(msgspec.Struct, frozen=True):
    apiVersion: str = ""  # noqa: N815 - the API's own field name
    kind: str = ""
    metadata: _JobMetadata = _JobMetadata()
    spec: _JobSpec = _JobSpec()


def read_submission(manifest: Mapping[str, Any], now: Milliseconds) -> Asked:
    """Read a Job manifest.

    Args:
        manifest: plain data, as of :func:`hcs.wide.manifests.read_manifest` or of decoded JSON.
        now: milliseconds since 1970, for deadlines.

    Raises:
        RefusedError: with every reason found.
    """
    manifest = dict(manifest)
    check_plain(manifest)
    job = _converted(manifest)
    pod = _pod(job)
    refusals: list[Refusal] = []
    cautions: list[Refusal] = []
    name, namespace = _names(job.metadata, refusals)
    annotations = _annotations(job, refusals, cautions)
    needs = read_needs(pod, job.spec.template.spec or {}, job.spec.parallelism, job.spec.completions)
    refusals.extend(needs.refusals)

    def read(key: str, reason: str, reader: Callable[[Any], T]) -> T | None:
        if annotations.get(key) in (None, ""):
            return None
        try:
            return reader(annotations[key])
        except AmountError as error:
            refusals.append(Refusal(reason, f"annotation {key}: {error}"))
            return None

    model = read(MODEL, "BadModelName", _model) or ""
    data = read(DATA_SIZE, "BadDataSize", read_data_size)
    epochs = read(EPOCH, "BadEpoch", lambda value: read_number(value, most=1e9))
    batch = read(BATCH_SIZE, "BadBatchSize", lambda value: read_number(value, most=1e9))
    deadline = read(DEADLINE, "BadDeadline", lambda value: read_deadline(value, now))
    priority = read(PRIORITY, "BadPriority", read_priority)
    inputs: tuple[Blob, ...] = read(INPUTS, "BadInputs", read_inputs) or ()
    key = read(KEY, "BadKey", read_key)
    if refusals:
        raise RefusedError(*dict.fromkeys(refusals))
    samples = data[0] if data else None
    cautions += _cautions(model, data, epochs, priority, inputs, job.spec.template.spec or {})
    cautions += needs.cautions
    return Asked(
        Submission(
            name=name,
            namespace=namespace,
            model=model,
            batch=batch,
            steps=None if samples is None or epochs is None else epochs * samples / (batch or 1),
            samples=samples,
            epochs=epochs,
            cards=needs.cards,
            pods=needs.pods,
            memory=needs.memory,
            kinds=needs.kinds,
            cpu=needs.cpu,
            host_memory=needs.host_memory,
            priority=priority or 0,
            deadline=deadline,
            inputs=inputs,
        ),
        tuple(cautions),
        key,
    )


def read_key(value: Any) -> str:
    """Read a client's key.

    Raises:
        AmountError: empty, too long, or not printable.
    """
    text = value if isinstance(value, str) else str(value)
    if not 1 <= len(text) <= LONGEST_KEY or not text.isprintable() or text != text.strip():
        raise AmountError(f"{shown(value)} is no key; use 1 to {LONGEST_KEY} printable letters, a UUID for example")
    return text


def annotation(manifest: Mapping[str, Any], key: str) -> Any:
    """What an annotation of a manifest is, wherever it stands; None where the manifest is too broken to have any."""
    spec = manifest.get("spec")
    for holder in (manifest, spec.get("template") if isinstance(spec, dict) else None):
        metadata = holder.get("metadata") if isinstance(holder, Mapping) else None
        annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
        if isinstance(annotations, Mapping) and key in annotations:
            return annotations[key]
    return None


def _converted(manifest: dict[str, Any]) -> _Job:
    kind = manifest.get("kind")
    if kind != "Job" or manifest.get("apiVersion") != "batch/v1":
        version = manifest.get("apiVersion")
        seen = f"{shown(kind)} of {shown(version) if version else 'no apiVersion'}" if kind else "without a kind"
        hint = "submit the items one by one" if kind == "List" else "write apiVersion: batch/v1 and kind: Job"
        _refuse("NotAJob", f"the manifest is {seen}, expected a Job of batch/v1; {hint}")
    for field in ("metadata", "spec"):
        if manifest.get(field) is None:
            manifest[field] = {}
    if isinstance(spec := manifest["spec"], dict) and spec.get("template") is None:
        _refuse("NoPodTemplate", "the Job has no spec.template; it says what to run")
    try:
        return msgspec.convert(manifest, _Job)
    except msgspec.ValidationError as error:
        _refuse("MalformedJob", f"the Job cannot be read: {_plainly(error)}")


def _pod(job: _Job) -> Pod:
    template = job.spec.template
    metadata = dict(template.metadata or {})
    if isinstance(annotations := metadata.get("annotations"), dict):
        metadata["annotations"] = {key: _text(value) for key, value in annotations.items() if key not in ANNOTATIONS}
    try:
        pod = msgspec.convert({"metadata": metadata, "spec": template.spec or {}}, Pod)
    except msgspec.ValidationError as error:
        _refuse("MalformedJob", f"the Job's pod template cannot be read: {_plainly(error)}")
    if not pod.spec.containers:
        _refuse("NoContainer", "spec.template.spec.containers is empty; a Job needs a container to run")
    nameless = [container for container in pod.spec.containers if not container.name or not container.image]
    if nameless:
        _refuse("NoContainer", "a container lacks its name or its image; a cluster would refuse the Job")
    return pod


def _names(metadata: _JobMetadata, refusals: list[Refusal]) -> tuple[str, str]:
    name = metadata.name or (metadata.generateName or "").rstrip("-.")
    namespace = metadata.namespace or "default"
    if not name:
        refusals.append(Refusal("NoName", "the Job has no metadata.name; give it one, the same may be used again"))
    for what, text in (("metadata.name", name), ("metadata.namespace", namespace)):
        if text and (_LABEL.fullmatch(text) is None or (what == "metadata.namespace" and "." in text)):
            refusals.append(
                Refusal(
                    "BadName",
                    f"{what} {shown(text)} is no name in Kubernetes; use at most 63 small letters, digits and dashes"
                    + (f", it has {len(text)}" if len(text) > 63 else ""),
                )
            )
    return name, namespace


def _annotations(job: _Job, refusals: list[Refusal], cautions: list[Refusal]) -> dict[str, Any]:
    """Ours, from the Job or its pod template, and what looks as if it were meant to be one of them."""
    of_job, of_pod = job.metadata.annotations or {}, (job.spec.template.metadata or {}).get("annotations") or {}
    found = {}
    for key in ANNOTATIONS:
        if key in of_job and key in of_pod and _text(of_job[key]) != _text(of_pod[key]):
            refusals.append(
                Refusal(
                    "ContradictoryAnnotations",
                    f"annotation {key} is {shown(of_job[key])} on the Job and {shown(of_pod[key])} on its pod "
                    "template; keep one",
                )
            )
        found[key] = of_job.get(key, of_pod.get(key))
    for key in sorted({*of_job, *of_pod} - ANNOTATIONS.keys()):
        plain = key.lower().replace("-", "_").rpartition("/")[2][:40]
        close = difflib.get_close_matches(plain, ANNOTATIONS, n=1, cutoff=0.8)
        if close and "." not in key and found.get(close[0]) is None:
            cautions.append(
                Refusal("UnknownAnnotation", f"annotation {shown(key)} means nothing here; did you mean {close[0]}?")
            )
    return found


def _cautions(
    model: str,
    data: tuple[float, bool] | None,
    epochs: float | None,
    priority: int | None,
    inputs: tuple[Blob, ...],
    spec: Mapping[str, Any],
) -> list[Refusal]:
    made = []
    if not model:
        made.append(
            Refusal(
                "NoModelName",
                f"annotation {MODEL} is missing: nothing can be learnt for it or from it, so it is planned with the "
                "widest interval and never shares a card",
            )
        )
    missing = [key for key, value in ((DATA_SIZE, data), (EPOCH, epochs)) if value is None]
    if missing:
        made.append(
            Refusal(
                "UnknownWork",
                f"{' and '.join(missing)} not said: how much work it is "
                "remains unknown, and its time is predicted from whole runs of its model",
            )
        )
    if data is not None and data[1]:
        made.append(
            Refusal("DataSizeInBytes", f"{DATA_SIZE} is a size: say it as a size in all jobs of this model, or in none")
        )
    unmovable = [blob.digest for blob in inputs if _MOVABLE.fullmatch(blob.digest) is None]
    if unmovable:
        made.append(
            Refusal(
                "InputNotMovable",
                f"{INPUTS}: {', '.join(unmovable[:3])[:120]} is no content that a store could fetch (sha256: and 64 "
                "hexadecimal digits); where there are stores, it only runs where one holds it",
            )
        )
    if priority is None and (kind := spec.get("priorityClassName")):
        made.append(
            Refusal(
                "PriorityClassUnknown",
                f"what priority class {shown(kind)} is worth is known to each cluster alone; "
                f"for the queue, write annotation {PRIORITY}",
            )
        )
    return made


def _model(value: Any) -> str:
    text = _text(value).strip()
    if not 1 <= len(text) <= _LONGEST_MODEL or not text.isprintable():
        raise AmountError(f"{shown(value)} is no name of a model; use at most {_LONGEST_MODEL} printable letters")
    return text


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _plainly(error: msgspec.ValidationError) -> str:
    return str(error).replace("`", "").replace(" - at $.", ", at ").replace(" - at $", "")[:200]


def _refuse(reason: str, message: str) -> NoReturn:
    raise RefusedError(Refusal(reason, message))
