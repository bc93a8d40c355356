"""Requests that nobody could mean: a 400 with a sentence, never a broken server."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.router.scene import Scene, scene, virtual

PODS = "/api/v1/namespaces/default/pods"
JSON, APPLY = "application/json", "application/apply-patch+yaml"


@asynccontextmanager
async def asked(s: Scene) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(
        transport=s.api, base_url="https://k", headers={"Authorization": "Bearer admin-token"}
    ) as api:
        yield api


def binding(**changes: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": "n"}, **changes}


@pytest.mark.parametrize(
    ("method", "path", "kind", "body"),
    [
        pytest.param("GET", f"{PODS}?limit=few", JSON, None, id="limit"),
        pytest.param("GET", f"{PODS}?watch=1&timeoutSeconds=soon", JSON, None, id="timeout"),
        pytest.param("DELETE", f"{PODS}/p", JSON, {"gracePeriodSeconds": "soon"}, id="grace"),
        pytest.param("DELETE", f"{PODS}/p?gracePeriodSeconds=soon", JSON, {}, id="grace-in-the-query"),
        pytest.param("DELETE", f"{PODS}/p", JSON, {"preconditions": True}, id="preconditions"),
        pytest.param("DELETE", PODS, JSON, [], id="delete-options"),
        pytest.param("POST", f"{PODS}/p/eviction", JSON, {"deleteOptions": -1}, id="eviction-options"),
        pytest.param("POST", f"{PODS}/p/eviction", JSON, {"metadata": 1.5}, id="eviction-metadata"),
        pytest.param("POST", f"{PODS}/p/binding", JSON, binding(metadata=7), id="binding-metadata"),
        pytest.param("POST", f"{PODS}/p/binding", JSON, binding(target="n"), id="binding-target"),
        pytest.param(
            "POST", f"{PODS}/p/binding", JSON, binding(metadata={"annotations": {"a": {}}}), id="binding-annotations"
        ),
        pytest.param("PUT", f"{PODS}/p", JSON, {"metadata": {"labels": True}}, id="labels"),
        pytest.param("PATCH", f"{PODS}/new?fieldManager=x", APPLY, {"metadata": "x"}, id="apply-metadata"),
        pytest.param(
            "PATCH", f"{PODS}/new?fieldManager=x", APPLY, {"metadata": {"labels": {"a": "\ud800"}}}, id="half"
        ),
    ],
)
@virtual
async def test_nonsense_is_a_bad_request(tmp_path: Path, method: str, path: str, kind: str, body: Any) -> None:
    async with scene(tmp_path) as s, asked(s) as api:
        await s.add_pod("p")
        content = None if body is None else json.dumps(body).encode()
        answer = await api.request(method, path, content=content, headers={"Content-Type": kind})
        assert (answer.status_code, answer.json()["reason"]) == (400, "BadRequest"), answer.text
        assert (await s.get_pod("p")).metadata.deletionTimestamp is None
        assert not (await s.get_pod("p")).spec.nodeName


@virtual
async def test_a_job_without_a_name_is_invalid(tmp_path: Path) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "b"}]}}
    body = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {"metadata": {}, **template}}}
    async with scene(tmp_path) as s, asked(s) as api:
        answer = await api.post("/apis/batch/v1/namespaces/default/jobs", content=json.dumps(body).encode())
        assert (answer.status_code, answer.json()["reason"]) == (422, "Invalid"), answer.text
