"""The whole way in one process: a Job's pod loses its card, and its replacement is bound with where to resume."""

from pathlib import Path
from typing import Any

from tests.healer.scene import CHECKPOINTS, Ward, failed, ward
from tests.router.scene import card, virtual

from hcs.kube.resources import Pod as PodResource
from hcs.model import names
from hcs.model.pods import Pod
from hcs.sandbox.jobs.controller import JobController


async def job(w: Ward, restart: str, **annotations: str) -> None:
    """A Job of one pod with checkpoints, its controller, a router and a scheduler."""
    template: dict[str, Any] = {
        "metadata": {"annotations": {names.CHECKPOINT: CHECKPOINTS, **annotations}},
        "spec": {
            "schedulerName": names.SCHEDULER,
            "restartPolicy": restart,
            "containers": [
                {"name": "main", "image": "example.invalid/train:1", "resources": {"limits": {names.VRAM: "48Gi"}}}
            ],
        },
    }
    w.spawn(JobController(w.client, now=w.today).run())
    await w.start_driver(w.http(await w.start_extender()))
    await w.post(
        "/apis/batch/v1/namespaces/default/jobs",
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": {"template": template}},
    )


async def placed(w: Ward, *but: Pod) -> Pod:
    """The Job's pod that has a node, other than those given."""
    found: list[Pod] = []

    async def look() -> bool:
        known = {pod.metadata.uid for pod in but}
        found[:] = [
            pod
            async for pod in w.client.list(PodResource, namespace="default")
            if pod.spec.nodeName and pod.metadata.uid not in known
        ]
        return bool(found)

    await w.until(look)
    return found[0]


@virtual
async def test_an_evicted_job_goes_on_from_its_checkpoint_on_another_vendor(tmp_path: Path) -> None:
    async with ward(tmp_path) as w:
        await w.start_healer()
        await job(w, "OnFailure", **{names.VENDORS: "nvidia,ascend", names.PORTABLE: "true"})
        first = await placed(w)
        node, device, other = (
            ("gpu", card(0), "npu") if first.spec.nodeName == "gpu" else ("npu", card(0, "ascend"), "gpu")
        )
        w.steps[first.metadata.name] = 11
        await w.set_status(first.metadata.name, phase="Running")
        await w.set_cards(node, failed(0, device.vendor), failed(1, device.vendor))
        second = await placed(w, first)
        assert second.spec.nodeName == other
        assert second.annotations[names.RESUME] == f"{CHECKPOINTS}/step-11"


@virtual
async def test_a_job_whose_pod_died_of_the_fault_goes_on_as_well(tmp_path: Path) -> None:
    async with ward(tmp_path) as w:
        await w.start_healer()
        await job(w, "Never", **{names.VENDORS: "nvidia"})
        first = await placed(w)
        w.steps[first.metadata.name] = 4
        await w.set_status(first.metadata.name, phase="Running")
        await w.fail_by_itself(first.metadata.name)  # half a second before its replacement is made
        await w.set_cards("gpu", failed(0), card(1))
        second = await placed(w, first)
        assert second.annotations[names.RESUME] == f"{CHECKPOINTS}/step-4"
        assert "nvidia-1" in second.annotations[names.ALLOCATION]


@virtual
async def test_a_job_that_waited_for_its_own_card_resumes_on_it(tmp_path: Path) -> None:
    async with ward(tmp_path) as w:
        await w.start_healer(probation=30.0)
        await job(w, "OnFailure", **{names.VENDORS: "nvidia"})
        first = await placed(w)
        w.steps[first.metadata.name] = 21
        await w.set_status(first.metadata.name, phase="Running")
        await w.set_cards("gpu", failed(0), failed(1))
        await w.until(lambda: w.leaving(first.metadata.name))
        await w.end(first.metadata.name)
        await w.settle(120)
        await w.set_cards("gpu", card(0), card(1))
        second = await placed(w, first)
        assert second.annotations[names.RESUME] == f"{CHECKPOINTS}/step-21"
        await w.settle()
        assert await w.entries("gpu") == {}
