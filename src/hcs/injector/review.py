"""One AdmissionReview in, one out: the wire format around :mod:`hcs.injector.mutation`.

Only the creation of a pod is ours to judge. Should a broadened configuration send anything else, it is let through
untouched: no mistake in a webhook's rules may stop the rest of a cluster.
"""

import base64
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from hcs.injector.mutation import mutate
from hcs.injector.patches import difference
from hcs.injector.settings import Settings
from hcs.model.refusals import RefusedError
from hcs.ura.catalogue import Catalogue

Outcome = Literal["mutated", "untouched", "refused", "not-ours"]
MAX_MESSAGE: Final = 4096
"""Characters of the sentences in one answer; kubectl prints them all."""


class ReviewError(ValueError):
    """The body is no AdmissionReview we can answer; the message says what was expected."""


class Verdict(msgspec.Struct, frozen=True):
    """The AdmissionReview to send, and for metrics and logs: what came of it and whose pod it was."""

    reply: dict[str, Any]
    outcome: Outcome
    pod: str
    user: str
    message: str = ""


def answer(body: bytes, catalogue: Catalogue, settings: Settings) -> Verdict:
    """Answer one review.

    Args:
        body: the request's JSON.
        catalogue: the card models that exist.
        settings: the site's choices.

    Raises:
        ReviewError: the body is not an ``admission.k8s.io/v1`` AdmissionReview.
    """
    request = _decode(body)
    response: dict[str, Any] = {"uid": request["uid"], "allowed": True}
    reply = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
    user = request.get("userInfo")
    who = {"pod": _name(request), "user": str(user.get("username", "")) if isinstance(user, Mapping) else ""}
    if not _creates_pod(request):
        return Verdict(reply, "not-ours", **who)
    pod = request["object"]
    try:
        operations = difference(pod, mutate(pod, catalogue, settings))
    except RefusedError as error:
        message = "; ".join(str(refusal) for refusal in error.refusals)
        message = message if len(message) <= MAX_MESSAGE else f"{message[: MAX_MESSAGE - 3]}..."
        response["allowed"] = False
        response["status"] = {
            "status": "Failure",
            "code": 400,
            "reason": error.refusals[0].reason,
            "message": message,
        }
        return Verdict(reply, "refused", **who, message=message)
    except RecursionError as error:
        raise ReviewError("the pod is nested too deeply to be one") from error
    if not operations:
        return Verdict(reply, "untouched", **who)
    response["patchType"] = "JSONPatch"
    response["patch"] = base64.b64encode(msgspec.json.encode(operations)).decode()
    return Verdict(reply, "mutated", **who)


def _decode(body: bytes) -> Mapping[str, Any]:
    """The review's ``request``, checked as far as the answer needs it."""
    try:
        review = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ReviewError(f"the body is not JSON: {error}") from error
    if not isinstance(review, dict) or review.get("apiVersion") != "admission.k8s.io/v1":
        raise ReviewError("expected an AdmissionReview of admission.k8s.io/v1")
    request = review.get("request")
    if not isinstance(request, dict) or not isinstance(request.get("uid"), str):
        raise ReviewError("the AdmissionReview has no request with a uid")
    if not isinstance(request.get("kind"), dict) or not isinstance(request.get("operation"), str):
        raise ReviewError("the AdmissionReview does not say what is done to which kind")
    if _creates_pod(request) and not isinstance(request.get("object"), dict):
        raise ReviewError("the AdmissionReview has no object, or one that is not a Pod")
    return request


def _creates_pod(request: Mapping[str, Any]) -> bool:
    kind = request["kind"]
    of_pods = kind.get("kind") == "Pod" and not kind.get("group")
    return of_pods and request["operation"] == "CREATE" and not request.get("subResource")


def _name(request: Mapping[str, Any]) -> str:
    """``namespace/name``; a controller's pod has no name yet, and its namespace may stand in the request alone."""
    pod = request.get("object")
    metadata = pod.get("metadata") if isinstance(pod, Mapping) else None
    metadata = metadata if isinstance(metadata, Mapping) else {}
    name = request.get("name") or metadata.get("name") or f"{metadata.get('generateName') or ''}*"
    return f"{request.get('namespace') or metadata.get('namespace') or 'default'}/{name}"
