"""A real Prometheus for tests, with exporters of ours: each a server in a thread whose figures a test sets.

Prometheus looks for its targets once at the start, so all exporters begin before it. Each has a label ``cluster`` of
its own, by which a test sees only its own. It takes some six seconds until the first samples are there, and is
therefore shared by all tests of a run; nothing of it outlives them, even when they are killed.
"""

import asyncio
import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import yaml
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from tests.clusters import free_port

NO_PROMETHEUS = "no Prometheus: no program prometheus on the path"
SCRAPE_MILLISECONDS = 400
"""Between scrapes, and the most that one may take: a busy machine must not look like a dead exporter."""
SECONDS = 60.0
"""A safety net, wide enough for a busy machine; nothing is decided by it."""
_PR_SET_PDEATHSIG = 1

Labels = tuple[tuple[str, str], ...]


class Exporter(Collector):
    """Serves the figures that a test sets, as gauges or, where the name ends so, as counters."""

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self._figures: dict[str, dict[Labels, tuple[float, float | None]]] = {}
        registry = CollectorRegistry()
        registry.register(self)
        self._server, self._thread = start_http_server(0, addr="127.0.0.1", registry=registry)
        self.instance = f"127.0.0.1:{self._server.server_port}"
        self._alive = True

    def set(self, metric: str, value: float, at: float | None = None, /, **labels: str) -> None:
        """Say something; ``at`` is the sample's own time in seconds since 1970."""
        self._figures.setdefault(metric, {})[tuple(sorted(labels.items()))] = value, at

    def forget(self, metric: str, /, **labels: str) -> None:
        """Say it no more."""
        del self._figures[metric][tuple(sorted(labels.items()))]

    def collect(self) -> Iterable[Metric]:
        for metric, kept in list(self._figures.items()):
            series = dict(kept)  # a test may go on setting figures meanwhile
            names = sorted({name for labels in series for name, _ in labels})
            family = CounterMetricFamily if metric.endswith("_total") else GaugeMetricFamily
            made = family(metric, "For a test.", labels=names)
            for labels, (value, at) in series.items():
                known = dict(labels)
                made.add_metric([known.get(name, "") for name in names], value, timestamp=at)
            yield made

    def die(self) -> None:
        """Answer nobody any more."""
        if self._alive:
            self._alive = False
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()


class Observed:
    """The running Prometheus and its exporters, by cluster."""

    def __init__(self, url: str, exporters: Mapping[str, list[Exporter]]) -> None:
        self.url, self.exporters = url, exporters
        self._http = httpx2.Client(base_url=url, trust_env=False, timeout=20)

    def value(self, expression: str) -> list[dict[str, Any]]:
        """What a query gives now."""
        reply = self._http.post("/api/v1/query", data={"query": expression})
        assert reply.status_code == 200, reply.text
        found: list[dict[str, Any]] = reply.json()["data"]["result"]
        return found

    def until(self, expression: str, count: int = 1) -> list[dict[str, Any]]:
        """Wait until a query gives so many series."""
        end = time.monotonic() + SECONDS
        while len(found := self.value(expression)) != count:
            assert time.monotonic() < end, f"{expression}: {found} within {SECONDS} s"
            time.sleep(0.03)
        return found

    async def eventually(self, expression: str, count: int = 1) -> list[dict[str, Any]]:
        """The same beside others."""
        return await asyncio.to_thread(self.until, expression, count)

    def close(self) -> None:
        self._http.close()


@contextlib.contextmanager
def observed(folder: Path, clusters: Mapping[str, int]) -> Iterator[Observed]:
    """A Prometheus that scrapes so many exporters of each cluster, when each of them has been scraped once."""
    program = shutil.which("prometheus")
    assert program is not None, NO_PROMETHEUS
    with contextlib.ExitStack() as stack:
        exporters = {name: [Exporter(name) for _ in range(count)] for name, count in clusters.items()}
        every = [exporter for group in exporters.values() for exporter in group]
        stack.callback(_end, every)
        config = {
            "global": {"scrape_interval": f"{SCRAPE_MILLISECONDS}ms", "scrape_timeout": f"{SCRAPE_MILLISECONDS}ms"},
            "scrape_configs": [
                {
                    "job_name": "exporters",
                    "static_configs": [
                        {"targets": [exporter.instance], "labels": {"cluster": exporter.cluster}} for exporter in every
                    ],
                }
            ],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        _, url = stack.enter_context(serving(program, folder))
        made = stack.enter_context(contextlib.closing(Observed(url, exporters)))
        made.until("max_over_time(up[1m]) == 1", len(every))
        yield made


def _end(exporters: list[Exporter]) -> None:
    """All at once: each server looks twice a second whether it shall end."""
    with ThreadPoolExecutor(len(exporters)) as pool:
        list(pool.map(Exporter.die, exporters))


@contextlib.contextmanager
def serving(program: str, folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """The server and its address. Another program may take the port before it does; then once more."""
    for attempt in range(3):
        port = free_port()
        with (folder / "prometheus.log").open("wb") as log:
            process = subprocess.Popen(
                [
                    program,
                    f"--config.file={folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{port}",
                    "--log.level=warn",
                ],
                stdout=log,
                stderr=log,
                cwd=folder,
                env={**os.environ, "GOMAXPROCS": "1"},
                preexec_fn=_die_with_parent,
            )
        url = f"http://127.0.0.1:{port}"
        try:
            if _answers(process, url):
                yield process, url
                return
            assert attempt < 2, (folder / "prometheus.log").read_text()[-2000:]
        finally:
            process.terminate()
            try:
                process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _answers(process: subprocess.Popen[bytes], url: str) -> bool:
    end = time.monotonic() + SECONDS
    while process.poll() is None and time.monotonic() < end:
        with contextlib.suppress(httpx2.HTTPError):
            if httpx2.get(f"{url}/-/ready", trust_env=False).status_code == 200:
                return True
        time.sleep(0.05)
    return False


def _die_with_parent() -> None:
    """Leave nothing behind when the tests themselves are killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
