"""What each exporter calls its figures, in which unit, and how it names a card: data, so that a new one needs no code.

The tables come with the package (``data/metrics.yaml``); a site's own file changes fields of them, adds exporters, or
switches some off. A unit is never guessed where the vendor states one.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
import yaml

from hcs.cpn.collect.failures import tidy
from hcs.cpn.collect.plugins import UNITS
from hcs.model import names
from hcs.model.refusals import Refusal, RefusedError

BY_TOTAL: Final = "by-total"
MAX_FILE: Final = 1 << 20
_METRIC: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,199}")
_NODE_LABELS: Final = ("node", "kubernetes_node", "instance")

Strict = Mapping[str, Any]


class Utilization(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How busy a card is: names of the metric, the first that is there counts; ``full`` is the value of wholly busy."""

    metrics: tuple[str, ...]
    full: float = 100.0


class Memory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An amount of a card's memory, and its unit."""

    metrics: tuple[str, ...]
    unit: Literal["B", "KB", "KiB", "MB", "MiB", "GB", "GiB", "by-total"] = "B"


class Health(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether a card is well: by values that mean so, or by the fault codes of a vendor, the last of which is shown."""

    metrics: tuple[str, ...]
    healthy: tuple[float, ...] = ()
    unhealthy: tuple[float, ...] = ()
    codes_of: str = ""


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One exporter; the fields are explained in ``data/metrics.yaml``. A ``host`` one is about nodes and not cards."""

    name: str
    vendor: str = ""
    vendor_label: str = ""
    port: int | None = None
    host: bool = False
    identity: tuple[str, ...] = ()
    index: tuple[str, ...] = ()
    part: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    node: tuple[str, ...] = _NODE_LABELS
    utilization: Utilization | None = None
    used: Memory | None = None
    free: Memory | None = None
    total: Memory | None = None
    health: Health | None = None
    own_time: bool = False
    lag: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 0.0
    repeats: bool = False
    pulse: tuple[str, ...] = ()
    idle: str = ""
    available: str = ""
    memory: str = ""

    def metrics(self) -> Iterator[str]:
        """All names that are read as they are: those of cards, or the memory of hosts."""
        for part in (self.utilization, self.used, self.free, self.total, self.health):
            if part is not None:
                yield from part.metrics
        yield from (name for name in (self.available, self.memory) if name)


def load_sources(overlay: Path | None = None) -> tuple[Source, ...]:
    """The tables of the package, with what a site's own file changes.

    In that file a source that is ``null`` is switched off; another one's fields replace those of the package, and one
    that the package does not know is added.

    Raises:
        RefusedError: ``BadMetricsFile``, with the file, the exporter and what is wrong.
    """
    merged = dict(_shipped())
    if overlay is not None:
        for name, fields in _read(overlay).items():
            if fields is None:
                merged.pop(name, None)
            elif isinstance(fields, dict):
                merged[name] = {**merged.get(name, {}), **fields}
            else:
                raise _bad(overlay, f"{name} must be a mapping of fields, or null to switch it off")
    return tuple(_source(name, fields, overlay) for name, fields in merged.items())


@cache
def _shipped() -> dict[str, dict[str, Any]]:
    text = (files("hcs.cpn") / "data" / "metrics.yaml").read_text(encoding="utf-8")
    found: dict[str, dict[str, Any]] = yaml.safe_load(text)
    return found


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE + 1)
        if len(content) > MAX_FILE:
            raise _bad(path, f"it is larger than {MAX_FILE} bytes")
        found = yaml.safe_load(content.decode())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise _bad(path, tidy(str(error))) from error
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise _bad(path, "it must be a mapping from names of exporters to their fields")
    return found


def _source(name: str, fields: Mapping[str, Any], path: Path | None) -> Source:
    try:
        source = msgspec.convert({"name": name, **fields}, Source)
    except msgspec.ValidationError as error:
        raise _bad(path, f"{name}: {tidy(str(error))}") from error
    every = (*source.metrics(), *source.pulse, *(one for one in (source.idle,) if one))
    if wrong := [metric for metric in every if not _METRIC.fullmatch(metric)]:
        raise _bad(path, f"{name}: {tidy(wrong[0])!r} is no name of a metric")
    if not every:
        raise _bad(path, f"{name}: it names no metric")
    if not source.host and not source.identity:
        raise _bad(path, f"{name}: identity names no label that tells one card from another")
    if not source.host and not source.vendor_label and source.vendor not in names.VENDOR_WORDS:
        raise _bad(path, f"{name}: vendor {source.vendor!r} is none of {', '.join(names.VENDOR_WORDS)}")
    if source.utilization is not None and not 0 < source.utilization.full <= 1e6:
        raise _bad(path, f"{name}: full must be above 0, such as 100 for percent")
    units = {part.unit for part in (source.used, source.free, source.total) if part is not None}
    if BY_TOTAL in units and (source.total is None or units != {BY_TOTAL}):
        raise _bad(path, f"{name}: by-total needs a total, and the same word for every amount")
    return source


def _bad(path: Path | None, what: str) -> RefusedError:
    return RefusedError(Refusal("BadMetricsFile", f"metrics file {path or 'of the package'}: {what}"))


assert BY_TOTAL not in UNITS
