"""A Job manifest as somebody sent it: bytes of YAML or JSON in, plain data out, or a sentence that says what is wrong.

It is read as kubectl reads it, with two differences: a moment stays the text that was written, and a key that stands
twice is a mistake. What could make a small file large (aliases) or a program deep (nesting) is refused before anything
is built from it.
"""

import json
import math
import re
from typing import Any, Final, NoReturn

import msgspec
import yaml

from hcs.model.refusals import Refusal, RefusedError

MAX_BYTES: Final = 512 * 1024
"""An API server takes objects of 1.5 MiB at most, and the Job must still hold what we add."""
MAX_DEPTH: Final = 64
MAX_PARTS: Final = 50_000
_SHOWN: Final = 80

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NUMBERS: Final = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_EMPTY: Final = ("", "~", "null")
"""What an empty document holds, such as the one behind a last line of dashes."""
_DROPPED: Final = (*_NUMBERS, "tag:yaml.org,2002:timestamp")


class _JobLoader(_Loader):  # type: ignore[misc]
    """Plain data only; ``1:30`` is text and not ninety, and digits without end stay text."""

    yaml_implicit_resolvers: Any = {  # noqa: RUF012 - the library's own attribute
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in _DROPPED]
        for first, resolvers in _Loader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"key {key.value[:_SHOWN]!r} stands twice", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


_JobLoader.add_implicit_resolver(
    _NUMBERS[0], re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})\Z|0x[0-9a-fA-F]{1,15}\Z"), list("-+0123456789")
)
_JobLoader.add_implicit_resolver(
    _NUMBERS[1],
    re.compile(
        r"[-+]?(?:[0-9]{1,30}\.[0-9]{0,30}|\.[0-9]{1,30}|[0-9]{1,30}(?=[eE]))(?:[eE][-+]?[0-9]{1,4})?\Z"
        r"|[-+]?\.(?:inf|Inf|INF)\Z|\.(?:nan|NaN|NAN)\Z"
    ),
    list("-+.0123456789"),
)


def read_manifest(raw: bytes) -> dict[str, Any]:
    """Read one document.

    Returns:
        Mappings with text as keys, lists, text, whole numbers of 64 bits, finite floats, booleans and None; it can be
        written as JSON and read again without a change.

    Raises:
        RefusedError: with one refusal.
    """
    if len(raw) > MAX_BYTES:
        _refuse("TooLarge", f"the manifest has {len(raw)} bytes, at most {MAX_BYTES} are read; keep data out of it")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        _refuse("NotText", f"byte {error.start} is not UTF-8; send YAML or JSON as UTF-8 text")
    document: Any
    try:
        document = msgspec.json.decode(text)
        json.loads(text, object_pairs_hook=_check_pairs)
    except RefusedError:
        raise
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        document = _read_yaml(text)
    if not isinstance(document, dict):
        seen = "nothing" if document is None else f"a {_KINDS.get(type(document), type(document).__name__)}"
        _refuse(
            "NotAJob",
            f"the manifest is {seen}, expected the fields of a Job: apiVersion, kind, metadata, spec; send one Job",
        )
    check_plain(document)
    return document


def _check_pairs(pairs: list[tuple[str, Any]]) -> None:
    """Of a JSON object; a decoder would take the last of equal keys without a word."""
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            _refuse("BrokenYaml", f"key {key[:_SHOWN]!r} stands twice in one object; keep one of them")
        seen.add(key)


def _read_yaml(text: str) -> Any:
    try:
        _check_events(text)
        return next((found for found in yaml.load_all(text, _JobLoader) if found is not None), None)
    except RefusedError:
        raise
    except yaml.YAMLError as error:
        _refuse("BrokenYaml", f"{_where(error)}; mend it there, or check it with kubectl create --dry-run=client -f")
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        # What the library's constructors raise for a value that does not suit its explicit tag.
        _refuse("BrokenYaml", f"a value cannot be read ({str(error)[:_SHOWN]}); write it plainly, without a tag")


def check_plain(document: dict[str, Any]) -> None:
    """Check that a document is plain data of sensible size, whoever built it.

    Raises:
        RefusedError: with one refusal that names the place.
    """
    parts = 0
    left: list[tuple[Any, str, int]] = [(document, "", 0)]
    while left:
        value, path, depth = left.pop()
        parts += 1
        if depth > MAX_DEPTH:
            _refuse("TooDeep", f"{path[:_SHOWN]} lies more than {MAX_DEPTH} levels deep; no Job does")
        if parts > MAX_PARTS:
            _refuse("TooLarge", f"the manifest has more than {MAX_PARTS} parts; keep data out of it")
        if isinstance(value, dict):
            for key, inner in value.items():
                if not isinstance(key, str):
                    _refuse("BadValue", f"key {_shown(key)} of {path or 'the manifest'} is not text; quote it")
                _check_scalar(key, path)
                left.append((inner, f"{path}.{key}" if path else key, depth + 1))
        elif isinstance(value, list):
            left.extend((inner, f"{path}[{index}]", depth + 1) for index, inner in enumerate(value))
        else:
            _check_scalar(value, path)


def _check_scalar(value: Any, path: str) -> None:
    match value:
        case bool() | None:
            return
        case str():
            if any("\ud800" <= letter <= "\udfff" or letter == "\0" for letter in value):
                _refuse("BadValue", f"{path[:_SHOWN]} holds letters that are no text; remove them")
        case int():
            if not -(2**63) <= value < 2**63:
                _refuse("BadValue", f"{path[:_SHOWN]} is a number of more than 64 bits; write a smaller one")
        case float():
            if not math.isfinite(value):
                _refuse("BadValue", f"{path[:_SHOWN]} is {value}, which is no number; write one, or quote it as text")
        case _:
            kind = type(value).__name__
            _refuse("BadValue", f"{path[:_SHOWN]} is of type {kind}, which JSON does not have; write it as text")


def _check_events(text: str) -> None:
    depth = documents = begun = 0
    for parts, event in enumerate(yaml.parse(text, Loader=_Loader)):
        line = event.start_mark.line + 1 if event.start_mark is not None else 0
        starts = isinstance(event, yaml.CollectionStartEvent)
        if isinstance(event, yaml.AliasEvent):
            _refuse("YamlAlias", f"line {line} has an alias (*{event.anchor}); write the value out")
        if isinstance(event, yaml.DocumentStartEvent):
            begun = line
        if depth == 0 and (starts or (isinstance(event, yaml.ScalarEvent) and event.value not in _EMPTY)):
            documents += 1
        depth += int(starts) - int(isinstance(event, yaml.CollectionEndEvent))
        if depth > MAX_DEPTH:
            _refuse("TooDeep", f"line {line} lies more than {MAX_DEPTH} levels deep; no Job does")
        if parts > 2 * MAX_PARTS:
            _refuse("TooLarge", f"the manifest has more than {MAX_PARTS} parts; keep data out of it")
        if documents > 1:
            _refuse("SeveralDocuments", f"a second document begins at line {begun}; submit one Job at a time")


def _where(error: yaml.YAMLError) -> str:
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be read"
    mark = getattr(error, "problem_mark", None)
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
    return place + " ".join(str(problem).split())[:200]


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def _refuse(reason: str, message: str) -> NoReturn:
    raise RefusedError(Refusal(reason, message))


_KINDS: Final = {list: "list", str: "text", int: "number", float: "number", bool: "truth value"}
