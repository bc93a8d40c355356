"""Calls to an extender, as kube-scheduler makes them: capitalised field names, any status but 200 is an error.

An answer that names a node it was not asked about fails the whole call, as in the real one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import httpx2
import msgspec

from hcs.sandbox.scheduler.configuration import Extender
from hcs.sandbox.scheduler.objects import WholePod


class ExtenderError(RuntimeError):
    """A call failed; the message is what the pod's condition will say."""


class FilterAnswer(msgspec.Struct, frozen=True):
    """Which of the asked nodes are left, and a text for each that is not."""

    nodes: tuple[str, ...]
    refused: dict[str, str]


class ExtenderCaller:
    """One configured extender."""

    def __init__(self, extender: Extender, http: httpx2.AsyncClient) -> None:
        """Prepare calls; ``http`` may carry any transport."""
        self.extender = extender
        self._http = http

    async def filter(self, pod: WholePod, nodes: Sequence[str]) -> FilterAnswer:
        """Ask which of these nodes are fit.

        Raises:
            ExtenderError: it cannot be reached, is too slow, says so itself, or breaks the protocol.
        """
        answer = await self._call(
            self.extender.filter_verb, {"Pod": msgspec.to_builtins(pod), "Nodes": None, "NodeNames": list(nodes)}
        )
        if answer.get("error"):
            raise ExtenderError(str(answer["error"]))
        left = tuple(answer.get("nodenames") or ())
        for name in left:
            if name not in nodes:
                raise ExtenderError(
                    f'extender "{self.extender.url_prefix}" claims a filtered node "{name}" '
                    "which is not found in the input node list"
                )
        refused = {**(answer.get("failednodes") or {}), **(answer.get("failedandunresolvablenodes") or {})}
        return FilterAnswer(left, refused)

    async def bind(self, pod: WholePod, node: str) -> None:
        """Have it create the Binding.

        Raises:
            ExtenderError: as for :meth:`filter`; the pod may be bound all the same when only the answer was lost.
        """
        answer = await self._call(
            self.extender.bind_verb,
            {"PodName": pod.metadata.name, "PodNamespace": pod.namespace, "PodUID": pod.uid, "Node": node},
        )
        if answer.get("error"):
            raise ExtenderError(str(answer["error"]))

    async def preempt(self, pod: WholePod, victims: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
        """Ask it to look over the victims (UIDs by node); returns those that are left.

        Raises:
            ExtenderError: as for :meth:`filter`.
        """
        proposed = {
            node: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 0} for node, uids in victims.items()
        }
        answer = await self._call(
            self.extender.preempt_verb,
            {"Pod": msgspec.to_builtins(pod), "NodeNameToVictims": None, "NodeNameToMetaVictims": proposed},
        )
        found: dict[str, tuple[str, ...]] = {}
        for node, named in (answer.get("nodenametometavictims") or {}).items():
            found[node] = tuple(str(one["UID"]) for one in (named or {}).get("Pods") or ())
        return found

    async def _call(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        url = self.extender.url(verb)
        try:
            response = await self._http.post(
                url,
                content=msgspec.json.encode(body),
                headers={"Content-Type": "application/json"},
                timeout=self.extender.timeout,
            )
        except httpx2.HTTPError as error:
            raise ExtenderError(f'Post "{url}": {error!r}') from error
        if response.status_code != 200:
            raise ExtenderError(f"failed {verb} with extender at URL {url}, code {response.status_code}")
        try:
            answer = msgspec.json.decode(response.content, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise ExtenderError(f"extender at URL {url} answered with something else than JSON: {error}") from error
        return {key.lower(): value for key, value in answer.items()}
