"""``hcs injector`` serves with a given certificate or makes its own, and never guesses which was meant."""

import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import msgspec
import pytest
import typer

from hcs.injector import command
from hcs.process.certificates import Authority


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.parametrize(
    ("certificate", "key", "managed"),
    [
        pytest.param("", "", False, id="neither"),
        pytest.param("tls.crt", "tls.key", True, id="both"),
        pytest.param("tls.crt", "", False, id="no-key"),
        pytest.param("", "tls.key", False, id="no-certificate"),
        pytest.param("", "tls.key", True, id="half-and-managed"),
    ],
)
def test_where_the_certificate_comes_from_must_be_clear(certificate: str, key: str, managed: bool) -> None:
    with pytest.raises(typer.BadParameter, match="--manage-certificates alone"):
        command.run(certificate=certificate, key=key, manage_certificates=managed)


def test_with_given_files_it_serves_without_a_cluster(tmp_path: Path) -> None:
    authority = Authority.create("test")
    certificate, key = authority.issue(["127.0.0.1"]).write(tmp_path, "tls")
    ready = tmp_path / "ready"
    answers = []

    def ask() -> None:
        while not ready.exists():
            time.sleep(0.01)
        url = msgspec.json.decode(ready.read_bytes())["url"]
        with httpx2.Client(verify=authority.client_context(), trust_env=False) as client:
            answers.append(client.get(f"{url}/readyz").text)
        os.kill(os.getpid(), signal.SIGTERM)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    command.run(certificate=str(certificate), key=str(key), host="127.0.0.1", port=0, ready_file=ready)
    asking.join()
    assert answers == ["ok"]
