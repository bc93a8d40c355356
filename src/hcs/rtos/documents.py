"""The three forms in which people write what a guest should get: OCI ``config.json``, a Pod manifest, and the compact
form of the planner. All three become the same thing, :class:`Asked`.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from hcs.model.refusals import Refusal, RefusedError
from hcs.rtos.annotations import full_key, is_infra
from hcs.rtos.configuration import Config, read_config
from hcs.rtos.hosts import Host, read_host
from hcs.rtos.planning import Mode
from hcs.rtos.podresources import resources_of
from hcs.rtos.resources import Resources, malformed, read_resources

_COMPACT: Final = ("cpu", "mem", "ann", "config", "host", "mode")
_TEMPLATED: Final = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob")


class Asked(msgspec.Struct, frozen=True):
    """One guest as asked for: everything the planner takes, and the container's name where there is one."""

    resources: Resources
    annotations: dict[str, str]
    config: Config
    host: Host
    mode: Mode = "strict"
    name: str = ""


def read_document(raw: Any, config: Config, host: Host, mode: Mode = "strict") -> tuple[Asked, ...]:
    """Read one document in any of the three forms.

    Args:
        raw: decoded JSON or YAML.
        config: holds where the document says nothing of it.
        host: the same.
        mode: the same.

    Returns:
        The guests; a Pod has one for each container.

    Raises:
        RefusedError: the document is none of the three forms, or a value in it has the wrong type.
    """
    if not isinstance(raw, Mapping):
        raise RefusedError(malformed("the document", raw, "an object: OCI config.json, a Pod, or the compact form"))
    kind = raw.get("kind")
    if kind == "Pod":
        return _pod(raw, config, host, mode)
    if kind in _TEMPLATED:
        job = _object(_object(raw, "spec"), "jobTemplate") if kind == "CronJob" else raw
        return _pod(_object(_object(job, "spec"), "template"), config, host, mode)
    if kind is not None:
        raise RefusedError(Refusal("MalformedDocument", f"a {kind!r:.40} has no container; give a Pod"))
    if "ociVersion" in raw or "linux" in raw or "process" in raw:
        annotations = _texts(_object(raw, "annotations"))
        return (Asked(read_resources(_object(_object(raw, "linux"), "resources")), annotations, config, host, mode),)
    return (_compact(raw, config, host, mode),)


def read_change(raw: Any, before: Asked) -> Asked:
    """Read an update: a document in any form, or bare OCI resources, of which only what is named changes.

    Raises:
        RefusedError: as :func:`read_document`.
    """
    if isinstance(raw, Mapping) and "memory" in raw and not {"mem", "ociVersion", "linux", "kind"} & raw.keys():
        return msgspec.structs.replace(before, resources=read_resources(raw))
    changes = read_document(raw, before.config, before.host, before.mode)
    change = next((one for one in changes if one.name == before.name), changes[0])
    return msgspec.structs.replace(change, annotations={**before.annotations, **change.annotations})


def _compact(raw: Mapping[str, Any], config: Config, host: Host, mode: Mode) -> Asked:
    for key in raw:
        if key not in _COMPACT:
            raise RefusedError(Refusal("UnknownKey", f"{str(key)[:60]!r}: known keys are {', '.join(_COMPACT)}"))
    given = raw.get("mode")
    if given not in (None, "strict", "lenient"):
        raise RefusedError(malformed("mode", given, "strict or lenient"))
    cpu, memory = _object(raw, "cpu"), _object(raw, "mem")
    for name, section, known in (
        ("cpu", cpu, ("shares", "quota", "period", "cpus")),
        ("mem", memory, ("limit", "reservation")),
    ):
        for key in section:
            if key not in known:
                raise RefusedError(Refusal("UnknownKey", f"{name}.{str(key)[:60]}: known keys are {', '.join(known)}"))
    annotations = {full_key(str(key)): _text(str(key), value) for key, value in _object(raw, "ann").items()}
    facts = {**_facts(host), **{key: value for key, value in _object(raw, "host").items() if value is not None}}
    return Asked(
        resources=read_resources({"cpu": cpu, "memory": memory}),
        annotations={key: value for key, value in annotations.items() if value is not None},
        config=read_config(_object(raw, "config"), config),
        host=read_host(facts),
        mode=cast(Mode, given or mode),
    )


def _facts(host: Host) -> dict[str, Any]:
    return {**{name: getattr(host, name) for name in host.__struct_fields__}, "dom0_cpus": str(host.dom0_cpus)}


def _pod(raw: Mapping[str, Any], config: Config, host: Host, mode: Mode) -> tuple[Asked, ...]:
    annotations = _texts(_object(_object(raw, "metadata"), "annotations"))
    containers = _object(raw, "spec").get("containers")
    if not isinstance(containers, list) or not containers or not all(isinstance(c, Mapping) for c in containers):
        raise RefusedError(malformed("spec.containers", containers, "a list with a container at least"))
    if is_infra(annotations):
        raise RefusedError(Refusal("MalformedDocument", "the annotations are those of a pause container: no guest"))
    return tuple(
        Asked(resources_of(one, str(one.get("name", ""))), annotations, config, host, mode, str(one.get("name", "")))
        for one in containers
    )


def _object(raw: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = raw.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise RefusedError(malformed(key, value, "an object"))
    return value


def _texts(raw: Mapping[str, Any]) -> dict[str, str]:
    for key, value in raw.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise RefusedError(malformed(f"annotations, {str(key)[:80]}", value, "a text; write it in quotes"))
    return dict(raw)


def _text(key: str, value: Any) -> str | None:
    """A value of the compact form as the annotation would have it; booleans and numbers are accepted."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    raise RefusedError(malformed(f"ann.{key[:60]}", value, "a text, a number, true or false"))
