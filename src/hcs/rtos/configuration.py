"""The node's configuration of RTOS guests: what annotations do not say.

Files are INI or TOML, as the Go runtimes read them. A key that a file does not contain keeps its former value, so
several files add up. The keys below the line are this project's own.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, cast

import msgspec

from hcs.model.refusals import Refusal, RefusedError
from hcs.rtos.words import INT32_MAX, read_bool, read_whole

VcpuPolicy = Literal["single", "cpuset", "capacity"]
POLICIES: Final = ("single", "cpuset", "capacity")


class Config(msgspec.Struct, frozen=True):
    """Everything a site decides. Memory is MiB; 0 and empty mean "not given".

    ``static_resource`` None means the pedestal's default: true on OpenAMP, false elsewhere. ``container_maxmem`` is the
    largest limit a container may ask for. ``max_client_number`` 0 is no limit of the number of guests.
    """

    static_resource: bool | None = None
    max_client_number: int = 0
    debug: bool = False
    state_dir: str = ""
    pause_image: str = ""
    max_container_vcpu: int = 8
    sandbox_minimum_vcpu: int = 1
    hugepage_enable: bool = False
    exclusive_dom0_cpu: bool = False
    container_minmem: int = 32
    container_maxmem: int = 0
    firmware_path: str = ""
    shared_cpu_pool: bool = False
    enable_host_container: bool = False

    vcpu_policy: VcpuPolicy = "single"
    mica_directory: str = "/run/mica"
    mica_layout: str = "current"
    mica_timeout: int = 10
    mica_start_timeout: int = 30
    console_timeout: int = 30
    daemon_grace: int = 30
    pedestal: str = ""
    pcpus: int = 0
    total_memory_mb: int = 0
    dom0_cpus: str = ""
    xl: str = "xl"


_COUNTS_FROM_ONE: Final = frozenset({"max_container_vcpu", "mica_timeout", "mica_start_timeout"})
_TYPES: Final[dict[str, str]] = {
    field.name: "bool"
    if field.name == "static_resource" or isinstance(field.default, bool)
    else "int"
    if isinstance(field.default, int)
    else "text"
    for field in msgspec.structs.fields(Config)
}


def read_config(raw: Mapping[str, Any], before: Config = Config()) -> Config:  # noqa: B008 - frozen
    """Read keys and values over what held before.

    Args:
        raw: values as JSON or TOML has them, or all as texts.
        before: what holds for keys that are absent.

    Raises:
        RefusedError: ``UnknownKey`` or ``MalformedConfig``.
    """
    changes: dict[str, Any] = {}
    for key, value in raw.items():
        kind = _TYPES.get(key)
        if kind is None:
            raise RefusedError(Refusal("UnknownKey", f"config.{str(key)[:60]}: known keys are {', '.join(_TYPES)}"))
        if value is not None:
            changes[key] = _READERS[kind](key, value)
    return msgspec.structs.replace(before, **changes)


def read_config_text(text: str, before: Config, *, name: str) -> Config:
    """Read one configuration file's text, INI or TOML; sections only group. Unknown keys are another program's.

    Raises:
        RefusedError: ``MalformedConfig``, with the file's name.
    """
    import configparser  # here, because both readers cost the OCI runtime time at each start, and few nodes need them

    raw = _toml(text)
    if raw is None:
        parser = configparser.ConfigParser(interpolation=None, strict=False, inline_comment_prefixes=("#", ";"))
        try:
            parser.read_string(text if text.lstrip().startswith("[") else f"[micrun]\n{text}")
        except configparser.Error as error:
            reason = " ".join(str(error).split())
            raise RefusedError(Refusal("MalformedConfig", f"{name}: neither INI nor TOML: {reason[:200]}")) from error
        raw = {key: value.strip("\"'") for section in parser.sections() for key, value in parser.items(section)}
    try:
        return read_config({key: value for key, value in raw.items() if key in _TYPES}, before)
    except RefusedError as error:
        refusal = error.refusals[0]
        raise RefusedError(Refusal(refusal.reason, f"{name}: {refusal.message}")) from error


def _toml(text: str) -> dict[str, Any] | None:
    import tomllib

    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None
    flat: dict[str, Any] = {}
    for key, value in found.items():
        flat.update(value if isinstance(value, dict) else {key: value})
    return flat


def _refused(key: str, value: Any, expected: str) -> RefusedError:
    return RefusedError(Refusal("MalformedConfig", f"config.{key}: expected {expected}, got {value!r:.60}"))


def _bool(key: str, value: Any) -> bool:
    read = value if isinstance(value, bool) else read_bool(str(value))
    if read is None:
        raise _refused(key, value, "true or false")
    return read


def _int(key: str, value: Any) -> int:
    read = read_whole(value)
    least = 1 if key in _COUNTS_FROM_ONE else 0
    if read is None or not least <= read <= INT32_MAX:
        raise _refused(key, value, f"a whole number, {least} or more")
    return read


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _refused(key, value, "a text")
    if key == "vcpu_policy" and value not in POLICIES:
        raise _refused(key, value, f"one of {', '.join(POLICIES)}")
    return value


_READERS: Final = cast("dict[str, Callable[[str, Any], Any]]", {"bool": _bool, "int": _int, "text": _text})
