"""What the node agent costs: reading tools, standing idle, hearing an Xid, and the part that runs in the kernel.

Prints one JSON line for each:

- ``agent_parse``: milliseconds of processor time to read an 8-card output of each tool (with HCS_SHARED the recorded
  ones too, and those of one card eight times over);
- ``agent_idle``: a real agent with emulated cards beside an embedded API server: processor time, memory, questions to
  the vendor and system calls a period, idle;
- ``agent_xid``: milliseconds from a line in the kernel's log to the card's verdict;
- ``agent_aer``: nanoseconds that the kernel says one run of the BPF program takes, on a neighbouring tracepoint.

    python benchmarks/agent.py [--cards 8] [--period 10] [--seconds 40] [--repeat 50] [--only agent_parse]
"""

import argparse
import asyncio
import ctypes
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[1]
sys.path.insert(0, str(REPOSITORY))

from hcs.agent import bpf  # noqa: E402
from hcs.agent.alarms import Alarms  # noqa: E402
from hcs.agent.cards import Cards  # noqa: E402
from hcs.inject.injection import NodeFiles  # noqa: E402
from hcs.model.devices import Device  # noqa: E402
from hcs.vendors.base import HealthObservation  # noqa: E402
from hcs.vendors.emulated import create_card  # noqa: E402
from hcs.vendors.parsing.tools import parse  # noqa: E402


def main() -> int:
    """Run the benchmarks; 0 on success."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cards", type=int, default=8)
    parser.add_argument("--period", type=float, default=10.0, help="seconds between two readings of the idle agent")
    parser.add_argument("--seconds", type=float, default=40.0, help="how long the idle agent is watched")
    parser.add_argument("--repeat", type=int, default=50)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    benchmarks: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
        "agent_parse": _parse,
        "agent_idle": _idle,
        "agent_xid": _xid,
        "agent_aer": _aer,
    }
    for name, run in benchmarks.items():
        if options.only in ("", name):
            about = {"benchmark": name, "machine": platform.machine(), "python": platform.python_version()}
            print(json.dumps({**about, **run(options)}), flush=True)
    return 0


def _parse(options: argparse.Namespace) -> dict[str, Any]:
    found = {}
    for name, tool, text in _outputs(options.cards):
        times = []
        for _ in range(options.repeat):
            began = time.process_time()
            report = parse(tool, text)
            times.append((time.process_time() - began) * 1e3)
        found[name] = {
            "cards": len(report.devices),
            "ms": round(statistics.median(times), 3),
            "max": round(max(times), 3),
        }
    worst = max(found, key=lambda name: found[name]["ms"])
    return {"worst": worst, "worst_ms": found[worst]["ms"], "limit_ms": 20, "tools": found}


def _outputs(cards: int) -> list[tuple[str, str, str]]:
    """Outputs of ``cards`` cards made of our own texts, and the recorded ones of eight."""
    from tests.vendors import texts

    head, _, one = texts.NVIDIA_OLD_Q.partition("GPU 00000000:04:00.0")
    one = one.split("GPU 00000000:82")[0]
    xml_head, _, xml_one = texts.NVIDIA_XML.partition("  <gpu")
    xml_one = "  <gpu" + xml_one.replace("</nvidia_smi_log>\n", "")
    made = [
        ("nvidia-smi -q", "nvidia-smi", head + "".join(f"GPU 00000000:{n:02X}:00.0{one}" for n in range(cards))),
        ("nvidia-smi -q -x", "nvidia-smi", xml_head + xml_one * cards + "</nvidia_smi_log>\n"),
        ("npu-smi info", "npu-smi", _repeated(texts.NPU_310P, "+===", "+===", cards // 2)),
        ("cnmon", "cnmon", _repeated(texts.CNMON, "|===", "", cards)),
    ]
    shared = Path(os.environ.get("HCS_SHARED") or REPOSITORY.parent / "shared") / "fixtures/probes"
    recorded = [path for path in sorted(shared.rglob("8*")) if path.is_file()]
    for path, begin, end in (
        *((path, "GPU 0000", "") for path in sorted(shared.glob("nvidia-smi/q/*"))),
        *((path, "    <gpu id", "</nvidia_smi_log>") for path in sorted(shared.glob("nvidia-smi/q-x/*"))),
    ):
        text = path.read_text()
        start = text.find(begin)
        stop = text.find(end) if end else len(text)
        if start >= 0:
            several = text[:start] + text[start:stop] * cards + text[stop:]
            made.append((f"recorded {path.relative_to(shared)} x {cards}", "nvidia-smi", several))
    return made + [
        (f"recorded {path.relative_to(shared)}", path.parents[1].name, path.read_text()) for path in recorded
    ]


def _repeated(text: str, rule: str, end: str, times: int) -> str:
    """A table with its rows several times over."""
    lines = text.split("\n")
    at = next(number for number, line in enumerate(lines) if line.startswith(rule)) + 1
    last = next((number for number in range(at, len(lines)) if end and lines[number].startswith(end)), len(lines))
    return "\n".join([*lines[:at], *lines[at:last] * times, *lines[last:]])


def _idle(options: argparse.Namespace) -> dict[str, Any]:
    from hcs.sandbox.apiserver.server import Settings, running

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "cards").mkdir()
        for number in range(options.cards):
            create_card(
                place / "cards" / f"nvidia{number}",
                vendor="nvidia",
                model="A100-SXM4-80GB",
                uuid=f"GPU-00000000-aaaa-4bbb-8ccc-{number:012x}",
                index=number,
                total_bytes=80 << 30,
            )
        with running(Settings(data=place / "data")) as server:
            kubeconfig = place / "kubeconfig"
            kubeconfig.write_text(server.kubeconfig("admin-token"))
            asyncio.run(_define(str(kubeconfig)))
            command = [sys.executable, "-m", "hcs.cli.main", "agent", "run", "--node", "bench", "--log-level", "error"]
            paths = [f"--kubeconfig={kubeconfig}", f"--socket={place / 'sock'}", f"--state-dir={place / 'state'}"]
            cards = [f"--emulated-cards={place / 'cards'}", f"--ready-file={place / 'ready'}"]
            agent = subprocess.Popen([*command, *paths, *cards, f"--poll-seconds={options.period}"])
            try:
                while not (place / "ready").exists():
                    if agent.poll() is not None:
                        raise SystemExit("the agent did not start")
                    time.sleep(0.1)
                time.sleep(5)
                return _watched(agent.pid, options)
            finally:
                agent.terminate()
                agent.wait()


async def _define(kubeconfig: str) -> None:
    """What a cluster with HCS has: the definitions of our resources."""
    from hcs.kube import manifests
    from hcs.kube.connection import connect

    client = connect(kubeconfig)
    for document in manifests.read_manifests(REPOSITORY / "config/crds"):
        await manifests.create_or_replace(client, document)
    await client.close()


def _watched(pid: int, options: argparse.Namespace) -> dict[str, Any]:
    calls = _SystemCalls(pid)
    ticks = os.sysconf("SC_CLK_TCK")
    began, used = time.monotonic(), _ticks(pid)
    while time.monotonic() - began < options.seconds:
        time.sleep(0.05)
        calls.collect()
    seconds = time.monotonic() - began
    busy = (_ticks(pid) - used) / ticks
    memory = int(re.search(r"VmRSS:\s*([0-9]+)", Path(f"/proc/{pid}/status").read_text()).group(1))  # type: ignore[union-attr]
    periods = seconds / options.period
    return {
        "cards": options.cards,
        "period_s": options.period,
        "watched_s": round(seconds, 1),
        "core_percent": round(100 * busy / seconds, 3),
        "limit_core_percent": 1,
        "memory_mib": round(memory / 1024, 1),
        "limit_memory_mib": 100,
        "vendor_queries_per_period": None if calls.kinds is None else round(calls.reads / options.cards / periods, 2),
        "card_reads_per_period": None if calls.kinds is None else round(calls.reads / periods, 1),
        "system_calls_per_period": None if calls.kinds is None else round(calls.kinds.total() / periods),
        "emulated": True,
    }


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


_PREAD = {"x86_64": 17, "aarch64": 67}
"""The number of pread64(2)."""


class _SystemCalls:
    """Counts a process's system calls with the very program that listens for PCIe errors."""

    def __init__(self, pid: int) -> None:
        self.kinds: Counter[int | None] | None = Counter()
        try:
            self._listener = bpf.TracepointListener(bpf.open_tracefs(), "raw_syscalls", "sys_enter", process=pid)
        except OSError:
            self.kinds = None

    def collect(self) -> None:
        """Count what has come since the last time."""
        if self.kinds is not None:
            layout = self._listener.format
            self.kinds.update(layout.integer(record, "id") for record in self._listener.records())

    @property
    def reads(self) -> int:
        """Readings of emulated cards' health: each is one pread, of which the agent makes no others."""
        return self.kinds[_PREAD[platform.machine()]] if self.kinds is not None else 0


class _OneCard:
    """A card that always says that it is well."""

    word = "emulated"

    def probe(self) -> Sequence[Device]:
        return (Device(id="gpu", index=0, vendor="nvidia", model="A30", vram=1, bus_id="0000:3b:00.0"),)

    def read_health(self) -> Sequence[HealthObservation]:
        return (HealthObservation("gpu"),)

    def node_files(self, device: Device) -> NodeFiles:
        return NodeFiles()

    def driver_versions(self) -> dict[str, str]:
        return {}


def _xid(options: argparse.Namespace) -> dict[str, Any]:
    async def one(log: str, line: bytes) -> float:
        cards = Cards([_OneCard()])
        alarms = Alarms(cards, kernel_log=log)
        await cards.probe()
        await cards.check()
        failed = asyncio.Event()
        cards._changed = failed.set
        watching = asyncio.create_task(alarms.watch(asyncio.sleep))
        await asyncio.sleep(0)
        writer = os.open(log, os.O_WRONLY)
        began = time.perf_counter()
        os.write(writer, line)
        await failed.wait()
        took = (time.perf_counter() - began) * 1e3
        os.close(writer)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        return took

    message = b"NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=hcs-benchmark, written by a benchmark\n"
    found: dict[str, Any] = {"limit_ms": 1000, "repeat": options.repeat}
    with tempfile.TemporaryDirectory() as folder:
        pipe = f"{folder}/kmsg"
        os.mkfifo(pipe)
        times = [asyncio.run(one(pipe, b"3,1,1,-;" + message)) for _ in range(options.repeat)]
    found["pipe_ms"] = {"median": round(statistics.median(times), 3), "max": round(max(times), 3)}
    if os.access("/dev/kmsg", os.R_OK | os.W_OK):
        times = [asyncio.run(one("/dev/kmsg", b"<6>" + message)) for _ in range(min(5, options.repeat))]
        found["kmsg_ms"] = {"median": round(statistics.median(times), 3), "max": round(max(times), 3)}
    return found


def _aer(options: argparse.Namespace) -> dict[str, Any]:
    tracepoint = ("syscalls", "sys_enter_getppid")
    found: dict[str, Any] = {"tracepoint": ":".join(tracepoint), "record_bytes": bpf.RECORD_BYTES, "limit_ns": 1000}
    try:
        listener = bpf.TracepointListener(bpf.open_tracefs(), *tracepoint, process=os.getpid())
    except OSError as error:
        return {**found, "unavailable": str(error)}
    getppid = ctypes.CDLL(None).getppid
    heard = 0
    try:
        with bpf.measured():
            for _ in range(500):
                for _ in range(200):
                    getppid()
                heard += sum(1 for _ in listener.records())
            runs, nanoseconds = listener.run_time()
    finally:
        listener.close()
    return {**found, "events": 100_000, "heard": heard, "kernel_ns": round(nanoseconds / runs, 1)}


if __name__ == "__main__":
    raise SystemExit(main())
