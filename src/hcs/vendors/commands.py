"""Running a vendor's tool with a limit: tools hang on sick cards, and so do the processes they start.

A tool gets a session of its own, no input, and a plain locale. Past the limit its whole process group is killed; one
that cannot even be killed, because it waits inside the driver, is left behind and its output with it. Called from a
thread, never from the event loop.
"""

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from hcs.vendors.base import LIMIT_SECONDS, VendorError, VendorHungError

RUN_SECONDS: Final = LIMIT_SECONDS - 0.5
"""How long a tool may take: a little less than whoever waits for it, so that it is dead when they give up."""
MOST_BYTES: Final = 16 * 1024 * 1024
"""How much output is kept; more comes only from a tool gone wild."""
_GRACE_SECONDS: Final = 0.5

Run = Callable[[Sequence[str]], bytes]
"""Runs a tool and gives its standard output."""


def find(tool: str) -> str | None:
    """The tool's path; None where it is not installed."""
    return shutil.which(tool)


def run(arguments: Sequence[str], *, limit: float = RUN_SECONDS, environment: Mapping[str, str] | None = None) -> bytes:
    """Run a tool and give what it printed on standard output.

    An exit code other than 0 is no error as long as the tool printed something: some exit with 1 and a whole table, and
    some with 0 and a lost card.

    Args:
        arguments: the tool's path and its arguments.
        limit: seconds it may take.
        environment: variables beside the process's own.

    Raises:
        VendorHungError: it took longer, and was killed with everything it had started.
        VendorError: it could not be started, or failed and printed nothing.
    """
    variables = {**os.environ, "LC_ALL": "C", "LANG": "C", **(environment or {})}
    try:
        process = subprocess.Popen(
            list(arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=variables,
            start_new_session=True,
        )
    except OSError as error:
        raise VendorError(f"{arguments[0]} cannot be started: {error.strerror}") from error
    name = os.path.basename(arguments[0])
    try:
        output, complaint = _collect(process, time.monotonic() + limit)
    except TimeoutError:
        raise VendorHungError(f"{name} has not ended within {limit:g} s; it was killed") from None
    finally:
        _end(process)
    if process.returncode and not output.strip():
        said = complaint.decode("utf-8", "replace").strip().partition("\n")[0][:200]
        how = f"died of signal {-process.returncode}" if process.returncode < 0 else f"exited with {process.returncode}"
        raise VendorError(f"{name} {how}" + (f": {said}" if said else " and printed nothing"))
    return output


def _collect(process: subprocess.Popen[bytes], deadline: float) -> tuple[bytes, bytes]:
    """Everything on both streams until both end.

    Raises:
        TimeoutError: they had not by the deadline, or the process had not.
    """
    assert process.stdout is not None
    assert process.stderr is not None
    streams = {process.stdout: bytearray(), process.stderr: bytearray()}
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map():
            left = deadline - time.monotonic()
            ready = selector.select(left) if left > 0 else []
            if not ready:
                raise TimeoutError
            for key, _ in ready:
                data = os.read(key.fd, 65536)
                kept = streams[key.fileobj]  # type: ignore[index]
                if not data:
                    selector.unregister(key.fileobj)
                elif len(kept) + len(data) <= MOST_BYTES:
                    kept += data
                else:
                    raise TimeoutError
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise TimeoutError from None
    return bytes(streams[process.stdout]), bytes(streams[process.stderr])


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the tool's group and let go of its pipes."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    with contextlib.suppress(subprocess.TimeoutExpired):  # a process inside the driver dies when the driver lets it
        process.wait(_GRACE_SECONDS)
