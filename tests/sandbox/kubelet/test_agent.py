"""Who may start without the agent's word, and how each of its answers is taken."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.sandbox.kubelet.scene import answering, pod_with

from hcs.inject.adjustments import EMPTY
from hcs.sandbox.kubelet.agent import Agent, RefusedStartError, requires_agent
from hcs.sandbox.kubelet.pods import BoundPod

PLUGINS = "required-plugins.noderesource.dev"
OTHER = pod_with({})
MANAGED = pod_with({}, annotations={PLUGINS: '["hcs"]'})


@pytest.mark.parametrize(
    ("pod", "required"),
    [
        pytest.param(OTHER, False, id="any-pod"),
        pytest.param(MANAGED, True, id="plugin-named"),
        pytest.param(pod_with({}, annotations={f"{PLUGINS}/pod": "- hcs"}), True, id="plugin-named-for-the-pod"),
        pytest.param(pod_with({}, annotations={PLUGINS: '["other"]'}), False, id="another-plugin"),
        pytest.param(pod_with({}, annotations={"ai.compute/allocation": "{}"}), True, id="allocation"),
        pytest.param(pod_with({"resources": {"limits": {"ai.compute/vram": "1Gi"}}}), True, id="asks-for-memory"),
        pytest.param(pod_with({"resources": {"limits": {"cpu": "1"}}}), False, id="asks-for-cpu"),
    ],
)
def test_who_needs_the_agent(pod: BoundPod, required: bool) -> None:
    assert requires_agent(pod) is required


def adjusted(pod: BoundPod, socket: Path, code: int, reply: Any) -> Any:
    async def story() -> Any:
        async with answering(socket, lambda *_: (code, reply)):
            agent = Agent(str(socket))
            try:
                return await agent.adjust(pod, pod.spec.containers[0], {}, [])
            finally:
                await agent.close()

    return asyncio.run(story())


@pytest.mark.parametrize(
    ("code", "reply", "problem"),
    [
        pytest.param(503, {"detail": "not synced"}, "cannot tell now: HTTP 503", id="not-now"),
        pytest.param(200, {"adjustment": {"env": 7}}, "cannot be read", id="nonsense"),
        pytest.param(409, {"message": 1}, "cannot be read", id="broken-refusal"),
    ],
)
def test_an_answer_that_is_none_stops_managed_pods_only(code: int, reply: Any, problem: str, tmp_path: Path) -> None:
    with pytest.raises(RefusedStartError, match=problem):
        adjusted(MANAGED, tmp_path / "a.sock", code, reply)
    assert adjusted(OTHER, tmp_path / "b.sock", code, reply) == EMPTY


def test_a_refusal_stops_any_pod(tmp_path: Path) -> None:
    with pytest.raises(RefusedStartError, match="OverCommitted: card 0 is full"):
        adjusted(OTHER, tmp_path / "a.sock", 409, {"reason": "OverCommitted", "message": "card 0 is full"})
