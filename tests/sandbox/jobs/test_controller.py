"""What the controller sees of pods that come and go quickly."""

import asyncio
import datetime
import uuid
from pathlib import Path
from typing import Any

import httpx2
from lightkube import AsyncClient, KubeConfig
from lightkube.config.models import Cluster, User

from hcs.sandbox.apiserver.metadata import Sources
from hcs.sandbox.apiserver.server import ApiServer, Settings
from hcs.sandbox.jobs.controller import JobController
from hcs.sandbox.scheduler.inprocess import InProcessTransport
from hcs.sandbox.scheduler.virtualtime import run_virtual

START = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
JOBS, PODS = "/apis/batch/v1/namespaces/default/jobs", "/api/v1/namespaces/default/pods"


def test_a_pod_that_is_deleted_as_soon_as_it_succeeded_counts(tmp_path: Path) -> None:
    async def story() -> None:
        loop, numbers = asyncio.get_running_loop(), iter(range(1, 1000))

        def today() -> datetime.datetime:
            return START + datetime.timedelta(seconds=loop.time())

        sources = Sources(now=today, uid=lambda: str(uuid.UUID(int=next(numbers))))
        server = ApiServer(Settings(data=tmp_path, sources=sources))
        transport = InProcessTransport(server.application)
        config = KubeConfig.from_one(
            cluster=Cluster(server="http://kubernetes", insecure=True), user=User(token="admin-token")
        ).get()
        client = AsyncClient(config=config, transport=transport, trust_env=False)
        controller = asyncio.create_task(JobController(client, now=today).run())
        headers = {"Authorization": "Bearer admin-token"}
        merge = {"Content-Type": "application/merge-patch+json"}
        async with httpx2.AsyncClient(transport=transport, base_url="https://kubernetes", headers=headers) as http:

            async def read(path: str) -> Any:
                return (await http.get(path)).json()

            template = {
                "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example.invalid/t"}]}
            }
            job = {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": "quick"},
                "spec": {"backoffLimit": 0, "template": template},
            }
            assert (await http.post(JOBS, json=job)).status_code == 201
            await asyncio.sleep(1)
            (pod,) = (await read(PODS))["items"]
            path = f"{PODS}/{pod['metadata']['name']}"
            await asyncio.gather(
                http.patch(f"{path}/status", json={"status": {"phase": "Succeeded"}}, headers=merge),
                http.request("DELETE", path, json={"gracePeriodSeconds": 0}),
            )
            await asyncio.sleep(1)
            assert (await read(PODS))["items"] == []
            status = (await read(f"{JOBS}/quick"))["status"]
            assert status["succeeded"] == 1
            assert [condition["type"] for condition in status["conditions"]] == ["Complete"]
        controller.cancel()
        await asyncio.gather(controller, return_exceptions=True)
        await server.stop()

    run_virtual(story())
