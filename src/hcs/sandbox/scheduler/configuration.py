"""The part of ``KubeSchedulerConfiguration`` that decides how an extender is called.

Read from the same file that configures the real scheduler: either the configuration itself, or a manifest with a
ConfigMap that holds it, so that the sandbox and a cluster cannot differ in it.
"""

from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

API_VERSION: Final = "kubescheduler.config.k8s.io/v1"
KIND: Final = "KubeSchedulerConfiguration"


class ConfigurationError(ValueError):
    """The file holds no usable configuration; the message says what was wrong and where."""


class ManagedResource(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A resource that makes a pod the extender's business."""

    name: str
    ignored_by_scheduler: bool = False


class Extender(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One entry of ``extenders``; an empty verb is not offered. ``http_timeout`` is a Go duration."""

    url_prefix: str
    filter_verb: str = ""
    prioritize_verb: str = ""
    bind_verb: str = ""
    preempt_verb: str = ""
    weight: int = 1
    enable_https: bool = msgspec.field(default=False, name="enableHTTPS")
    http_timeout: str = msgspec.field(default="5s", name="httpTimeout")
    node_cache_capable: bool = False
    managed_resources: tuple[ManagedResource, ...] = ()
    ignorable: bool = False

    @property
    def timeout(self) -> float:
        """Seconds each call may take."""
        return parse_duration(self.http_timeout)

    def url(self, verb: str) -> str:
        """Where a verb is called."""
        return f"{self.url_prefix.rstrip('/')}/{verb}"

    def wants(self, resource_names: frozenset[str]) -> bool:
        """Whether a pod that names these resources concerns it; without managed resources every pod does."""
        return not self.managed_resources or any(managed.name in resource_names for managed in self.managed_resources)


class Profile(msgspec.Struct, frozen=True, rename="camel"):
    """A scheduler name that pods may give."""

    scheduler_name: str = "default-scheduler"


class Configuration(msgspec.Struct, frozen=True, rename="camel"):
    """What of the file matters here; leader election, clients and plugins are the real scheduler's own business."""

    api_version: str = API_VERSION
    profiles: tuple[Profile, ...] = (Profile(),)
    extenders: tuple[Extender, ...] = ()
    pod_initial_backoff_seconds: float = 1.0
    pod_max_backoff_seconds: float = 10.0

    @property
    def ignored(self) -> frozenset[str]:
        """Resources that the node checks leave to the extenders."""
        return frozenset(
            managed.name
            for extender in self.extenders
            for managed in extender.managed_resources
            if managed.ignored_by_scheduler
        )

    @property
    def schedulers(self) -> frozenset[str]:
        """The scheduler names served."""
        return frozenset(profile.scheduler_name for profile in self.profiles)


def read_configuration(text: str) -> Configuration:
    """Find and read the configuration in a YAML text.

    Raises:
        ConfigurationError: none or several found, or one that the real scheduler would refuse.
    """
    try:
        found = [document for document in yaml.safe_load_all(text) if isinstance(document, dict)]
        for document in list(found):
            if document.get("kind") == "ConfigMap":
                found.extend(_embedded(document))
        found = [document for document in found if document.get("kind") == KIND]
        if len(found) != 1:
            raise ConfigurationError(f"expected one {KIND}, found {len(found)}")
        configuration = msgspec.convert(found[0], Configuration)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise ConfigurationError(f"cannot read the scheduler's configuration: {error}") from error
    if configuration.api_version != API_VERSION:
        raise ConfigurationError(f"apiVersion {configuration.api_version!r}, expected {API_VERSION!r}")
    if sum(bool(extender.bind_verb) for extender in configuration.extenders) > 1:
        raise ConfigurationError("only one extender may bind")
    for extender in configuration.extenders:
        parse_duration(extender.http_timeout)
        if extender.prioritize_verb:
            raise ConfigurationError(f"{extender.url_prefix}: the verb prioritize is not imitated")
        if extender.filter_verb and not extender.node_cache_capable:
            raise ConfigurationError(f"{extender.url_prefix}: only extenders with nodeCacheCapable: true are imitated")
    return configuration


def load_configuration(path: Path, *, extender_url: str | None = None) -> Configuration:
    """Read a file.

    Args:
        path: YAML.
        extender_url: replaces every extender's ``urlPrefix``, where the port is only known at run time.

    Raises:
        ConfigurationError: see :func:`read_configuration`; also when the file cannot be read.
    """
    try:
        configuration = read_configuration(path.read_text())
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from error
    if extender_url is None:
        return configuration
    extenders = tuple(
        msgspec.structs.replace(extender, url_prefix=extender_url) for extender in configuration.extenders
    )
    return msgspec.structs.replace(configuration, extenders=extenders)


_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(text: str) -> float:
    """Read a Go duration of one unit into seconds.

    >>> parse_duration("30s"), parse_duration("1500ms")
    (30.0, 1.5)
    """
    for unit in ("ms", "s", "m", "h"):
        number = text.removesuffix(unit)
        if number != text and number.replace(".", "", 1).isdecimal():
            return float(number) * _UNITS[unit]
    raise ConfigurationError(f"cannot read {text!r} as a duration; write it like 30s or 500ms")


def _embedded(config_map: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        document
        for text in (config_map.get("data") or {}).values()
        for document in yaml.safe_load_all(text)
        if isinstance(document, dict)
    ]
