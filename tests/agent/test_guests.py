"""RTOS guests of a node in the ComputeNode and in the metrics."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from tests.agent.scene import scene

from hcs.agent.guests import SECONDS, Guests
from hcs.mica.records import GuestRecord, Records, process_start
from hcs.model.devices import RtosHost
from hcs.rtos.annotations import Annotations
from hcs.rtos.configuration import Config
from hcs.rtos.hosts import Host
from hcs.rtos.planning import make_plan
from hcs.rtos.resources import Resources
from hcs.rtos.updates import Record
from hcs.sandbox.scheduler.virtualtime import run_virtual


def recorded(root: Path, name: str, *, pid: int, infra: bool = False) -> None:
    """Write a guest's record, as the OCI runtime does."""
    made = make_plan(Resources(cpus="0-1", limit=64 << 20), Annotations(), Config(), Host(4, 1024))
    (root / name).mkdir(parents=True)
    Records(root).write(
        GuestRecord(
            id=name,
            bundle="/b",
            rootfs="/b/rootfs",
            status="running",
            created="2026-01-01T00:00:00Z",
            pid=pid,
            pid_start=process_start(pid),
            infra=infra,
            plan=made,
            given=Record.of(made),
        )
    )


async def in_place(work: Callable[[], None]) -> None:
    """Virtual time knows no threads."""
    work()


def config(folder: Path) -> Config:
    return Config(pcpus=4, total_memory_mb=1024, mica_directory=str(folder / "mica"), xl="/nowhere/xl")


def test_guests_and_what_is_left_are_counted(tmp_path: Path) -> None:
    recorded(tmp_path / "records", "alive", pid=os.getpid())
    recorded(tmp_path / "records", "gone", pid=0)
    recorded(tmp_path / "records", "pause", pid=os.getpid(), infra=True)
    (tmp_path / "records" / "damaged").mkdir()
    (tmp_path / "records" / "damaged" / "state.json").write_text("{")
    guests = Guests(config(tmp_path), [tmp_path / "records", tmp_path / "none"])
    guests.look()
    assert guests.published == RtosHost("xen", 4, 1024, 960, 200, guests=1, running=1)
    registry = CollectorRegistry()
    registry.register(guests)
    lines = generate_latest(registry).decode().splitlines()
    assert 'hcs_rtos_guest{guest="alive",status="running"} 1.0' in lines
    assert 'hcs_rtos_guest{guest="gone",status="stopped"} 1.0' in lines
    assert 'hcs_rtos_guest_memory_threshold_bytes{guest="alive"} 1.34217728e+08' in lines
    assert "hcs_rtos_capacity_free_cpus 2.0" in lines
    assert not any("pause" in line for line in lines)


def test_the_node_appears_in_the_unified_view_and_changes_are_published(tmp_path: Path) -> None:
    async def story() -> None:
        async with scene(tmp_path) as node:
            guests = Guests(config(tmp_path), [tmp_path / "records"], aside=in_place)
            await node.start_agent(rtos=guests)
            await asyncio.sleep(SECONDS)
            await node.settle()
            found = (await node.published()).status.rtos
            assert found == RtosHost("xen", 4, 1024, 1024, 400)
            (tmp_path / "mica").mkdir()
            (tmp_path / "mica" / "mica-create.socket").touch()
            recorded(tmp_path / "records", "one", pid=1)
            await asyncio.sleep(2 * SECONDS)
            await node.settle()
            inventory = (await node.published()).inventory()
            assert inventory.rtos == RtosHost("xen", 4, 1024, 960, 200, guests=1, running=1, ready=True)
            assert msgspec.to_builtins(inventory.rtos)["freeMemoryMb"] == 960

    run_virtual(story())
