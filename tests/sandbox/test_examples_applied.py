"""The examples, applied with kubectl to a whole sandbox as a newcomer does, end where their comments say.

Only a whole sandbox can show that a manifest as it stands in ``examples/`` is admitted, routed, injected and run.
"""

import asyncio
import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hcs.kube import resources
from hcs.kube.connection import connect
from hcs.kube.informer import Informer
from hcs.model.allocations import allocation_of
from hcs.sandbox.cluster import Sandbox
from hcs.sandbox.files import examples_directory
from hcs.sandbox.fleet import DEMO, load_fleet

PATIENCE = 60.0


async def _run(sandbox: Sandbox, *command: str) -> tuple[int, str]:
    """A command as a person types it, with the sandbox's kubeconfig; exit status and what it printed."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**sandbox.supervisor.environment, "KUBECONFIG": str(sandbox.kubeconfig), "HOME": str(sandbox.directory)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


async def _story(directory: Path) -> dict[str, Any]:
    sandbox, seen = Sandbox(directory, load_fleet(DEMO)), dict[str, Any]()
    try:
        await sandbox.start(lambda _: None)
        client = connect(str(sandbox.kubeconfig))
        pods, settled = Informer(client, resources.Pod), asyncio.Event()

        def look(*_: object) -> None:
            bound = [pod for pod in pods.values() if allocation_of(pod) is not None]
            refused = [
                pod
                for pod in pods.values()
                if any(c.type == "PodScheduled" and c.status == "False" for c in pod.status.conditions or ())
            ]
            if len(bound) >= 6 and any(pod.metadata.name == "cannot-be-placed" for pod in refused):
                settled.set()

        pods.on_change(look)
        following = asyncio.create_task(pods.run())
        seen["apply"] = await _run(sandbox, "kubectl", "apply", "-f", str(examples_directory()))
        async with asyncio.timeout(PATIENCE):
            await settled.wait()
        seen["pods"] = {pod.metadata.name: pod for pod in pods.values()}
        seen["get"] = await _run(sandbox, "kubectl", "get", "pods,computenodes", "-o", "wide")
        seen["fleet"] = await _run(sandbox, sys.executable, "-m", "hcs", "fleet", "--json")
        seen["why"] = await _run(sandbox, sys.executable, "-m", "hcs", "why", "cannot-be-placed")
        seen["wait"] = await _run(
            sandbox, "kubectl", "wait", "--for=condition=complete", "job/checkpoint", f"--timeout={PATIENCE:.0f}s"
        )
        seen["gang"] = await _run(
            sandbox, "kubectl", "wait", "--for=condition=complete", "job/gang", f"--timeout={PATIENCE:.0f}s"
        )
        seen["logs"] = await _run(sandbox, "kubectl", "logs", "job/checkpoint")
        seen["delete"] = await _run(sandbox, "kubectl", "delete", "-f", str(examples_directory()))
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await client.close()
        return seen
    finally:
        await sandbox.stop()


@pytest.mark.xdist_group("sandbox")
@pytest.mark.timeout(180)
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on the path")
def test_the_examples_end_where_their_comments_say(tmp_path: Path) -> None:
    seen = asyncio.run(_story(tmp_path))
    for command in ("apply", "get", "fleet", "wait", "gang", "logs", "delete"):
        assert seen[command][0] == 0, f"{command}: {seen[command][1]}"
    pods = seen["pods"]
    share, whole, substituted = (allocation_of(pods[name]) for name in ("share", "whole-cards", "substitution"))
    assert share is not None
    assert not share.exclusive
    assert whole is not None
    assert whole.exclusive
    assert len(whole.devices()) == 2
    assert substituted is not None
    assert substituted.exchange is not None
    members = [found for name, pod in pods.items() if name.startswith("gang-") and (found := allocation_of(pod))]
    assert [found.peers is not None and found.peers.members for found in members] == [2, 2]
    assert len({(found.vendor, found.model) for found in members}) == 1
    assert pods["cannot-be-placed"].spec.nodeName is None
    conditions = pods["cannot-be-placed"].status.conditions
    sentence = next(c.message for c in conditions if c.type == "PodScheduled")
    assert "asks for mthreads" in sentence
    assert "asks for mthreads" in seen["why"][1], "the same sentence"
    assert {"gpu-a", "gpu-b", "mlu-a", "npu-a"} <= set(seen["get"][1].split()) | {
        word.removeprefix("computenode.ai.compute/") for word in seen["get"][1].split()
    }
    assert msgspec.json.decode(seen["fleet"][1])
    assert '"done"' in seen["logs"][1]
