"""The service over HTTP: tenants call, operators see all, and nobody finds out about others."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import pytest
from tests.neuro.boards import board
from tests.neuroplugin.room import node

TOKENS = {"lab-token": "lab", "shop-token": "shop", "root-token": "*"}
CORES = [{"neurons": 8}, {"neurons": 8}, {"neurons": 8}]
CHAIN = {
    "name": "echo",
    "version": "1",
    "models": [
        {
            "name": "chain",
            "cores": CORES,
            "synapses": [{"source": [0, 0], "target": [1, 0]}, {"source": [1, 0], "target": [2, 0]}],
            "outputs": [2],
            "ksps": 40,
        }
    ],
}
Call = Callable[..., Awaitable[tuple[int, Any]]]


def tell(story: Callable[[Call], Awaitable[None]], tokens: dict[str, str] | None = None) -> None:
    async def whole() -> None:
        made, _ = node(board(ksps=100), tokens=TOKENS if tokens is None else tokens)
        transport = httpx2.ASGITransport(app=made.app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://neuro") as client:

            async def call(who: str, method: str, path: str, content: Any = None) -> tuple[int, Any]:
                body = {"content": content} if isinstance(content, bytes) else {"json": content}
                headers = {"Authorization": f"Bearer {who}-token"} if who else {}
                answer = await client.request(method, path, headers=headers, **body)  # type: ignore[arg-type]
                return answer.status_code, answer.json() if answer.content else None

            await story(call)

    asyncio.run(whole())


def test_a_network_is_installed_created_run_and_destroyed() -> None:
    async def story(call: Call) -> None:
        code, told = await call("lab", "POST", "/v1/tenants/lab/apps", CHAIN)
        assert (code, told["models"]) == (201, ["chain"])
        code, task = await call("lab", "POST", "/v1/tenants/lab/tasks", {"app": "echo"})
        assert (code, task["state"], task["task"]) == (201, "Ready", 1)
        assert "cores" not in task, "where it is on the board is the operator's business"
        code, ran = await call("lab", "POST", "/v1/tenants/lab/tasks/1/run", {"steps": [[[0, 0]], [], [], []]})
        assert (code, ran) == (200, {"steps": [[], [], [[2, 0]], []]})
        assert (await call("lab", "GET", "/v1/tenants/lab/streams"))[1] == [{"address": 1, "ksps": 40, "task": 1}]
        code, found = await call("lab", "GET", "/v1/tenants/lab/streams/1")
        assert (code, found["ksps"]) == (200, 40)
        for act, state in (("start", "Running"), ("pause", "Paused"), ("resume", "Running")):
            assert (await call("lab", "POST", f"/v1/tenants/lab/tasks/1/{act}"))[1]["state"] == state
        assert (await call("lab", "DELETE", "/v1/tenants/lab/tasks/1"))[1]["state"] == "Released"
        assert (await call("lab", "GET", "/v1/tenants/lab/tasks"))[1] == []
        code, seen = await call("root", "GET", "/v1/boards")
        assert seen["boards"][0]["taken"] == dict.fromkeys(seen["boards"][0]["taken"], 0)

    tell(story)


def test_others_and_their_numbers_cannot_be_told_from_nothing() -> None:
    async def story(call: Call) -> None:
        await call("lab", "POST", "/v1/tenants/lab/apps", CHAIN)
        await call("lab", "POST", "/v1/tenants/lab/tasks", {"app": "echo"})
        missing = await call("shop", "GET", "/v1/tenants/shop/tasks/1")
        assert missing[0] == 404
        assert missing == await call("shop", "DELETE", "/v1/tenants/shop/tasks/1")
        there = await call("shop", "GET", "/v1/tenants/lab/tasks/1")
        nowhere = await call("shop", "GET", "/v1/tenants/nobody/tasks/1")
        assert there[0] == nowhere[0] == 404
        assert str(there[1]).replace("lab", "T") == str(nowhere[1]).replace("nobody", "T")
        assert (await call("shop", "GET", "/v1/boards"))[0] == 404
        assert (await call("shop", "PUT", "/v1/tenants/shop/quota", {"tasks": 99}))[0] == 404
        assert (await call("wrong", "GET", "/v1/tenants/lab/tasks"))[0] == 401
        assert (await call("", "GET", "/v1/tenants/lab/tasks"))[0] == 401

    tell(story)


@pytest.mark.parametrize(
    ("method", "path", "content", "code", "reason"),
    [
        pytest.param("POST", "apps", b"{", 422, "MalformedPackage", id="truncated-package"),
        pytest.param("POST", "apps", b"", 422, "MalformedPackage", id="empty-package"),
        pytest.param("POST", "tasks", b"[]", 422, "MalformedRequest", id="not-a-request"),
        pytest.param("POST", "tasks", {"app": "nope"}, 404, "NotFound", id="no-such-app"),
        pytest.param("POST", "tasks", {"app": "echo", "board": "b9"}, 404, "UnknownBoard", id="no-such-board"),
        pytest.param("POST", "tasks", {"app": "echo", "affinity": "mars"}, 422, "MalformedRequest", id="affinity"),
        pytest.param("POST", "leases", {"cores": -5}, 422, "NegativeSize", id="negative-lease"),
        pytest.param("POST", "leases", {"width": -1, "height": 4}, 422, "NegativeSize", id="negative-side"),
        pytest.param("POST", "leases", {"cores": 65}, 422, "BeyondBoard", id="too-large-a-lease"),
        pytest.param("DELETE", "leases/1", None, 404, "NotFound", id="no-such-lease"),
        pytest.param("GET", "tasks/x", None, 404, "NotFound", id="not-a-number"),
        pytest.param("POST", "tasks/1/run", {"steps": [[[9, 9]]]}, 409, "RunFailed", id="no-such-neuron"),
        pytest.param("POST", "tasks/1/pause", None, 409, "WrongState", id="not-running"),
    ],
)
def test_bad_input_gets_a_sentence(method: str, path: str, content: Any, code: int, reason: str) -> None:
    async def story(call: Call) -> None:
        await call("lab", "POST", "/v1/tenants/lab/apps", CHAIN)
        await call("lab", "POST", "/v1/tenants/lab/tasks", {"app": "echo"})
        before = await call("root", "GET", "/v1/boards")
        found, told = await call("lab", method, f"/v1/tenants/lab/{path}", content)
        assert (found, told["refusals"][0]["reason"]) == (code, reason)
        after = await call("root", "GET", "/v1/boards")
        assert after[1]["boards"] == before[1]["boards"], "nothing half allocated"

    tell(story)


def test_capacity_and_quota_hold() -> None:
    async def story(call: Call) -> None:
        await call("lab", "POST", "/v1/tenants/lab/apps", CHAIN)
        for _ in range(2):
            await call("lab", "POST", "/v1/tenants/lab/tasks", {"app": "echo"})
        code, told = await call("lab", "POST", "/v1/tenants/lab/tasks", {"app": "echo"})
        assert code == 409
        assert "has 20 of 100 left" in told["refusals"][0]["message"]
        assert (await call("root", "PUT", "/v1/tenants/lab/quota", {"cores": 20}))[0] == 200
        code, told = await call("lab", "POST", "/v1/tenants/lab/leases", {"cores": 20})
        assert (code, told["refusals"][0]["reason"]) == (409, "QuotaExceeded")
        code, told = await call("lab", "POST", "/v1/tenants/lab/leases", {"cores": 9})
        assert (code, told["lease"], told["grid"]) == (201, 1, "3x3")
        assert (await call("lab", "DELETE", "/v1/tenants/lab/leases/1"))[0] == 204

    tell(story)


def test_tasks_move_away_from_faults_and_stay_away() -> None:
    async def story(call: Call) -> None:
        await call("lab", "POST", "/v1/tenants/lab/apps", CHAIN)
        await call("lab", "POST", "/v1/tenants/lab/tasks", {"app": "echo"})
        [task] = (await call("root", "GET", "/v1/boards"))[1]["tasks"]
        code, told = await call("root", "POST", "/v1/boards/b0/faults", {"cores": task["cores"][:2]})
        assert (code, told) == (200, {"hurt": [task["id"]], "moved": [task["id"]]})
        [moved] = (await call("root", "GET", "/v1/boards"))[1]["tasks"]
        assert not {tuple(c) for c in moved["cores"]} & {tuple(c) for c in task["cores"][:2]}
        code, ran = await call("lab", "POST", "/v1/tenants/lab/tasks/1/run", {"steps": [[[0, 0]], [], []]})
        assert ran == {"steps": [[], [], [[2, 0]]]}

    tell(story)


def test_a_network_policy_is_made_for_a_tenants_pods() -> None:
    async def story(call: Call) -> None:
        code, policy = await call("lab", "GET", "/v1/tenants/lab/networkpolicy")
        assert (code, policy["kind"], policy["metadata"]["namespace"]) == (200, "NetworkPolicy", "lab")
        assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
        assert policy["spec"]["ingress"] == [{"from": [{"podSelector": {}}]}], "only from its own namespace"

    tell(story)
