"""Scene *why*: a pod that cannot be placed, and the one screen that explains it."""

import asyncio
import sys

import msgspec

from hcs.cli.demo.stage import Stage
from hcs.cli.demo.training import GIB, train_pod
from hcs.model import names

_SCREEN = 24
"""Lines of a terminal."""


async def play(stage: Stage) -> None:
    """Ask for what the room does not have, and ask why."""
    stage.say("A pod asks for 40Gi on a Moore Threads card; there is none in this room.")
    await stage.create(train_pod("why", vram=40 * GIB, annotations={names.VENDORS: "mthreads"}))

    def refused() -> str | None:
        pod = stage.pod("why")
        for condition in (pod.status.conditions if pod else None) or ():
            if condition.type == "PodScheduled" and condition.status == "False" and condition.message:
                return condition.message
        return None

    condition = await stage.until("the pod is refused with a sentence", refused)
    screen = await _hcs(stage, "why", "why")
    stage.console.print()
    stage.show(screen.rstrip())
    stage.console.print()
    answer = msgspec.json.decode(await _hcs(stage, "why", "why", "--json"))
    refusals = answer.get("refusals") or []
    stage.claim(f"it fits one screen ({len(screen.splitlines())} lines)", 0 < len(screen.splitlines()) <= _SCREEN)
    stage.claim("every node has its reason", sum(len(refusal["nodes"]) for refusal in refusals) == len(stage.nodes))
    stage.claim(
        "the pod's condition says the same sentence",
        bool(refusals) and all(refusal["message"] in condition for refusal in refusals),
    )
    stage.facts.update(refusals=refusals, condition=condition, lines=len(screen.splitlines()))
    await stage.remove("why")


async def _hcs(stage: Stage, *arguments: str) -> str:
    """Run ``hcs`` as a person would."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "hcs",
        *arguments,
        "--kubeconfig",
        str(stage.kubeconfig),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    if process.returncode not in (0, 1):
        stage.claim(f"hcs {' '.join(arguments)} works: {errors.decode().strip()}", False)
    return output.decode()
