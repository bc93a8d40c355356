"""Kubernetes ``Status`` objects: how the API server says no.

Promises: code, reason, message and details read as those of a real API server (recorded from 1.36), because clients
branch on them: lightkube on the code, kubectl on the reason, our router on 409. One class, one constructor per
refusal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

JsonObject = dict[str, Any]


class Cause(msgspec.Struct, frozen=True):
    """One broken field of an invalid object. ``kind`` is Kubernetes' ``FieldValue…`` reason."""

    field: str
    kind: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def required(field: str, why: str = "") -> Cause:
    return Cause(field, "FieldValueRequired", f"Required value: {why}" if why else "Required value")


def invalid_value(field: str, value: object, why: str) -> Cause:
    return Cause(field, "FieldValueInvalid", f"Invalid value: {quoted(value)}: {why}")


def forbidden_field(field: str, why: str) -> Cause:
    return Cause(field, "FieldValueForbidden", f"Forbidden: {why}")


def unsupported(field: str, value: object, choices: Sequence[object]) -> Cause:
    listed = ", ".join(quoted(choice) for choice in choices)
    return Cause(field, "FieldValueNotSupported", f"Unsupported value: {quoted(value)}: supported values: {listed}")


def duplicate(field: str, value: object) -> Cause:
    return Cause(field, "FieldValueDuplicate", f"Duplicate value: {quoted(value)}")


def too_long(field: str, most: int) -> Cause:
    return Cause(field, "FieldValueTooLong", f"Too long: may not be more than {most} bytes")


def quoted(value: object) -> str:
    """A value as Go prints it inside messages: strings in quotes, everything else as JSON."""
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return msgspec.json.encode(value).decode()


class ApiError(Exception):
    """A refusal. ``body`` is the Status object for the wire."""

    def __init__(self, code: int, reason: str, message: str, details: JsonObject | None = None) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.details = code, reason, message, details

    @property
    def body(self) -> JsonObject:
        status: JsonObject = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        status["code"] = self.code
        return status


def success(code: int = 200, details: JsonObject | None = None) -> JsonObject:
    status: JsonObject = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details is not None:
        status["details"] = details
    else:
        status["code"] = code
    return status


def _details(plural: str, group: str, name: str) -> JsonObject:
    details: JsonObject = {"name": name}
    if group:
        details["group"] = group
    details["kind"] = plural
    return details


def _qualified(plural: str, group: str) -> str:
    return f"{plural}.{group}" if group else plural


def not_found(plural: str, group: str, name: str) -> ApiError:
    message = f'{_qualified(plural, group)} "{name}" not found'
    return ApiError(404, "NotFound", message, _details(plural, group, name))


def no_such_path() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(plural: str, group: str, name: str) -> ApiError:
    message = f'{_qualified(plural, group)} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, _details(plural, group, name))


STALE = "the object has been modified; please apply your changes to the latest version and try again"


def conflict(plural: str, group: str, name: str, why: str = STALE) -> ApiError:
    message = f'Operation cannot be fulfilled on {_qualified(plural, group)} "{name}": {why}'
    return ApiError(409, "Conflict", message, _details(plural, group, name))


def failed_precondition(plural: str, group: str, key: str, name: str, field: str, asked: str, seen: str) -> ApiError:
    """A uid or resourceVersion precondition that does not hold, in the words of the real storage layer."""
    why = (
        f"StorageError: invalid object, Code: 4, Key: /registry/{key}, ResourceVersion: 0, AdditionalErrorMsg: "
        f"Precondition failed: {field} in precondition: {asked}, {field} in object meta: {seen}"
    )
    return conflict(plural, group, name, why)


def invalid(kind: str, group: str, name: str, causes: Sequence[Cause]) -> ApiError:
    text = str(causes[0]) if len(causes) == 1 else "[" + ", ".join(str(cause) for cause in causes) + "]"
    subject = f"{kind}.{group}" if group else kind
    details = _details(kind, group, name)
    if not name:
        del details["name"]
    details["causes"] = [{"reason": cause.kind, "message": cause.message, "field": cause.field} for cause in causes]
    return ApiError(422, "Invalid", f'{subject} "{name}" is invalid: {text}', details)


def forbidden(plural: str, group: str, name: str, why: str) -> ApiError:
    subject = f'{_qualified(plural, group)} "{name}"' if name else _qualified(plural, group)
    return ApiError(403, "Forbidden", f"{subject} is forbidden: {why}", _details(plural, group, name))


def read_integer(query: Mapping[str, str], parameter: str) -> int:
    """A whole number in a query; 0 where it is not given. Raises ApiError 400."""
    text = query.get(parameter) or "0"
    try:
        return int(text)
    except ValueError:
        raise bad_request(f'{parameter}: strconv.ParseInt: parsing "{text[:80]}": invalid syntax') from None


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def unauthorized() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized")


def internal(message: str) -> ApiError:
    causes = {"causes": [{"message": message}]}
    return ApiError(500, "InternalError", f"Internal error occurred: {message}", causes)


class PathUnknownError(ApiError):
    """A path below no group we serve: the real server answers this one in plain text."""

    def __init__(self) -> None:
        super().__init__(404, "NotFound", "404 page not found\n")


def method_not_allowed() -> ApiError:
    return ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def unsupported_media(supported: Sequence[str], *, patch: bool = False) -> ApiError:
    message = f"the body of the request was in an unknown format - accepted media types include: {', '.join(supported)}"
    if patch:
        message = "415: Unsupported Media Type"
    return ApiError(415, "UnsupportedMediaType", message, {})


def expired(message: str) -> ApiError:
    return ApiError(410, "Expired", message)


def too_many_requests(message: str, causes: Sequence[JsonObject], retry_seconds: int = 0) -> ApiError:
    details: JsonObject = {"causes": list(causes)}
    if retry_seconds:
        details["retryAfterSeconds"] = retry_seconds
    return ApiError(429, "TooManyRequests", message, details)
