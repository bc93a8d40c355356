"""One AdmissionReview in, one out: the wire format around :mod:`hcs.injector.mutation`."""

import base64
from collections.abc import Mapping
from typing import Any

import jsonpatch
import msgspec

from hcs.injector.mutation import Settings, mutate
from hcs.model.refusals import RefusedError
from hcs.ura.catalogue import Catalogue


class ReviewError(ValueError):
    """The body is no AdmissionReview we can answer; the message says what was expected."""


def answer(body: bytes, catalogue: Catalogue, settings: Settings) -> tuple[dict[str, Any], str]:
    """Answer one review.

    Args:
        body: the request's JSON.
        catalogue: the card models that exist.
        settings: the site's choices.

    Returns:
        The AdmissionReview to send, and the outcome in one word (``mutated``, ``untouched``, ``refused``).

    Raises:
        ReviewError: the body is not an ``admission.k8s.io/v1`` AdmissionReview of a pod.
    """
    review = _decode(body)
    request = review["request"]
    pod = request["object"]
    response: dict[str, Any] = {"uid": request["uid"], "allowed": True}
    outcome = "untouched"
    try:
        changed = mutate(pod, catalogue, settings)
        operations = jsonpatch.make_patch(pod, changed).patch
        if operations:
            outcome = "mutated"
            response["patchType"] = "JSONPatch"
            response["patch"] = base64.b64encode(msgspec.json.encode(operations)).decode()
    except RefusedError as error:
        outcome = "refused"
        message = "; ".join(f"{refusal.reason}: {refusal.message}" for refusal in error.refusals)
        response["allowed"] = False
        response["status"] = {
            "status": "Failure",
            "code": 400,
            "reason": error.refusals[0].reason,
            "message": message[:4096],
        }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}, outcome


def _decode(body: bytes) -> Mapping[str, Any]:
    try:
        review = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise ReviewError(f"the body is not JSON: {error}") from error
    if not isinstance(review, dict) or review.get("apiVersion") != "admission.k8s.io/v1":
        raise ReviewError("expected an AdmissionReview of admission.k8s.io/v1")
    request = review.get("request")
    if not isinstance(request, dict) or not isinstance(request.get("uid"), str):
        raise ReviewError("the AdmissionReview has no request with a uid")
    if not isinstance(request.get("object"), dict) or request["object"].get("kind", "Pod") != "Pod":
        raise ReviewError("the AdmissionReview's object is not a Pod")
    return review
