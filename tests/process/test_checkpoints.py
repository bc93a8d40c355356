"""When a pod's newest complete checkpoint was written, on storage of several kinds."""

import asyncio
import datetime
import os
from pathlib import Path

import fsspec
import msgspec

from hcs.model import names
from hcs.model.pods import Pod
from hcs.process.checkpoints import written_at

MOMENT = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)


def pod(place: str, host: Path | None = None) -> Pod:
    volumes = [{"name": "v", "hostPath": {"path": str(host)}}] if host else []
    container = {"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/data"}] if host else []}
    body = {
        "metadata": {"name": "p", "annotations": {names.CHECKPOINT: place} if place else {}},
        "spec": {"containers": [container], "volumes": volumes},
    }
    return msgspec.convert(body, Pod)


def test_the_newest_complete_one_counts_not_the_newest_file(tmp_path: Path) -> None:
    for name, hour in (("step-1.json", 10), ("step-2.json", 12), ("step-3.json.partial", 14), ("other", 15)):
        (tmp_path / name).write_text("")
        stamp = MOMENT.replace(hour=hour).timestamp()
        os.utime(tmp_path / name, (stamp, stamp))
    assert asyncio.run(written_at(pod("/data", tmp_path))) == MOMENT


def test_an_object_store_says_when() -> None:
    store = fsspec.filesystem("memory")
    store.pipe("/ages/step-7", b"x")
    found = asyncio.run(written_at(pod("memory://ages")))
    assert found is not None
    assert abs((datetime.datetime.now(datetime.UTC) - found).total_seconds()) < 3600


def test_nothing_is_known_of_what_cannot_be_seen() -> None:
    for place in ("", "/nowhere", "https://example.invalid/x", "memory://nothing-here"):
        assert asyncio.run(written_at(pod(place))) is None
