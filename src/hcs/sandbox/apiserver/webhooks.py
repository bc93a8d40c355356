"""Admission webhooks: who is called, in which order, and what happens when one fails.

Promises: mutating webhooks run one after the other by configuration name, then by place, each seeing the previous
one's changes; ``reinvocationPolicy: IfNeeded`` gets a second look; validating ones run after validation. Certificates
are always checked against ``caBundle`` and the service's name. A ``service`` reference is looked up in a map from
``NAMESPACE/NAME`` to a loopback URL, since the sandbox has no cluster network.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import httpx2
import msgspec

from hcs.kube.transport import Transport
from hcs.sandbox.apiserver import expressions, patch
from hcs.sandbox.apiserver.attempts import Attempt, NamespaceLookup, concerns, selected
from hcs.sandbox.apiserver.status import ApiError, JsonObject, forbidden, internal
from hcs.sandbox.apiserver.storage import Store

_EXEMPT = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations", "validatingadmissionpolicies",
           "validatingadmissionpolicybindings")  # fmt: skip
_HEADERS = {
    "Accept": "application/json, */*",
    "Content-Type": "application/json",
    "User-Agent": "kube-apiserver-admission",
}


class UnreachableError(Exception):
    """A webhook gave no usable answer; its failure policy decides."""


class Webhooks:
    """Calls the webhooks configured in the store."""

    def __init__(self, store: Store, namespace: NamespaceLookup, services: Mapping[str, str]) -> None:
        self._store, self._namespace, self._services = store, namespace, services
        self._clients: dict[str, httpx2.AsyncClient] = {}

    async def close(self) -> None:
        for client in self._clients.values():
            await client.aclose()
        self._clients.clear()

    async def mutate(self, attempt: Attempt, refresh: Callable[[JsonObject], JsonObject]) -> list[str]:
        """Let mutating webhooks change ``attempt.object``; ``refresh`` sets defaults on it. Returns warnings."""
        warnings: list[str] = []
        changed_after: list[JsonObject] = []
        called: list[JsonObject] = []
        for webhook in self._concerned("mutatingwebhookconfigurations", attempt):
            if await self._mutate_with(webhook, attempt, refresh, warnings):
                changed_after = [*called]
            called.append(webhook)
        for webhook in changed_after:
            if webhook.get("reinvocationPolicy") == "IfNeeded":
                await self._mutate_with(webhook, attempt, refresh, warnings)
        return warnings

    async def validate(self, attempt: Attempt) -> list[str]:
        """Ask validating webhooks; the first refusal is raised. Returns warnings."""
        warnings: list[str] = []
        concerned = list(self._concerned("validatingwebhookconfigurations", attempt))
        for webhook, answer in zip(
            concerned, await asyncio.gather(*(self._ask(hook, attempt) for hook in concerned)), strict=True
        ):
            if answer is not None:
                _refuse_if_denied(webhook["name"], answer)
                warnings += answer.get("warnings") or []
        return warnings

    def _concerned(self, configurations: str, attempt: Attempt) -> Iterator[JsonObject]:
        if attempt.resource.plural in _EXEMPT:
            return
        for stored in self._store.objects(f"{configurations}.admissionregistration.k8s.io"):
            for webhook in stored.object.get("webhooks") or ():
                if concerns(webhook.get("rules") or [], attempt) and selected(webhook, attempt, self._namespace):
                    yield webhook

    async def _mutate_with(
        self, webhook: JsonObject, attempt: Attempt, refresh: Callable[[JsonObject], JsonObject], warnings: list[str]
    ) -> bool:
        answer = await self._ask(webhook, attempt)
        if answer is None:
            return False
        _refuse_if_denied(webhook["name"], answer)
        warnings += answer.get("warnings") or []
        if not answer.get("patch") or attempt.object is None:
            return False
        try:
            changed = patch.apply_json_patch(attempt.object, answer["patch"])
        except ApiError:
            raise internal("the JSON patch of the webhook does not fit the object") from None
        changed = refresh(changed)
        differs = changed != attempt.object
        attempt.object = changed
        return differs

    async def _ask(self, webhook: JsonObject, attempt: Attempt) -> JsonObject | None:
        """The webhook's ``response``, or None when it is not concerned or its failure is to be ignored."""
        try:
            if not self._conditions_hold(webhook, attempt):
                return None
            return await self._call(webhook, attempt)
        except UnreachableError as error:
            if webhook.get("failurePolicy") == "Ignore":
                return None
            raise internal(f'failed calling webhook "{webhook["name"]}": {error}') from None

    def _conditions_hold(self, webhook: JsonObject, attempt: Attempt) -> bool:
        """One false condition skips the webhook; otherwise an error in any of them is a failure of the webhook."""
        failure = ""
        for condition in webhook.get("matchConditions") or ():
            try:
                if expressions.evaluate(condition["expression"], attempt.expression_scope()) is not True:
                    return False
            except expressions.ExpressionError as error:
                failure = f"expression '{condition['expression']}' resulted in error: {error}"
        if failure and webhook.get("failurePolicy") == "Ignore":
            return False
        if failure:
            raise forbidden(attempt.resource.plural, attempt.resource.group, attempt.name, failure)
        return True

    async def _call(self, webhook: JsonObject, attempt: Attempt) -> JsonObject:
        seconds = webhook.get("timeoutSeconds", 10)
        url, server_name = self._address(webhook["clientConfig"], seconds)
        uid = str(uuid.uuid4())
        review = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": attempt.review(uid)}
        address = f"{url}{'&' if '?' in url else '?'}timeout={seconds}s"
        extensions = {"sni_hostname": server_name} if server_name else {}
        try:
            async with asyncio.timeout(seconds):
                reply = await self._client(webhook["clientConfig"].get("caBundle", "")).post(
                    address, content=msgspec.json.encode(review), headers=_HEADERS, extensions=extensions
                )
        except TimeoutError:
            raise UnreachableError(f'failed to call webhook: Post "{address}": context deadline exceeded') from None
        except (httpx2.HTTPError, ssl.SSLError, OSError) as error:
            why = _network_error(address, error)
            raise UnreachableError(f'failed to call webhook: Post "{address}": {why}') from None
        if reply.status_code != 200:
            raise UnreachableError(
                f"failed to call webhook: the server answered {reply.status_code} {reply.text[:99]!r}"
            )
        try:
            response: JsonObject = msgspec.json.decode(reply.content)["response"]
            answered = response["uid"]
        except (msgspec.DecodeError, KeyError, TypeError):
            raise UnreachableError("received invalid webhook response: no AdmissionReview with a response") from None
        if answered != uid:
            why = f'expected response.uid="{uid}", got "{answered}"'
            raise UnreachableError(f"received invalid webhook response: {why}")
        if response.get("patch"):
            response["patch"] = _operations(response)
        return response

    def _address(self, config: JsonObject, seconds: int) -> tuple[str, str]:
        service = config.get("service")
        if not service:
            return str(config["url"]), ""
        reference = f"{service['namespace']}/{service['name']}"
        base = self._services.get(reference)
        path = "/" + str(service.get("path", "/")).lstrip("/")
        if base is None:
            host = f"{service['name']}.{service['namespace']}.svc:{service.get('port', 443)}"
            address = f"https://{host}{path}?timeout={seconds}s"
            raise UnreachableError(f'failed to call webhook: Post "{address}": service "{service["name"]}" not found')
        return base.rstrip("/") + path, f"{service['name']}.{service['namespace']}.svc"

    def _client(self, bundle: str) -> httpx2.AsyncClient:
        if bundle not in self._clients:
            authorities = base64.b64decode(bundle).decode() if bundle else None
            context = ssl.create_default_context(cadata=authorities)
            self._clients[bundle] = httpx2.AsyncClient(
                transport=Transport(verify=context), timeout=None, trust_env=False
            )
        return self._clients[bundle]


def _operations(response: JsonObject) -> list[JsonObject]:
    """The JSON patch of a response. Raises UnreachableError, so that the failure policy decides about a broken one."""
    if not response.get("patchType"):
        why = "webhook returned response.patch but not response.patchType"
        raise UnreachableError(f"received invalid webhook response: {why}")
    try:
        return msgspec.json.decode(base64.b64decode(response["patch"]), type=list[JsonObject])
    except (ValueError, msgspec.DecodeError) as error:
        raise UnreachableError(f"received undecodable patch in webhook response: {error}") from None


def _network_error(address: str, error: Exception) -> str:
    """A failed connection in the words of a real server."""
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return f"tls: failed to verify certificate: x509: {str(error).rpartition('failed: ')[2]}"
    if isinstance(error, httpx2.ConnectError):
        return f"dial tcp {address.split('/')[2]}: connect: connection refused"
    return str(error) or type(error).__name__


def _refuse_if_denied(name: str, answer: JsonObject) -> None:
    if answer.get("allowed"):
        return
    status: dict[str, Any] = answer.get("status") or {}
    why = status.get("message") or status.get("reason")
    text = f'admission webhook "{name}" denied the request' + (f": {why}" if why else " without explanation")
    reason, details = status.get("reason") or "", status.get("details")
    code = status.get("code") or 400
    raise ApiError(code if 400 <= code <= 600 else 400, reason, text, details)
